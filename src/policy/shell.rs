//! What a shell is: a program known for running whatever its words or its input say.
//!
//! Interpreters are none, with `-c` or without: who allows `python3` allows what it is for.

use super::program::{Program, last_part};
use cofferdam_core::job::{ErrorCode, JobError};

/// Shells, by the letters their names begin with.
const SHELLS: &[&str] = &[
    "sh",
    "bash",
    "rbash",
    "dash",
    "zsh",
    "rzsh",
    "fish",
    "ksh",
    "rksh",
    "mksh",
    "lksh",
    "pdksh",
    "oksh",
    "loksh",
    "ash",
    "csh",
    "tcsh",
    "yash",
    "posh",
    "sash",
    "osh",
    "ysh",
    "scsh",
    "pwsh",
    "powershell",
    "cmd",
    "elvish",
    "nu",
    "nushell",
    "xonsh",
    "murex",
    "busybox",
    "toybox",
];
/// What may stand between a shell's letters and the end of its name, beside a version.
const VARIANTS: &[&str] = &[
    "exe",
    "bin",
    "real",
    "distrib",
    "static",
    "minimal",
    "full",
    "preview",
    "lts",
    "stable",
    "debug",
    "restricted",
];
/// Programs that are many, by the name they are called by.
const MULTI_CALL: &[&str] = &["busybox", "toybox", "coreutils", "uutils"];
/// Of these, those that are shells by their own names.
const SHELL_BOXES: &[&str] = &["busybox", "toybox"];

/// Why a command is, or may be, a shell's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The word that names the shell, or the wrapper around it.
    pub word: String,
    /// How it comes to one.
    pub how: How,
}

/// How a command comes to a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// It is one.
    IsShell,
    /// It starts one.
    StartsShell,
    /// What it starts cannot be told from its words.
    Untold,
}

/// The error of a job that comes to a shell and is not allowed one.
pub(super) fn denied(found: &Found) -> JobError {
    let (message, reason) = match found.how {
        How::IsShell => ("shells are not allowed by policy", "shell"),
        How::StartsShell => ("a command that starts a shell is not allowed by policy", "wrapper"),
        How::Untold => {
            ("what the command starts cannot be told, so it may be a shell", "wrapper_untold")
        }
    };
    JobError::new(ErrorCode::ShellDenied, message)
        .with("argv0", found.word.as_str())
        .with("reason", reason)
}

/// Whether the program that is called as `word` is a shell.
pub(super) fn is_shell(word: &str, programs: &[Program]) -> bool {
    names(word, programs).any(is_shell_name)
}

/// The names by which a program may be known: what it is called, where it was found, and what
/// file that is. A file that is many programs says nothing of which it is.
pub(super) fn names<'a>(
    word: &'a str,
    programs: &'a [Program],
) -> impl Iterator<Item = &'a str> + Clone {
    let found = programs.iter().map(|program| last_part(&program.path));
    let files = programs.iter().map(|program| last_part(&program.target));
    let files = files.filter(|file| !is_multi_call(file));
    std::iter::once(last_part(word)).chain(found).chain(files)
}

/// Whether the file of that name is many programs.
pub(super) fn is_multi_call(name: &str) -> bool {
    MULTI_CALL.contains(&letters(name).0)
}

fn is_shell_name(name: &str) -> bool {
    // A login shell is told so by a dash before its name.
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let (letters, rest) = letters(&name);
    if SHELL_BOXES.contains(&letters) {
        return true;
    }
    let variant = rest.strip_prefix(['-', '.']).unwrap_or(rest);
    SHELLS.contains(&letters)
        && (rest.is_empty()
            || variant.starts_with(|first: char| first.is_ascii_digit())
            || VARIANTS.contains(&variant))
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
    fn a_shell_is_known_by_its_name_whatever_its_version() {
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
    fn a_link_to_a_shell_is_one_and_a_link_to_a_busybox_is_what_it_is_called() {
        for (word, path, target, expected) in [
            ("foo", "/usr/bin/foo", "/usr/bin/bash", true),
            ("/opt/foo", "/opt/foo", "/usr/bin/dash", true),
            ("sh", "/bin/sh", "/usr/bin/tool", true),
            ("tool", "/bin/zsh", "/usr/bin/tool", true),
            ("ls", "/bin/ls", "/bin/busybox", false),
            ("ls", "/bin/ls", "/bin/busybox.static", false),
            ("sh", "/bin/sh", "/bin/busybox", true),
            ("/bin/ash", "/bin/ash", "/bin/busybox", true),
            ("busybox", "/bin/busybox", "/bin/busybox", true),
            ("box", "/bin/busybox", "/bin/busybox", true),
            ("env", "/bin/env", "/usr/bin/coreutils", false),
            ("python", "/usr/bin/python", "/usr/bin/python3.11", false),
        ] {
            let found = [program(path, target)];
            assert_eq!(is_shell(word, &found), expected, "{word} {path} {target}");
        }
        assert!(is_shell("bash", &[]), "one that is not there");
    }
}
