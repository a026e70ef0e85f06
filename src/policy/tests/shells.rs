//! Shells and wrappers, as part of a whole decision.

use serde_json::{Value, json};

use crate::policy::shell::WRAPPERS;
use crate::policy::testing::{outcome_of, request, verdict};

/// An allow-list of every wrapper, some programs and some shells.
fn everything() -> Value {
    let mut commands: Vec<Value> = WRAPPERS.split_ascii_whitespace().map(Value::from).collect();
    let named = ["python3", "echo", "ls", "wrap", "tac", "genv", "gnuenv", "coreutils"];
    let shells = ["sh", "bash", "dash", "ash", "foo", "ksh93", "busybox"];
    commands.extend(named.into_iter().chain(shells).map(Value::from));
    for path in ["/lib64/ld-linux-x86-64.so.2", "/workspace/tool", "/workspace/env"] {
        commands.push(json!({ "path": path }));
    }
    Value::Array(commands)
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn code(line: &str, allow_shell: bool) -> &'static str {
    let mut request = request(&words(line), &everything());
    request.policy.allow_shell = allow_shell;
    verdict(&outcome_of(&request))
}

#[test]
fn a_shell_needs_allow_shell() {
    for line in [
        "bash -c x",
        "sh",
        "/bin/sh",
        "/usr/bin/bash",
        "foo",
        "/usr/local/bin/foo",
        "ash",
        "ksh93",
        "busybox",
        "busybox ls",
        "busybox sh",
    ] {
        assert_eq!(code(line, false), "policy.shell_denied", "{line}");
        assert_eq!(code(line, true), "allowed", "{line}");
    }
}

#[test]
fn a_wrapper_needs_allow_shell_whatever_it_starts() {
    for line in [
        "env",
        "env A=1",
        "env python3 main.py",
        "env sh -c x",
        "env -S bash",
        "/usr/bin/env python3",
        "/bin/env bash",
        "./env python3",
        "wrap python3",
        "genv python3",
        "gnuenv python3",
        "timeout 5 python3",
        "timeout 5 sh",
        "nice -n 5 env sh",
        "nohup python3",
        "setsid -w python3",
        "stdbuf -oL python3",
        "sudo -n python3",
        "su -c ls",
        "xargs",
        "xargs sh -c",
        "find . -name x",
        "find . -exec sh -c x ;",
        "watch ls",
        "flock f -c ls",
        "setarch x86_64 sh",
        "linux32 python3",
        "coreutils ls",
        "coreutils env sh",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/python3",
        "start-stop-daemon -S -x /bin/sh",
    ] {
        assert_eq!(code(line, false), "policy.shell_denied", "{line}");
        assert_eq!(code(line, true), "allowed", "{line}");
    }
    for wrapper in WRAPPERS.split_ascii_whitespace() {
        assert_eq!(code(wrapper, false), "policy.shell_denied", "{wrapper}");
        assert_eq!(code(&format!("/bin/{wrapper} sh"), false), "policy.shell_denied", "{wrapper}");
    }
}

#[test]
fn a_program_whose_arguments_name_a_shell_or_a_wrapper_needs_no_allow_shell() {
    for line in ["tac bash", "echo env sh", "python3 -c bash", "ls sh", "./tool sh"] {
        assert_eq!(code(line, false), "allowed", "{line}");
    }
}

#[test]
fn the_allow_list_applies_to_a_wrapper_as_to_a_shell() {
    let wrong = json!({"basename": "env", "sha256": "0".repeat(64)});
    for (line, commands, without, with) in [
        ("bash -c x", json!(["bash"]), "policy.shell_denied", "allowed"),
        ("bash -c x", json!(["env"]), "policy.command_denied", "policy.command_denied"),
        ("env bash", json!(["env"]), "policy.shell_denied", "allowed"),
        ("env bash", json!(["bash"]), "policy.command_denied", "policy.command_denied"),
        ("env python3", json!([wrong]), "policy.command_denied", "policy.command_denied"),
        ("./env python3", json!(["env"]), "policy.command_denied", "policy.command_denied"),
        ("timeout 5 node", json!(["node"]), "policy.command_denied", "policy.command_denied"),
        ("busybox ls", json!(["ls"]), "policy.command_denied", "policy.command_denied"),
        ("su -c x", json!([]), "policy.command_denied", "policy.command_denied"),
    ] {
        let mut request = request(&words(line), &commands);
        assert_eq!(verdict(&outcome_of(&request)), without, "{line} {commands}");
        request.policy.allow_shell = true;
        assert_eq!(verdict(&outcome_of(&request)), with, "{line} {commands}");
    }
}

#[test]
fn the_error_names_the_command_and_the_reason() {
    for (line, argv0, reason, message) in [
        ("bash", "bash", "shell", "shells are not allowed by policy"),
        ("foo -c x", "foo", "shell", "shells are not allowed by policy"),
        (
            "wrap sh",
            "wrap",
            "wrapper",
            "programs that start other commands count as shells, which are not allowed by policy",
        ),
    ] {
        let error = outcome_of(&request(&words(line), &everything())).error.unwrap();
        assert_eq!(error.message, message, "{line}");
        assert_eq!(
            Value::Object(error.details),
            json!({"argv0": argv0, "reason": reason}),
            "{line}"
        );
    }
}
