//! Programs that start the command among their own words: one row each.
//!
//! An option that is not in a row makes what is started untold. So a row has those only after
//! which the command is what it seems, and none by which the program takes another root, a
//! variable's value from elsewhere, another argv[0], or a second command.

/// A program that starts another, and how it reads its words.
#[derive(Debug)]
pub(super) struct Wrapper {
    /// What it is called.
    pub names: &'static [&'static str],
    /// Its options of one letter, as for getopt(3): `:` after one with a value, `::` where the
    /// value can only be in the same word. `#` stands for a number as an option, a leading `-` for
    /// a dash alone.
    pub short: &'static str,
    /// Its options of a word, `=` after one with a value.
    pub long: &'static str,
    /// Those that mean something for the command.
    pub means: &'static [(&'static str, Means)],
    /// What comes before the command.
    pub operands: &'static [Operand],
    /// What it does with the command.
    pub then: Then,
    /// What it does without one.
    pub without: Without,
    /// Whether words with `=` before the command set variables.
    pub assigns: bool,
    /// Whether it adds words of its input to the command.
    pub appends: bool,
    /// Whether it looks for bare names elsewhere than in PATH.
    pub elsewhere: bool,
}

/// What an option means for the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    /// It starts in another directory.
    Moves,
    /// The value is more words of the wrapper's own.
    Splits,
    /// The value (`{}` where there is none) in a word stands for something else.
    Replaces,
    /// It is started without a shell.
    Direct,
}

/// A word before the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// Any; it is always there.
    Any,
    /// A number; what is none may be the command.
    Number,
    /// A machine's name; what is none may be the command.
    Machine,
}

/// What a wrapper does with the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Starts it.
    Starts,
    /// Gives it to a shell, but for [`Means::Direct`].
    Shell,
    /// Something in which it cannot be found, or be found to be that program.
    Untold,
    /// Starts those behind each `-exec`.
    Exec,
    /// It is the program of that name itself.
    Becomes,
}

/// What a wrapper does without a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Without {
    /// Starts nothing.
    Nothing,
    /// Starts a shell.
    Shell,
    /// Starts that program.
    Command(&'static str),
}

/// Starts what follows; has no options.
const PLAIN: Wrapper = Wrapper {
    names: &[],
    short: "",
    long: "",
    means: &[],
    operands: &[],
    then: Then::Starts,
    without: Without::Nothing,
    assigns: false,
    appends: false,
    elsewhere: false,
};

/// Names of machines that setarch(8) takes before everything else, and is called by.
pub(super) const MACHINES: &[&str] = &[
    "linux32", "linux64", "uname26", "i386", "i486", "i586", "i686", "x86_64", "ppc", "ppc32",
    "ppc64", "ppc64le", "s390", "s390x", "sparc", "sparc32", "sparc64", "mips", "mips32", "mips64",
    "arm", "armv7l", "aarch64", "riscv64",
];

const SETARCH: Wrapper = Wrapper {
    short: "vRFZLXBIS3",
    long: "verbose addr-no-randomize fdpic-funcptrs mmap-page-zero addr-compat-layout read-implies-exec 32bit short-inode whole-seconds 3gb 4gb uname-2.6",
    without: Without::Shell,
    ..PLAIN
};

/// The loader of dynamic programs, whatever its version. It looks for bare names among libraries.
pub(super) const LOADER: Wrapper =
    Wrapper { names: &["ld.so"], long: "list verify inhibit-cache", elsewhere: true, ..PLAIN };

/// Every other one.
pub(super) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        names: &["env"],
        short: "-iv0u:C:S:",
        long: "ignore-environment null debug unset= chdir= split-string= default-signal ignore-signal block-signal list-signal-handling",
        means: &[
            ("C", Means::Moves),
            ("chdir", Means::Moves),
            ("S", Means::Splits),
            ("split-string", Means::Splits),
        ],
        assigns: true,
        ..PLAIN
    },
    Wrapper {
        names: &["xargs"],
        short: "0rtxopE:I:L:n:P:s:d:a:e::i::l::",
        long: "null no-run-if-empty verbose exit open-tty interactive show-limits eof replace max-lines arg-file= delimiter= max-args= max-procs= max-chars=",
        means: &[("I", Means::Replaces), ("i", Means::Replaces), ("replace", Means::Replaces)],
        without: Without::Command("echo"),
        appends: true,
        ..PLAIN
    },
    Wrapper { names: &["find"], then: Then::Exec, ..PLAIN },
    Wrapper { names: &["nohup", "eatmydata", "chronic", "catchsegv"], ..PLAIN },
    Wrapper {
        names: &["timeout"],
        short: "fpvk:s:",
        long: "foreground preserve-status verbose kill-after= signal=",
        operands: &[Operand::Any],
        ..PLAIN
    },
    Wrapper { names: &["nice"], short: "#n:", long: "adjustment=", ..PLAIN },
    Wrapper { names: &["ionice"], short: "tc:n:", long: "ignore class= classdata=", ..PLAIN },
    Wrapper {
        names: &["chrt"],
        short: "abdefiorRvT:P:D:",
        long: "all-tasks batch deadline ext fifo idle other rr reset-on-fork verbose sched-runtime= sched-period= sched-deadline=",
        operands: &[Operand::Number],
        ..PLAIN
    },
    Wrapper {
        names: &["taskset"],
        short: "ac",
        long: "all-tasks cpu-list",
        operands: &[Operand::Any],
        ..PLAIN
    },
    Wrapper { names: &["setsid"], short: "cfw", long: "ctty fork wait", ..PLAIN },
    Wrapper { names: &["stdbuf"], short: "i:o:e:", long: "input= output= error=", ..PLAIN },
    Wrapper {
        names: &["setpriv"],
        long: "clear-groups keep-groups init-groups no-new-privs reset-env ambient-caps= inh-caps= bounding-set= ruid= euid= reuid= rgid= egid= regid= groups= securebits= pdeathsig= ptracer= selinux-label= apparmor-profile= landlock-access= landlock-rule= seccomp-filter=",
        ..PLAIN
    },
    Wrapper {
        names: &["unshare"],
        short: "muinpUCTfrc",
        long: "mount uts ipc net pid user cgroup time fork map-root-user map-current-user map-auto keep-caps kill-child mount-proc propagation= setgroups= map-user= map-group= map-users= map-groups= monotonic= boottime=",
        without: Without::Shell,
        ..PLAIN
    },
    Wrapper {
        names: &["sudo", "sudo-rs", "sudo.ws"],
        short: "AbBEHknNPSu:g:p:C:T:",
        long: "askpass background bell preserve-env set-home reset-timestamp no-update non-interactive preserve-groups stdin user= group= prompt= close-from= command-timeout=",
        assigns: true,
        ..PLAIN
    },
    Wrapper { names: &["doas"], short: "nu:", ..PLAIN },
    Wrapper { names: &["pkexec"], long: "keep-cwd user=", without: Without::Shell, ..PLAIN },
    Wrapper {
        names: &["runuser"],
        short: "u:g:G:mp",
        long: "user= group= supp-group= preserve-environment",
        means: &[("u", Means::Direct), ("user", Means::Direct)],
        then: Then::Shell,
        without: Without::Shell,
        ..PLAIN
    },
    Wrapper {
        names: &["gosu", "su-exec", "setuidgid", "setuser"],
        operands: &[Operand::Any],
        ..PLAIN
    },
    Wrapper {
        names: &["flock"],
        short: "esxunoFw:E:",
        long: "exclusive shared unlock nonblock nonblocking close no-fork verbose wait= timeout= conflict-exit-code=",
        operands: &[Operand::Any],
        ..PLAIN
    },
    Wrapper {
        names: &["watch"],
        short: "bcCegprtwxd::n:q:",
        long: "beep color no-color errexit chgexit precise no-rerun no-title no-wrap exec differences interval= equexit=",
        means: &[("x", Means::Direct), ("exec", Means::Direct)],
        then: Then::Shell,
        ..PLAIN
    },
    Wrapper {
        names: &["strace"],
        short: "cCdDfFiknqrtTvVwxyYzZa:b:e:I:O:P:s:S:U:X:",
        long: "follow-forks summary-only summary trace= status= quiet relative-timestamps syscall-times string-limit= no-abbrev",
        ..PLAIN
    },
    Wrapper { names: &["ltrace"], short: "cCfirStTo:a:A:e:n:s:x:", ..PLAIN },
    Wrapper {
        names: &["time"],
        short: "apqvf:o:",
        long: "append portability quiet verbose format= output=",
        ..PLAIN
    },
    Wrapper { names: &["prlimit"], short: "v", long: "verbose", ..PLAIN },
    Wrapper { names: &["choom"], short: "n:", long: "adjust=", ..PLAIN },
    Wrapper {
        names: &["numactl"],
        short: "N:m:i:C:p:l",
        long: "cpunodebind= membind= interleave= physcpubind= preferred= localalloc",
        ..PLAIN
    },
    Wrapper { names: &["cgexec"], short: "g:", long: "sticky", ..PLAIN },
    Wrapper { names: &["tini", "tini-static", "catatonit"], short: "svgwe:p:", ..PLAIN },
    Wrapper {
        names: &["dumb-init"],
        short: "cvr:",
        long: "single-child verbose rewrite=",
        ..PLAIN
    },
    Wrapper { names: &["unbuffer"], short: "p", ..PLAIN },
    Wrapper { names: &["setarch"], operands: &[Operand::Machine], ..SETARCH },
    Wrapper { names: MACHINES, ..SETARCH },
    Wrapper { names: &["busybox", "toybox", "coreutils"], then: Then::Becomes, ..PLAIN },
    Wrapper {
        names: &[
            "su",
            "su-rs",
            "script",
            "parallel",
            "sem",
            "sg",
            "newgrp",
            "login",
            "sudoedit",
            "at",
            "batch",
            "screen",
            "tmux",
            "ssh",
            "xvfb-run",
            "fakeroot",
            "fakechroot",
            "expect",
            "rlwrap",
            "xterm",
        ],
        then: Then::Shell,
        without: Without::Shell,
        ..PLAIN
    },
    Wrapper {
        names: &[
            "chroot",
            "nsenter",
            "systemd-run",
            "run0",
            "start-stop-daemon",
            "daemonize",
            "run-parts",
            "capsh",
            "bwrap",
            "firejail",
            "proot",
            "gdb",
            "valgrind",
            "perf",
            "socat",
            "entr",
            "cpulimit",
            "faketime",
            "torsocks",
            "proxychains",
            "proxychains4",
            "scriptlive",
            "dbus-run-session",
            "ssh-agent",
            "fd",
            "fdfind",
            "pee",
            "ifne",
            "uclampset",
            "softlimit",
            "chpst",
            "s6-setuidgid",
            "s6-softlimit",
            "cofferdam",
        ],
        then: Then::Untold,
        ..PLAIN
    },
];

/// The row of the wrapper that is called `name`, also with the `g` or `gnu` that marks GNU's.
pub(super) fn wrapper(name: &str) -> Option<&'static Wrapper> {
    let row = |name: &str| WRAPPERS.iter().find(|row| row.names.contains(&name));
    if name.starts_with("ld") && name.contains(".so") {
        return Some(&LOADER);
    }
    // A busybox is one under all its names.
    let of_many = ["busybox", "toybox"].into_iter().find(|many| name.starts_with(many));
    row(of_many.unwrap_or(name))
        .or_else(|| row(name.strip_prefix("gnu")?))
        .or_else(|| row(name.strip_prefix('g')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_is_known_whatever_its_version() {
        for name in [
            "ld.so",
            "ld.so.1",
            "ld-linux.so.2",
            "ld-linux-x86-64.so.2",
            "ld-musl-x86_64.so.1",
            "ld-linux-aarch64.so.1",
            "ld-2.31.so",
            "ld64.so.2",
        ] {
            assert_eq!(wrapper(name).map(|row| row.names), Some(LOADER.names), "{name}");
        }
        assert!(wrapper("ldd").is_none() && wrapper("libc.so.6").is_none());
    }

    #[test]
    fn a_name_is_in_one_row_and_what_an_option_means_is_of_an_option() {
        let mut seen = std::collections::BTreeSet::new();
        for row in WRAPPERS {
            assert!(row.names.iter().all(|name| seen.insert(*name)), "{:?}", row.names);
            for (option, _) in row.means {
                let long = row.long.split(' ').map(|long| long.trim_end_matches('='));
                let short = option.len() == 1 && row.short.contains(option);
                assert!(short || long.into_iter().any(|long| long == *option), "{option}");
            }
        }
    }
}
