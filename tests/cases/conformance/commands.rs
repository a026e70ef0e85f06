//! What a command gets: its words, its directory, its variables, its stdin, its output.

use serde_json::json;

use super::{Row, error, exited, run_rows};

pub fn rows() -> Vec<Row> {
    let mut rows = words();
    rows.extend(directories());
    rows.extend(variables());
    rows.extend(streams());
    rows
}

fn words() -> Vec<Row> {
    let literal = ["printf", "%s|", "a b", "$HOME", "*", ""];
    vec![
        Row::new("words are literal", &literal, |_| {}, exited(0, "a b|$HOME|*||")),
        Row::new(
            "a shell gets the words joined with spaces",
            &["echo", "a  b", "$LANG"],
            |request| request.shell = true,
            json!({"shell": true, "argv": ["echo", "a  b", "$LANG"], "stdout": {"text": "a b C.UTF-8\n"}}),
        ),
        Row::new(
            "a script runs by its first line",
            &["./script", "x y"],
            |_| {},
            exited(0, "script x y\n"),
        ),
        Row::new("without words nothing runs", &[], |_| {}, error("invalid_argv")).by_library(),
        Row::new("a NUL is refused", &["echo", "a\0b"], |_| {}, error("invalid_argv")).by_library(),
        Row::new(
            "a word that is too long is refused",
            &["true", &"x".repeat(128 << 10)],
            |_| {},
            error("invalid_argv"),
        )
        .by_library(),
    ]
}

fn directories() -> Vec<Row> {
    let cat = ["cat", "inner"];
    let at =
        |cwd: &'static str| move |request: &mut super::ExecRequest| request.cwd = Some(cwd.into());
    vec![
        Row::new(
            "a command runs in the sandbox",
            &["cat", "kept.txt"],
            |_| {},
            json!({"cwd": ".", "stdout": {"text": "kept\n"}}),
        ),
        Row::new(
            "cwd is relative to the sandbox",
            &cat,
            at("dir"),
            json!({"cwd": "dir", "stdout": {"text": "inner\n"}}),
        ),
        Row::new("cwd is normalised", &cat, at("./dir/../dir/"), exited(0, "inner\n")),
        Row::new(
            "cwd may be the environment",
            &["sh", "-c", "basename \"$PWD\""],
            at("../env"),
            exited(0, "env\n"),
        ),
        Row::new(
            "a cwd that is missing is refused",
            &["true"],
            at("no-such"),
            error("invalid_cwd"),
        ),
        Row::new("a cwd that is a file is refused", &["true"], at("plain"), error("invalid_cwd")),
        Row::new("a cwd above the Cell is refused", &["true"], at("../.."), error("invalid_cwd")),
        Row::new("a cwd outside the Cell is refused", &["true"], at("/etc"), error("invalid_cwd")),
        Row::of_shell(
            "a copy of the source lacks .git, caches, .venv and node_modules",
            "find . ! -type d | LC_ALL=C sort | tr '\\n' ' '",
            exited(0, "./dir/inner ./kept.txt ./link ./no-interpreter ./plain ./script "),
        ),
    ]
}

fn variables() -> Vec<Row> {
    let names = "env | cut -d= -f1 | LC_ALL=C sort | tr '\\n' ' '";
    let set = |name: &'static str, value: Option<&'static str>| {
        move |request: &mut super::ExecRequest| {
            request.env = [(name.to_owned(), value.map(Into::into))].into();
        }
    };
    vec![
        Row::new(
            "variables are those of the contract and none of ours",
            &[
                "env",
                "sh",
                "-c",
                "env | cut -d= -f1 | grep -vxE 'PWD|OLDPWD|SHLVL|_' | LC_ALL=C sort | tr '\\n' ' '",
            ],
            |_| {},
            exited(0, "HOME LANG PATH TMPDIR "),
        ),
        Row::new(
            "a variable is set",
            &["sh", "-c", "echo \"$A\""],
            set("A", Some("b  c")),
            exited(0, "b  c\n"),
        ),
        Row::new(
            "a variable is replaced",
            &["sh", "-c", "echo $LANG"],
            set("LANG", Some("C")),
            exited(0, "C\n"),
        ),
        Row::new(
            "a variable is removed by null",
            &["sh", "-c", &format!("{names} | grep -c LANG")],
            set("LANG", None),
            exited(1, "0\n"),
        )
        .by_library(),
        Row::new(
            "a variable without a name is refused",
            &["true"],
            set("", Some("a")),
            error("invalid_env"),
        )
        .by_library(),
        Row::new(
            "a variable with = in its name is refused",
            &["true"],
            set("A=B", Some("a")),
            error("invalid_env"),
        )
        .by_library(),
        Row::of_shell(
            "HOME and TMPDIR can be written",
            "touch \"$HOME/a\" \"$TMPDIR/b\" && echo done",
            exited(0, "done\n"),
        ),
    ]
}

fn streams() -> Vec<Row> {
    let stdin = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        move |request: &mut super::ExecRequest| request.stdin = bytes
    };
    let megabytes = "head -c 3145728 /dev/zero | tr '\\0' x";
    let cut = json!({"bytes": 3_145_728, "truncated": true, "text": "x".repeat(1 << 20)});
    vec![
        Row::new("stdin is empty by default", &["cat"], |_| {}, exited(0, "")),
        Row::new(
            "stdin arrives whole",
            &["wc", "-c"],
            stdin(&vec![b'x'; 1 << 20]),
            exited(0, "1048576\n"),
        )
        .by_library(),
        Row::new("stdin need not be read", &["true"], stdin(&vec![b'x'; 1 << 20]), exited(0, ""))
            .by_library(),
        Row::of_shell(
            "stdout and stderr are told apart",
            "echo out; echo err >&2",
            json!({"stdout": {"text": "out\n", "bytes": 4, "truncated": false}, "stderr": {"text": "err\n"}}),
        ),
        Row::of_shell(
            "output that is not UTF-8 is kept",
            "printf '\\377\\376'",
            json!({"outcome": "exited", "exit_code": 0, "stdout": {"text": "//4=", "encoding": "base64", "bytes": 2}}),
        ),
        Row::of_shell(
            "3 MB of stdout are counted, and what is beyond the limit dropped",
            megabytes,
            json!({"exit_code": 0, "limit": null, "stdout": cut.clone()}),
        ),
        Row::of_shell(
            "3 MB of stderr are counted, and what is beyond the limit dropped",
            &format!("({megabytes}) >&2"),
            json!({"exit_code": 0, "limit": null, "stderr": cut}),
        ),
    ]
}

#[test]
fn every_executor_gives_a_command_what_its_request_says() {
    run_rows(&rows());
}
