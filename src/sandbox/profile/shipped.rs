//! What the shipped profiles promise, call by call.

use nix::errno::Errno;

use super::*;
use crate::sandbox::seccomp::interpret::{SeccompData, decide};
use crate::sandbox::seccomp::rules::Action;

/// What the compilers and runtimes of all languages call when building and running small
/// programs, traced on x86_64.
const TRACED: &str = "
    access arch_prctl bind brk capget chdir chmod clock_getres clock_gettime clock_nanosleep clone
    clone3 close close_range connect copy_file_range dup dup2 dup3 epoll_create epoll_create1
    epoll_ctl epoll_pwait epoll_wait eventfd2 execve exit exit_group faccessat2 fadvise64
    fallocate fanotify_init fcntl flock fstat ftruncate futex getcwd getdents64 getegid geteuid
    getgid getpgrp getpid getppid getrandom getrlimit getrusage getsockname getsockopt gettid
    getuid io_uring_enter io_uring_setup ioctl kill listxattr lseek lstat madvise memfd_create
    mkdir mkdirat mmap mprotect mremap munmap nanosleep newfstatat open openat pidfd_open
    pidfd_send_signal pipe2 pkey_alloc pkey_free poll ppoll prctl pread64 preadv prlimit64
    pselect6 pwrite64 pwritev read readlink readlinkat readv recvfrom recvmsg rename renameat2
    restart_syscall rmdir rseq rt_sigaction rt_sigprocmask rt_sigreturn sched_get_priority_max
    sched_get_priority_min sched_getaffinity sched_getparam sched_getscheduler sched_setscheduler
    sched_yield sendmsg set_robust_list set_tid_address setpgid setresgid setresuid setsid
    setsockopt sigaltstack signalfd4 socket socketpair stat statfs statx symlink sysinfo tgkill
    timer_create timer_delete timer_settime timerfd_create timerfd_settime umask uname unlink
    unlinkat utimensat vfork wait4 waitid write writev
";

/// What user code is promised to be refused: the call, its first three arguments, the error.
#[rustfmt::skip]
const REFUSED: &[(&str, [u64; 3], Errno)] = &[
    // Namespaces.
    ("unshare", [0x1000_0000, 0, 0], Errno::EPERM),
    ("unshare", [0, 0, 0], Errno::EPERM),
    ("setns", [3, 0, 0], Errno::EPERM),
    ("clone3", [0x1000, 88, 0], Errno::ENOSYS),
    ("clone", [0x80 | 17, 0, 0], Errno::EPERM),
    ("clone", [0x0002_0000 | 17, 0, 0], Errno::EPERM),
    ("clone", [0x0200_0000 | 17, 0, 0], Errno::EPERM),
    ("clone", [0x0400_0000 | 17, 0, 0], Errno::EPERM),
    ("clone", [0x0800_0000 | 17, 0, 0], Errno::EPERM),
    ("clone", [0x1000_0000 | 17, 0, 0], Errno::EPERM),
    ("clone", [0x2000_0000 | 17, 0, 0], Errno::EPERM),
    ("clone", [0x4000_0000 | 17, 0, 0], Errno::EPERM),
    ("clone", [0xffff_ffff_1000_0011, 0, 0], Errno::EPERM),
    // Mounts and roots.
    ("mount", [0; 3], Errno::EPERM),
    ("umount2", [0; 3], Errno::EPERM),
    ("pivot_root", [0; 3], Errno::EPERM),
    ("chroot", [0; 3], Errno::EPERM),
    ("fsopen", [0; 3], Errno::EPERM),
    ("fsmount", [0; 3], Errno::EPERM),
    ("fsconfig", [0; 3], Errno::EPERM),
    ("fspick", [0; 3], Errno::EPERM),
    ("move_mount", [0; 3], Errno::EPERM),
    ("open_tree", [0; 3], Errno::EPERM),
    ("open_tree_attr", [0; 3], Errno::EPERM),
    ("mount_setattr", [0; 3], Errno::EPERM),
    // Other processes.
    ("ptrace", [0; 3], Errno::EPERM),
    ("process_vm_readv", [1, 0, 0], Errno::EPERM),
    ("process_vm_writev", [1, 0, 0], Errno::EPERM),
    ("process_madvise", [3, 0, 0], Errno::EPERM),
    ("pidfd_getfd", [3, 0, 0], Errno::EPERM),
    ("kcmp", [1, 1, 0], Errno::EPERM),
    // The kernel and the host.
    ("bpf", [0; 3], Errno::EPERM),
    ("perf_event_open", [0; 3], Errno::EPERM),
    ("userfaultfd", [1, 0, 0], Errno::EPERM),
    ("io_uring_setup", [8, 0, 0], Errno::EPERM),
    ("io_uring_enter", [0; 3], Errno::EPERM),
    ("io_uring_register", [0; 3], Errno::EPERM),
    ("keyctl", [0; 3], Errno::ENOSYS),
    ("add_key", [0; 3], Errno::ENOSYS),
    ("request_key", [0; 3], Errno::ENOSYS),
    ("init_module", [0; 3], Errno::EPERM),
    ("finit_module", [0; 3], Errno::EPERM),
    ("delete_module", [0; 3], Errno::EPERM),
    ("kexec_load", [0; 3], Errno::EPERM),
    ("kexec_file_load", [0; 3], Errno::EPERM),
    ("iopl", [3, 0, 0], Errno::EPERM),
    ("ioperm", [0; 3], Errno::EPERM),
    ("acct", [0; 3], Errno::EPERM),
    ("swapon", [0; 3], Errno::EPERM),
    ("swapoff", [0; 3], Errno::EPERM),
    ("reboot", [0xfee1_dead, 0x2812_1969, 0], Errno::EPERM),
    ("quotactl", [0; 3], Errno::EPERM),
    ("quotactl_fd", [0; 3], Errno::EPERM),
    ("name_to_handle_at", [0; 3], Errno::EPERM),
    ("open_by_handle_at", [0; 3], Errno::EPERM),
    ("syslog", [3, 0, 0], Errno::EPERM),
    ("vhangup", [0; 3], Errno::EPERM),
    ("lookup_dcookie", [0; 3], Errno::ENOSYS),
    ("clock_settime", [0; 3], Errno::EPERM),
    ("clock_adjtime", [0; 3], Errno::EPERM),
    ("adjtimex", [0; 3], Errno::EPERM),
    ("settimeofday", [0; 3], Errno::EPERM),
    ("sethostname", [0; 3], Errno::EPERM),
    ("setdomainname", [0; 3], Errno::EPERM),
    ("modify_ldt", [1, 0, 0], Errno::ENOSYS),
    ("uselib", [0; 3], Errno::ENOSYS),
    ("ustat", [0; 3], Errno::ENOSYS),
    ("sysfs", [3, 0, 0], Errno::ENOSYS),
    ("_sysctl", [0; 3], Errno::ENOSYS),
    ("nfsservctl", [0; 3], Errno::ENOSYS),
    ("sync", [0; 3], Errno::ENOSYS),
    ("setxattr", [0; 3], Errno::EOPNOTSUPP),
    // Terminals, with the bits the kernel ignores set and not.
    ("ioctl", [0, 0x5412, 0], Errno::EPERM),
    ("ioctl", [0, 0x541c, 0], Errno::EPERM),
    ("ioctl", [0, 0x1_0000_5412, 0], Errno::EPERM),
    ("ioctl", [0, 0xffff_ffff_0000_541c, 0], Errno::EPERM),
    // Sockets: vsock, alg, packet, bluetooth, can, xdp; raw and packet; netlink.
    ("socket", [40, 1, 0], Errno::EAFNOSUPPORT),
    ("socket", [38, 5, 0], Errno::EAFNOSUPPORT),
    ("socket", [17, 3, 0x300], Errno::EAFNOSUPPORT),
    ("socket", [31, 3, 0], Errno::EAFNOSUPPORT),
    ("socket", [29, 3, 1], Errno::EAFNOSUPPORT),
    ("socket", [44, 3, 0], Errno::EAFNOSUPPORT),
    ("socket", [0xffff_ffff_0000_0028, 1, 0], Errno::EAFNOSUPPORT),
    ("socket", [2, 3, 1], Errno::EPERM),
    ("socket", [10, 3, 58], Errno::EPERM),
    ("socket", [2, 10, 0x300], Errno::EPERM),
    ("socket", [2, 0x8_0803, 255], Errno::EPERM),
    ("socket", [2, 0xffff_0000_0000_0003, 255], Errno::EPERM),
    ("socket", [2, 6, 33], Errno::EPERM),
    ("socket", [2, 1, 132], Errno::EPROTONOSUPPORT),
    ("socket", [16, 3, 4], Errno::EPROTONOSUPPORT),
    ("socket", [16, 3, 9], Errno::EPROTONOSUPPORT),
    ("socketpair", [16, 3, 0], Errno::EAFNOSUPPORT),
    ("socketpair", [2, 1, 0], Errno::EAFNOSUPPORT),
    ("socketpair", [40, 1, 0], Errno::EAFNOSUPPORT),
    // Personalities and filters.
    ("personality", [0x004_0000, 0, 0], Errno::EPERM),
    ("personality", [0x040_0000, 0, 0], Errno::EPERM),
    ("personality", [0x044_0008, 0, 0], Errno::EPERM),
    ("seccomp", [1, 8, 0], Errno::EPERM),
    ("seccomp", [1, 9, 0], Errno::EPERM),
    ("seccomp", [1, 0xffff_ffff_0000_0008, 0], Errno::EPERM),
    ("seccomp", [3, 0, 0], Errno::EPERM),
    // Bits that would outlive the box on a file of a writable bind.
    ("chmod", [0, 0o4755, 0], Errno::EPERM),
    ("fchmod", [0, 0o2755, 0], Errno::EPERM),
    ("fchmod", [0, 0xffff_ffff_0000_0c00, 0], Errno::EPERM),
    ("fchmodat", [0, 0, 0o6755], Errno::EPERM),
    ("fchmodat2", [0, 0, 0o4000], Errno::EPERM),
    ("mknod", [0, 0o10_4755, 0], Errno::EPERM),
    ("mknodat", [0, 0, 0o10_4755], Errno::EPERM),
    ("creat", [0, 0o4755, 0], Errno::EPERM),
    ("open", [0, 0o101, 0o4755], Errno::EPERM),
    ("open", [0, 0o2020_0002, 0o2755], Errno::EPERM),
    ("openat2", [0, 0, 0], Errno::ENOSYS),
    // Device nodes, those that need no privilege too.
    ("mknod", [0, 0o2_0600, 0], Errno::EPERM),
    ("mknod", [0, 0xffff_ffff_0000_6180, 0], Errno::EPERM),
    ("mknodat", [0, 0, 0o2_0600], Errno::EPERM),
    ("mknodat", [0, 0, 0o6_0600], Errno::EPERM),
    // The host's reserved huge pages.
    ("memfd_create", [0, 0x5, 0], Errno::EINVAL),
    ("shmget", [0, 0, 0o5600], Errno::EPERM),
];

/// What has to work beside [`TRACED`]: the call and its first three arguments.
#[rustfmt::skip]
const NEEDED: &[(&str, [u64; 3])] = &[
    ("clone", [17, 0, 0]),
    ("clone", [0x4111, 0, 0]),
    ("clone", [0x003d_0f00, 0, 0]),
    ("clone", [0x0120_0011, 0, 0]),
    ("ioctl", [0, 0x5401, 0]),
    ("ioctl", [0, 0x5413, 0]),
    ("ioctl", [0, 0x5421, 0]),
    ("ioctl", [0, 0x5451, 0]),
    ("socket", [1, 0x8_0001, 0]),
    ("socket", [1, 0x8_0802, 0]),
    ("socket", [1, 5, 0]),
    ("socket", [2, 1, 0]),
    ("socket", [2, 0x8_0801, 6]),
    ("socket", [10, 0x8_0002, 17]),
    ("socket", [16, 0x8_0003, 0]),
    ("socketpair", [1, 0x8_0001, 0]),
    ("personality", [0, 0, 0]),
    ("personality", [0xffff_ffff, 0, 0]),
    ("personality", [8, 0, 0]),
    ("personality", [0x2_0008, 0, 0]),
    ("prctl", [4, 0, 0]),
    ("prctl", [22, 2, 0]),
    ("seccomp", [0, 0, 0]),
    ("seccomp", [1, 1, 0]),
    ("seccomp", [2, 0, 0]),
    ("sched_setscheduler", [0, 0, 0]),
    ("execveat", [0; 3]), ("preadv2", [0; 3]), ("epoll_pwait2", [0; 3]),
    ("fchmodat2", [0, 0, 0o1777]), ("chmod", [0, 0o1777, 0]), ("open", [0, 0, 0o6755]),
    ("membarrier", [0; 3]), ("mlock", [0; 3]), ("splice", [0; 3]),
    ("inotify_init1", [0; 3]), ("eventfd2", [0; 3]), ("fchownat", [0; 3]), ("linkat", [0; 3]),
    ("sendfile", [0; 3]), ("accept4", [0; 3]), ("listen", [0; 3]), ("getxattr", [0; 3]),
    ("shmget", [0; 3]), ("semop", [0; 3]), ("mq_open", [0; 3]), ("setitimer", [0; 3]),
    ("sched_setaffinity", [0; 3]), ("fsync", [0; 3]), ("mknodat", [0; 3]), ("pkey_mprotect", [0; 3]),
    ("mknod", [0, 0o1_0600, 0]), ("mknodat", [0, 0, 0o14_0600]), ("memfd_create", [0, 3, 0]),
    ("shmget", [0, 0, 0o1600]),
];

fn shipped(name: &str, arch: Arch) -> Profile {
    Profile::parse_for(arch, builtin_text(name).unwrap(), |base| {
        builtin_text(base).map(str::to_owned)
    })
    .unwrap()
}

/// What `filter` does with the call, if `arch` has it.
fn answer(filter: &Filter, arch: Arch, call: &str, args: [u64; 3]) -> Option<Action> {
    let [first, second, third] = args;
    answer_to_six(filter, arch, call, [first, second, third, 0, 0, 0])
}

fn answer_to_six(filter: &Filter, arch: Arch, call: &str, args: [u64; 6]) -> Option<Action> {
    let (number, arch) = (arch.number(call)?, arch.audit());
    let data = SeccompData { number, arch, instruction_pointer: 0, args };
    Some(decide(filter, &data).unwrap())
}

#[test]
fn flags_behind_the_third_argument_are_looked_at_too() {
    for (call, at, refused, allowed, errno) in
        [("renameat2", 4, 0x4, 0x3, Errno::EINVAL), ("mmap", 3, 0x4_0022, 0x22, Errno::EPERM)]
    {
        let programs = ["default", "strict-native"];
        for (name, arch) in programs.iter().flat_map(|name| Arch::ALL.map(|arch| (name, arch))) {
            let filter = shipped(name, arch).filter;
            let with = |flags| {
                let mut args = [0; 6];
                args[at] = flags;
                answer_to_six(&filter, arch, call, args)
            };
            assert_eq!(with(refused), Some(Action::Errno(errno)), "{name} {arch:?} {call}");
            assert_eq!(with(allowed), Some(Action::Allow), "{name} {arch:?} {call}");
        }
    }
}

#[test]
fn every_shipped_profile_loads_without_findings_on_every_architecture() {
    for name in Profile::builtin_names() {
        for arch in Arch::ALL {
            let profile = shipped(name, arch);
            assert_eq!((profile.name.as_str(), profile.filter.name.as_str()), (name, name));
            assert!(!profile.description.is_empty());
            assert!(profile.filter.program.len() < 512, "{}", profile.filter.program.len());
        }
    }
}

#[test]
fn the_default_profile_allows_what_every_toolchain_calls() {
    // clone3 and io_uring are promised to be refused, and socket families are in NEEDED.
    let elsewhere = ["clone3", "io_uring_setup", "io_uring_enter", "socket", "socketpair"];
    assert_eq!(TRACED.split_whitespace().count(), 139);
    for arch in Arch::ALL {
        let filter = shipped("default", arch).filter;
        let traced = TRACED.split_whitespace().filter(|call| !elsewhere.contains(call));
        let calls = traced.map(|call| (call, [0; 3])).chain(NEEDED.iter().copied());
        let mut allowed = 0;
        for (call, args) in calls {
            assert!(arch == Arch::Aarch64 || arch.number(call).is_some(), "{call}");
            if let Some(action) = answer(&filter, arch, call, args) {
                assert_eq!(action, Action::Allow, "{arch:?} {call} {args:x?}");
                allowed += 1;
            }
        }
        assert!(allowed > 140, "{arch:?}: only {allowed} calls looked at");
    }
}

#[test]
fn the_default_profile_refuses_what_is_promised_to_be_refused() {
    for arch in Arch::ALL {
        let filter = shipped("default", arch).filter;
        for (call, args, errno) in REFUSED {
            assert!(arch == Arch::Aarch64 || arch.number(call).is_some(), "{call}");
            if let Some(action) = answer(&filter, arch, call, *args) {
                assert_eq!(action, Action::Errno(*errno), "{arch:?} {call} {args:x?}");
            }
        }
    }
}

#[test]
fn no_shipped_profile_allows_anything_that_is_promised_to_be_refused() {
    for name in Profile::builtin_names() {
        for arch in Arch::ALL {
            let filter = shipped(name, arch).filter;
            for (call, args, _) in REFUSED {
                let action = answer(&filter, arch, call, *args);
                assert!(!matches!(action, Some(Action::Allow)), "{name} {arch:?} {call} {args:x?}");
            }
        }
    }
}

#[test]
fn the_strict_profile_allows_nothing_the_default_one_does_not() {
    for arch in Arch::ALL {
        let [strict, default] = ["strict-native", "default"].map(|name| shipped(name, arch).filter);
        let mut allowed = 0;
        for (call, _) in arch.calls() {
            for first in [0, 1, 2, 4, 16, 0x1_0100, 0x003d_0f00, 0x1000_0000] {
                let args = [first, 0x5401, 0];
                if answer(&strict, arch, call, args) == Some(Action::Allow) {
                    assert_eq!(answer(&default, arch, call, args), Some(Action::Allow), "{call}");
                    allowed += usize::from(first == 0);
                }
            }
        }
        assert!((90..140).contains(&allowed), "{arch:?}: {allowed} calls allowed");
    }
}

#[test]
fn the_strict_profile_starts_threads_but_no_process_and_no_socket() {
    let refused = Some(Action::Errno(Errno::EPERM));
    let no_family = Some(Action::Errno(Errno::EAFNOSUPPORT));
    let filter = shipped("strict-native", Arch::X86_64).filter;
    let answer = |call, args| answer(&filter, Arch::X86_64, call, args);
    assert_eq!(answer("clone", [0x003d_0f00, 0, 0]), Some(Action::Allow));
    for flags in [17, 0x4111, 0x0120_0011, 0x103d_0f00, 0x003d_0e00, 0x003c_0f00] {
        assert_eq!(answer("clone", [flags, 0, 0]), refused, "{flags:#x}");
    }
    assert_eq!(answer("vfork", [0; 3]), refused);
    for family in [1, 2, 10, 16, 40] {
        assert_eq!(answer("socket", [family, 1, 0]), no_family);
        assert_eq!(answer("socketpair", [family, 1, 0]), no_family);
    }
    assert_eq!(answer("execve", [0; 3]), Some(Action::Allow));
}

#[test]
fn both_profiles_show_the_same_root() {
    let [default, strict] = ["default", "strict-native"].map(|n| shipped(n, Arch::NATIVE).root);
    assert_eq!(default, strict);
    for path in [
        "/boot",
        "/dev",
        "/home",
        "/lost+found",
        "/media",
        "/mnt",
        "/proc",
        "/root",
        "/run",
        "/srv",
        "/sys",
        "/tmp",
        "/var",
    ] {
        assert!(default.hide.iter().any(|hidden| hidden == path), "{path} is shown");
    }
    assert_eq!(
        default.devices,
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
    );
}
