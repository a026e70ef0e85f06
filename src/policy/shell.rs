//! The rule on shells: a shell or a wrapper needs `policy.allow_shell`.
//!
//! A wrapper is a program that starts the command in its arguments. An interpreter does not count as
//! a shell, even with `-c`: a policy that allows `python3` allows it to run code.

use super::program::{ResolvedProgram, basename};
use cofferdam_core::job::{ErrorCode, JobError};

/// The letters with which the names of shells begin.
const SHELLS: &str = "sh bash rbash dash zsh rzsh fish ksh rksh mksh lksh pdksh oksh loksh ash csh \
    tcsh yash posh sash osh ysh scsh pwsh powershell cmd elvish nu nushell xonsh murex busybox \
    toybox";
/// What may follow the letters of a shell's name, besides a version.
const VARIANTS: &str =
    "exe bin real distrib static minimal full preview lts stable debug restricted";
/// The whole names of wrappers. GNU's may have the prefix `g` or `gnu`.
pub(super) const WRAPPERS: &str = "env xargs find fd fdfind nohup eatmydata chronic catchsegv \
    timeout nice ionice chrt taskset setsid stdbuf setpriv unshare nsenter chroot capsh prlimit \
    choom numactl cgexec uclampset softlimit chpst cpulimit s6-setuidgid s6-softlimit sudo sudo-rs \
    sudo.ws sudoedit su su-rs doas pkexec runuser run0 gosu su-exec setuidgid setuser sg newgrp \
    login flock watch entr time strace ltrace gdb valgrind perf tini tini-static catatonit \
    dumb-init start-stop-daemon daemonize run-parts systemd-run at batch unbuffer script \
    scriptlive expect rlwrap screen tmux xterm xvfb-run dbus-run-session parallel sem pee ifne \
    socat ssh ssh-agent faketime fakeroot fakechroot proot bwrap firejail torsocks proxychains \
    proxychains4 cofferdam setarch linux32 linux64 uname26 i386 i486 i586 i686 x86_64 ppc ppc32 \
    ppc64 ppc64le s390 s390x sparc sparc32 sparc64 mips mips32 mips64 arm armv7l aarch64 riscv64";
/// Multi-call programs: one file that is the program whose name it is called by.
const MULTI_CALL: &[&str] = &["busybox", "toybox", "coreutils", "uutils"];
/// Multi-call programs that are shells themselves, whatever follows their name.
const MULTI_CALL_SHELLS: &[&str] = &["busybox", "toybox"];

/// Refuses a shell or a wrapper, called as `word`.
pub(super) fn check(word: &str, program: Option<&ResolvedProgram>) -> Result<(), JobError> {
    let mut names = names(word, program);
    let (message, reason) = if names.clone().any(is_shell_name) {
        ("shells are not allowed by policy", "shell")
    } else if names.any(is_wrapper_name) {
        let message =
            "programs that start other commands count as shells, which are not allowed by policy";
        (message, "wrapper")
    } else {
        return Ok(());
    };
    let error = JobError::new(ErrorCode::ShellDenied, message);
    Err(error.with("argv0", word).with("reason", reason))
}

/// The names that count: what the program is called, its path, and the target of its links. The
/// file name of a multi-call program does not say which program it is.
fn names<'a>(
    word: &'a str,
    program: Option<&'a ResolvedProgram>,
) -> impl Iterator<Item = &'a str> + Clone {
    let found = program.map(|program| basename(&program.path));
    let file = program.map(|program| basename(&program.target));
    let file = file.filter(|file| !is_multi_call(file));
    std::iter::once(basename(word)).chain(found).chain(file)
}

/// Whether a file of that name is a multi-call program.
pub(super) fn is_multi_call(name: &str) -> bool {
    MULTI_CALL.contains(&letters(name).0)
}

fn is_shell_name(name: &str) -> bool {
    // A login shell is called with a dash before its name.
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let (letters, rest) = letters(&name);
    if MULTI_CALL_SHELLS.iter().any(|shell| name.starts_with(shell)) {
        return true;
    }
    let variant = rest.strip_prefix(['-', '.']).unwrap_or(rest);
    lists(SHELLS, letters)
        && (rest.is_empty()
            || variant.starts_with(|first: char| first.is_ascii_digit())
            || lists(VARIANTS, variant))
}

fn is_wrapper_name(name: &str) -> bool {
    let is_loader = name.starts_with("ld") && name.contains(".so");
    let unprefixed = [name.strip_prefix('g'), name.strip_prefix("gnu")];
    is_loader
        || is_multi_call(name)
        || lists(WRAPPERS, name)
        || unprefixed.into_iter().flatten().any(|name| lists(WRAPPERS, name))
}

/// Whether `name` is one of the words of `list`.
fn lists(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|listed| listed == name)
}

fn letters(name: &str) -> (&str, &str) {
    let end = name.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(name.len());
    name.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::program;

    #[test]
    fn a_shell_is_recognized_by_its_name_with_any_version() {
        for name in [
            "sh",
            "bash",
            "dash",
            "zsh",
            "fish",
            "ksh",
            "mksh",
            "ash",
            "csh",
            "tcsh",
            "busybox",
            "pwsh",
            "powershell",
            "cmd",
            "elvish",
            "nu",
            "xonsh",
            "ksh93",
            "ksh93u+m",
            "bash5",
            "mksh-static",
            "bash-5.2",
            "zsh-5.9",
            "cmd.exe",
            "CMD.EXE",
            "pwsh-preview",
            "-bash",
            "busybox.static",
            "busybox-extras",
            "toybox",
            "rbash",
            "bash.real",
        ] {
            assert!(is_shell_name(name), "{name}");
        }
        for name in [
            "python3",
            "node",
            "show",
            "shred",
            "push",
            "hash",
            "cmd.py",
            "nu-lint",
            "fish_indent",
            "sh.py",
            "bashful",
            "numpy",
            "env",
            "coreutils",
            "",
            "git-sh-setup",
            "ssh",
        ] {
            assert!(!is_shell_name(name), "{name}");
        }
    }

    #[test]
    fn a_wrapper_is_recognized_by_its_whole_name() {
        for name in [
            "env",
            "genv",
            "gnuenv",
            "find",
            "gfind",
            "sudo.ws",
            "x86_64",
            "coreutils",
            "uutils",
            "ld.so",
            "ld.so.1",
            "ld-linux.so.2",
            "ld-linux-x86-64.so.2",
            "ld-musl-x86_64.so.1",
            "ld-linux-aarch64.so.1",
            "ld-2.31.so",
            "ld64.so.2",
        ] {
            assert!(is_wrapper_name(name), "{name}");
        }
        for name in ["python3", "ls", "printenv", "ldd", "libc.so.6", "ggenv", "envy", "go", ""] {
            assert!(!is_wrapper_name(name), "{name}");
        }
    }

    #[test]
    fn a_name_is_listed_once() {
        for list in [SHELLS, VARIANTS, WRAPPERS] {
            let mut seen = std::collections::BTreeSet::new();
            assert!(list.split_ascii_whitespace().all(|name| seen.insert(name)), "{list}");
        }
    }

    #[test]
    fn a_link_counts_as_its_target_unless_that_is_a_multi_call_program() {
        let reason = |word: &str, program: Option<&ResolvedProgram>| {
            check(word, program).err().map(|error| error.details["reason"].clone())
        };
        for (word, path, target, expected) in [
            ("foo", "/usr/bin/foo", "/usr/bin/bash", Some("shell")),
            ("/opt/foo", "/opt/foo", "/usr/bin/dash", Some("shell")),
            ("sh", "/bin/sh", "/usr/bin/tool", Some("shell")),
            ("tool", "/bin/zsh", "/usr/bin/tool", Some("shell")),
            ("ls", "/bin/ls", "/bin/busybox", None),
            ("ls", "/bin/ls", "/bin/busybox.static", None),
            ("sh", "/bin/sh", "/bin/busybox", Some("shell")),
            ("/bin/ash", "/bin/ash", "/bin/busybox", Some("shell")),
            ("busybox", "/bin/busybox", "/bin/busybox", Some("shell")),
            ("box", "/bin/busybox", "/bin/busybox", Some("shell")),
            ("busyboxes", "/bin/busyboxes", "/bin/busyboxes", Some("shell")),
            ("ls", "/bin/ls", "/bin/coreutils", None),
            ("env", "/bin/env", "/usr/bin/coreutils", Some("wrapper")),
            ("wrap", "/bin/wrap", "/usr/bin/env", Some("wrapper")),
            ("wrap", "/bin/timeout", "/usr/bin/tool", Some("wrapper")),
            ("loader", "/opt/loader", "/lib/ld-linux.so.2", Some("wrapper")),
            ("python", "/usr/bin/python", "/usr/bin/python3.11", None),
        ] {
            let found = program(path, target);
            let expected = expected.map(serde_json::Value::from);
            assert_eq!(reason(word, Some(&found)), expected, "{word} {path} {target}");
        }
        assert_eq!(reason("bash", None), Some("shell".into()), "a shell that does not exist");
        assert_eq!(reason("env", None), Some("wrapper".into()), "a wrapper that does not exist");
    }
}
