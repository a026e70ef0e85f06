//! System calls that the filter refuses by their number.

use super::answers::{Expected, OK, REFUSED, UNREACHABLE, answers_told};
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

pub fn tracing(target: &Target) -> Result<(), Unexercised> {
    const WHOM: &[&str] = &["child", "parent", "init"];
    const INSIDE: &[&str] = &[
        "mem",
        "maps",
        "environ",
        "auxv",
        "syscall",
        "stack",
        "personality",
        "fd",
        "root",
        "cwd",
        "map_files",
    ];
    let mut expected = Expected::default()
        .all(&["traceme"], REFUSED)
        .each("pidfd_open-", WHOM, OK)
        .all(&["kill-child"], OK)
        .all(&["child"], &["ended"]);
    for call in
        ["seize", "attach", "peek", "readv", "writev", "pidfd_getfd", "kcmp", "process_madvise"]
    {
        expected = expected.each(&format!("{call}-"), WHOM, REFUSED);
    }
    for file in INSIDE {
        expected = expected.each(&format!("{file}-"), &["init"], UNREACHABLE);
    }
    expected.hold(answers_told(&target.observe(&Probe::c("tracing"))));
    Ok(())
}

const HOST_CALLS: &[&str] = &[
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "acct",
    "swapon",
    "swapoff",
    "reboot",
    "quotactl",
    "quotactl_fd",
    "syslog",
    "vhangup",
    "sethostname",
    "setdomainname",
    "settimeofday",
    "clock_settime",
    "lookup_dcookie",
];
const PROCESSOR_CALLS: &[&str] = if cfg!(target_arch = "x86_64") {
    &["iopl", "ioperm", "modify_ldt", "uselib", "_sysctl"]
} else {
    &[]
};
const KERNEL_CALLS: &[&str] = &[
    "bpf-map",
    "bpf-load",
    "bpf-next",
    "perf_event_open",
    "userfaultfd",
    "userfaultfd-user-mode",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "add_key",
    "request_key",
    "keyctl",
    "name_to_handle_at",
    "open_by_handle_at",
];

pub fn administration(target: &Target) -> Result<(), Unexercised> {
    Expected::default()
        .all(&["well-before", "well-after"], &["yes"])
        .all(&["getpid"], OK)
        .all(HOST_CALLS, REFUSED)
        .all(PROCESSOR_CALLS, REFUSED)
        .all(KERNEL_CALLS, REFUSED)
        .hold(answers_told(&target.observe(&Probe::c("administration"))));
    Ok(())
}

pub fn terminals(target: &Target) -> Result<(), Unexercised> {
    const COMMANDS: &[&str] = &[
        "TIOCSTI-",
        "TIOCLINUX-",
        "TIOCSTI-high-bit-",
        "TIOCLINUX-high-bit-",
        "TIOCSTI-all-high-bits-",
        "TIOCLINUX-all-high-bits-",
    ];
    const ON: &[&str] = &["stdin", "stdout", "pipe", "nothing"];
    const TERMINALS: &[&str] =
        &["tty", "console", "ptmx", "pts/ptmx", "pts/0", "tty0", "tty1", "ttyS0", "vcs", "hvc0"];
    let mut expected = Expected::default()
        .each("TIOCSCTTY-", ON, &["ENOTTY", "EBADF", "EPERM"])
        .all(&["FIONREAD"], OK)
        .each("/dev/", TERMINALS, UNREACHABLE)
        .all(&["terminal"], &["none"])
        .all(&["session"], &["own"])
        .all(&["stdin"], &["other"]);
    for command in COMMANDS {
        expected = expected.each(command, ON, &["EPERM"]);
    }
    expected.hold(answers_told(&target.observe(&Probe::c("terminal"))));
    Ok(())
}

pub fn other_abis(target: &Target) -> Result<(), Unexercised> {
    const DOORS: &[&str] = &[
        "int80",
        "int80-usual-number",
        "sysenter",
        "int80-compatible",
        "sysenter-compatible",
        "syscall-compatible",
        "x32",
        "x32-negative",
        "bit-31",
    ];
    const SHUT: &[&str] = &["SIGSYS", "SIGSEGV", "SIGILL", "SIGTRAP", "SIGKILL", "ENOSYS", "EPERM"];
    const NOT_STARTED: &[&str] = &["SIGSYS", "SIGSEGV", "SIGKILL", "ENOEXEC", "EACCES", "EPERM"];
    let mut expected =
        Expected::default().all(&["usual"], &["executed"]).all(&["program"], NOT_STARTED);
    if cfg!(target_arch = "x86_64") {
        expected = expected
            .all(DOORS, SHUT)
            // These three are calls of the native ABI that the filter allows: they gain nothing.
            .each(
                "vsyscall-",
                &["gettimeofday", "time", "getcpu"],
                &["answered", "SIGSEGV", "SIGSYS"],
            )
            .each("vsyscall-", &["none", "inside"], &["SIGSEGV", "SIGSYS"]);
    }
    expected.hold(answers_told(&target.observe(&Probe::c("other_abis"))));
    Ok(())
}

pub fn personality(target: &Target) -> Result<(), Unexercised> {
    const PERSONAS: &[&str] = &[
        "no-randomize",
        "read-implies-exec",
        "page-zero",
        "compat-layout",
        "3gb",
        "32bit",
        "linux32-no-randomize",
        "sysv",
        "all",
        "no-randomize-high-bit",
        "query-high-bit-no-randomize",
        "no-randomize-for-good",
    ];
    Expected::default()
        .all(&["query"], OK)
        .all(PERSONAS, &["EPERM", "EINVAL", "ENOSYS"])
        .all(&["persona"], &["default"])
        .hold(answers_told(&target.observe(&Probe::c("personality"))));
    Ok(())
}

pub fn own_filters(target: &Target) -> Result<(), Unexercised> {
    // The run's own filter answers EXDEV.
    const NARROWED: &[&str] = &["EXDEV", "EPERM", "ENOSYS", "EINVAL"];
    const NOBODY: &[&str] = &["EPERM", "EINVAL", "ENOSYS"];
    const LISTENERS: &[&str] = &["unused", "all-threads", "killable", "logged", "high-bit"];
    let told = answers_told(&target.observe(&Probe::c("own_filters")));
    let narrows = told.iter().any(|(name, answer)| name == "narrow" && answer == "EXDEV");
    Expected::default()
        .all(&["narrow", "narrow-all-threads"], NARROWED)
        .all(&["listener"], NOBODY)
        .each("listener-", LISTENERS, NOBODY)
        .all(&["unknown-flag", "notify-nobody", "trace-nobody"], NOBODY)
        .all(&["prctl"], &["ok", "EPERM", "EINVAL", "ENOSYS"])
        .all(&["lift"], REFUSED)
        .hold(told);
    if !narrows {
        return Ok(());
    }
    let endless = target.run(&Probe::c("own_filters").arg("refuse-to-end").within("1s"));
    assert_eq!(endless.finished().exit_code, None, "{endless:?}");
    Ok(())
}
