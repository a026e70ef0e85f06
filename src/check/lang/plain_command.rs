//! Commands that need no shell: `make` starts none for them either.

/// Builtins and keywords of shells. A program of the same name may behave differently.
const SHELL_WORDS: [&str; 84] = [
    "!",
    ".",
    ":",
    "[",
    "[[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "chdir",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "login",
    "logout",
    "mapfile",
    "newgrp",
    "popd",
    "print",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];

/// The words of `command`, if it is a program name with arguments and without characters that are
/// special to a shell. A leading `exec` is ignored.
pub fn plain_words(command: &str) -> Option<Vec<&str>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" \t%+,-./:=@_".contains(&byte);
    if !command.bytes().all(is_plain) {
        return None;
    }
    let mut words: Vec<&str> = command.split_ascii_whitespace().collect();
    if words.first() == Some(&"exec") {
        words.remove(0);
    }
    let program = words.first()?;
    // An assignment, or an option of `exec`.
    let is_other = program.contains('=') || program.starts_with('-');
    (!is_other && !SHELL_WORDS.contains(program)).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_every_shell_leaves_as_it_is_is_plain() {
        for (command, words) in [
            ("python3 -B checker.py", Some(&["python3", "-B", "checker.py"][..])),
            ("\t./run.sh  a:b=c,d\t50%", Some(&["./run.sh", "a:b=c,d", "50%"])),
            (
                "exec dart --packages=x lib/checker.dart",
                Some(&["dart", "--packages=x", "lib/checker.dart"]),
            ),
            ("", None),
            ("exec", None),
            ("exec -a name program", None),
            ("VARIABLE=1 program", None),
            (":", None),
            ("true", None),
            ("cd x", None),
            ("exec exec program", None),
            ("a\nb", None),
            ("a | b", None),
            ("a >b", None),
            ("a; b", None),
            ("a && b", None),
            ("a $b", None),
            ("a `b`", None),
            ("a 'b'", None),
            ("a \"b\"", None),
            ("a \\b", None),
            ("a *", None),
            ("a ?", None),
            ("a [b]", None),
            ("a {b,c}", None),
            ("a ~", None),
            ("a !b", None),
            ("a #b", None),
            ("a ^b", None),
            ("a (b)", None),
            ("a é", None),
            ("a \r", None),
            ("a \u{b}b", None),
        ] {
            assert_eq!(plain_words(command).as_deref(), words, "{command:?}");
        }
    }

    #[test]
    fn the_words_of_shells_are_in_order_and_each_once() {
        assert!(SHELL_WORDS.is_sorted_by(|a, b| a < b));
    }
}
