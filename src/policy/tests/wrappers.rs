//! Shells, and what wrappers lead to.

use serde_json::{Value, json};

use crate::policy::testing::{
    FakePrograms, digest_of, judged, open_runner, request, usual, verdict,
};
use crate::policy::{WorkspaceFacts, judge};
use cofferdam_core::job::RunJobRequest;

/// What the tables below allow: every wrapper, some programs, and some shells.
fn everything() -> Value {
    let mut commands: Vec<&str> =
        super::super::wrapper_table::WRAPPERS.iter().flat_map(|row| row.names).copied().collect();
    commands.extend(["python3", "echo", "ls", "wrap", "tac", "genv"]);
    commands.extend(["sh", "bash", "dash", "ash", "foo", "ksh93"]);
    let mut commands: Vec<Value> = commands.into_iter().map(Value::from).collect();
    commands.push(json!({"path": "/lib64/ld-linux-x86-64.so.2"}));
    commands.push(json!({"path": "/workspace/tool"}));
    Value::Array(commands)
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn code(line: &str) -> &'static str {
    let mut request = request(&words(line), &everything());
    request.policy.allowed_env = vec!["A".to_owned(), "PATH".to_owned()];
    verdict(&judged(&request))
}

#[test]
fn what_wraps_an_allowed_program_is_allowed() {
    for line in [
        "env python3 main.py",
        "env",
        "env A=1",
        "env -i A=1 python3",
        "env - python3",
        "env -u A -i python3",
        "env --unset=A python3",
        "env -uA -- python3 -c x",
        "env /usr/bin/python3",
        "env -S python3",
        "env PATH=/usr/bin:/bin python3",
        "env -i ./tool",
        "wrap A=1 python3",
        "timeout 5 python3",
        "timeout -k 1 -s KILL 5 python3",
        "timeout --signal=INT 5s python3",
        "nice python3",
        "nice -n 5 python3",
        "nice -5 python3",
        "nice -n5 python3",
        "nohup python3",
        "nohup -- python3",
        "ionice -c 2 -n 7 python3",
        "ionice -c2 python3",
        "chrt -b 0 python3",
        "taskset 3 python3",
        "taskset -c 0,1 python3",
        "setsid -w python3",
        "stdbuf -oL -eL python3",
        "stdbuf -o 0 python3",
        "setpriv --no-new-privs --reuid 5 python3",
        "unshare -r python3",
        "sudo -n -u me A=1 python3",
        "doas python3",
        "flock lock python3",
        "time -p python3",
        "flock -n -w 5 file python3 x",
        "watch -x python3",
        "watch -n 2 -x python3",
        "strace -f -e trace=open python3",
        "ltrace -c python3",
        "setarch x86_64 -R python3",
        "linux32 -R python3",
        "setarch -R i386 python3",
        "runuser -u me -- python3",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/python3",
        "coreutils ls",
        "xargs",
        "xargs python3",
        "xargs -0 -n 1 python3",
        "xargs -I {} python3 {}",
        "xargs -I% env A=1 python3 %",
        "find . -name x",
        "find . -exec python3 {} ;",
        "find . -exec python3 {} + -exec echo {} ;",
        "find . -type f -ok echo ;",
        "find -exec ./tool ;",
        "env timeout 5 nice -n 1 xargs -0 python3",
        "genv python3",
        "tac bash",
        "echo bash",
        "python3 -c bash",
        "find . -name bash",
        "timeout 5",
        "ls sh",
    ] {
        assert_eq!(code(line), "allowed", "{line}");
    }
}

#[test]
fn a_shell_is_denied_however_it_is_wrapped() {
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
        "env bash",
        "env -i bash",
        "env A=1 sh -c x",
        "env - sh",
        "env -u A sh",
        "env --unset A sh",
        "env -S bash",
        "env -Sbash",
        "env -vS bash",
        "env -iS bash",
        "env --split-string=bash",
        "env -C / bash",
        "env /bin/sh",
        "env foo",
        "wrap bash",
        "genv bash",
        "env env env bash",
        "timeout 5 bash",
        "timeout -k 1 5 bash",
        "nice -n 5 sh",
        "nice -5 sh",
        "nohup sh",
        "ionice -c 3 sh",
        "chrt 5 sh",
        "taskset -c 0 sh",
        "setsid sh",
        "stdbuf -oL sh",
        "setpriv --reuid=5 sh",
        "unshare -r sh",
        "sudo sh",
        "sudo -u me A=1 sh",
        "doas sh",
        "flock f sh",
        "time sh",
        "strace -f sh",
        "ltrace sh",
        "linux32 sh",
        "setarch x86_64 sh",
        "runuser -u me sh",
        "watch -x sh",
        "/lib64/ld-linux-x86-64.so.2 /bin/sh",
        "coreutils env sh",
        "xargs sh",
        "xargs -I{} sh -c {}",
        "xargs -n1 sh -c",
        "find . -exec sh -c x ;",
        "find . -name x -execdir bash {} +",
        "find . -ok sh ;",
        "find . -exec echo ; -exec sh ;",
        "find . -exec env timeout 5 sh ;",
        "find . -exec echo -exec sh ;",
        "env timeout 5 nice setsid foo",
    ] {
        assert_eq!(code(line), "policy.shell_denied", "{line}");
    }
}

#[test]
fn what_goes_through_a_shell_or_cannot_be_told_is_denied_as_one() {
    for line in [
        "su",
        "su -c ls",
        "su me -c ls",
        "script",
        "script -c ls",
        "parallel echo",
        "watch ls",
        "watch -n 1 ls",
        "runuser me",
        "runuser -l me -c ls",
        "runuser -u me",
        "unshare",
        "linux32",
        "setarch x86_64",
        "chroot . python3",
        "nsenter -t 1 python3",
        "systemd-run python3",
        "start-stop-daemon -S -x /bin/sh",
        "flock f -c ls",
        "flock -c ls",
        "sudo -s",
        "sudo -i",
        // Unknown options, options that change what is started, values that are not there.
        "env --magic python3",
        "env -a sh python3",
        "env --argv0=sh python3",
        "env -S 'python3'",
        "env -S $X",
        "env --split python3",
        "env =x python3",
        "time -x python3",
        "strace -o |sh python3",
        "strace -E PATH=/x python3",
        "xargs -J % python3",
        "timeout -t 5 python3",
        "env -u",
        "/lib64/ld-linux-x86-64.so.2 --argv0 sh /bin/busybox",
        "/lib64/ld-linux-x86-64.so.2 python3",
        "/lib64/ld-linux-x86-64.so.2 --preload x /usr/bin/python3",
        "coreutils --coreutils-prog=sh",
        // Words that may be the command after all.
        "setarch -R bash python3",
        "setarch python3 ls",
        "chrt -o bash python3",
        "chrt --other sh ls",
        "nice -- -x",
        "timeout 5 -- -x",
        // Another directory, another PATH.
        "env -C sub ./tool",
        "find . -execdir ./tool ;",
        "env PATH=/workspace python3",
        "env PATH= python3",
        "env PATH=/usr/bin: python3",
        "env PATH=/usr/bin/../x python3",
        "sudo PATH=. python3",
        // Words that are not known yet.
        "xargs env",
        "xargs timeout 5",
        "xargs -n1 nice -n",
        "xargs -I{} {}",
        "xargs -i {}",
        "xargs -I{} env {} python3",
        "xargs --replace=python3 python3",
        "xargs -I% find % -name x",
        "xargs find",
        "find . -exec {} ;",
        "find . -exec ./{} ;",
        "find . -exec env {} ;",
        "find . -exec env {} +",
        "find . -exec xargs -I% env % ;",
        "xargs xargs env",
        "xargs nohup",
        "xargs -I py python3",
    ] {
        assert_eq!(code(line), "policy.shell_denied", "{line}");
    }
    for text in ["python3 \"a b\"", "python3 \\x", "A=1\u{b}sh", "A=$B"] {
        let split = request(&["env", "-S", text], &everything());
        assert_eq!(verdict(&judged(&split)), "policy.shell_denied", "{text:?}");
    }
}

#[test]
fn a_wrapped_command_is_held_to_the_allow_list_first() {
    let commands = json!(["env", "timeout", "find", "xargs", "python3", "bash", "watch"]);
    for (line, argv0, wrapper) in [
        ("env node", "node", "env"),
        ("env sh -c x", "sh", "env"),
        ("timeout 5 env /opt/tool/bin/tool", "/opt/tool/bin/tool", "env"),
        ("env ./python3", "./python3", "env"),
        ("env bin/python3", "bin/python3", "env"),
        ("env /workspace/../usr/bin/python3", "/workspace/../usr/bin/python3", "env"),
        ("xargs", "echo", "xargs"),
        ("find . -exec python3 ; -exec rm {} +", "rm", "find"),
        ("find . -exec bash ; -exec rm ;", "rm", "find"),
        ("env -S node", "node", "env"),
        ("env -S timeout\t5\tnode", "node", "timeout"),
        ("env nice python3", "nice", "env"),
    ] {
        let error = judged(&request(&words(line), &commands)).error.unwrap();
        assert_eq!(error.code.word(), "policy.command_denied", "{line}");
        assert_eq!(
            (&error.details["argv0"], &error.details["wrapper"]),
            (&json!(argv0), &json!(wrapper)),
            "{line}"
        );
    }
}

#[test]
fn a_wrapped_name_may_be_any_program_of_that_name() {
    let mut programs = usual();
    let commands = json!(["env", {"path": "/usr/bin/python3"}]);
    let request = request(&["env", "python3"], &commands);
    let code = |programs: &FakePrograms| {
        verdict(&judge(&request, &open_runner(), WorkspaceFacts::default(), programs))
    };
    assert_eq!(code(&programs), "allowed");
    programs.0.insert("/usr/local/bin/python3".into(), "/usr/local/bin/python3".into());
    assert_eq!(code(&programs), "policy.command_denied");
    programs.0.insert("/usr/local/bin/python3".into(), "/usr/bin/python3.11".into());
    assert_eq!(code(&programs), "allowed");
}

#[test]
fn a_wrapped_program_is_held_to_its_pins_where_that_can_be_done() {
    let digest = digest_of("/usr/bin/python3.11");
    let wrong = "0".repeat(64);
    for (line, entry, expected) in [
        ("env python3", json!({"basename": "python3", "sha256": digest.as_str()}), "allowed"),
        ("env python3", json!({"basename": "python3", "sha256": wrong}), "policy.command_denied"),
        ("env python3", json!({"basename": "python3", "path": "/bin/ls"}), "policy.command_denied"),
        ("env ./tool", json!({"path": "/workspace/tool"}), "allowed"),
        ("env ./a/../tool", json!({"path": "/workspace/tool"}), "policy.command_denied"),
        (
            "env ./tool",
            json!({"path": "/workspace/tool", "sha256": wrong}),
            "policy.command_denied",
        ),
        ("env missing", json!("missing"), "allowed"),
        ("env /opt/missing", json!({"path": "/opt/missing"}), "allowed"),
    ] {
        let request = request(&words(line), &json!(["env", entry]));
        assert_eq!(verdict(&judged(&request)), expected, "{line} {entry}");
    }
}

fn with_env(line: &str, key: &str, value: &str) -> RunJobRequest {
    let mut request = request(&words(line), &everything());
    request.command.env.insert(key.to_owned(), value.to_owned());
    request.policy.allowed_env.push(key.to_owned());
    request
}

#[test]
fn a_path_of_the_request_is_for_wrappers_and_not_for_the_command_itself() {
    for (line, path, expected) in [
        ("python3", "/workspace", "allowed"),
        ("env python3", "/workspace", "policy.shell_denied"),
        ("env python3", "/usr/bin:/workspace", "policy.shell_denied"),
        ("env python3", "/usr/local/bin:/usr/bin/:/bin", "allowed"),
        ("env /usr/bin/python3", "/workspace", "allowed"),
        ("env PATH=/bin python3", "/workspace", "policy.env_denied"),
    ] {
        let mut request = with_env(line, "PATH", path);
        if expected == "policy.env_denied" {
            request.command.env.clear();
            request.policy.allowed_env.clear();
        }
        assert_eq!(verdict(&judged(&request)), expected, "{line} {path}");
    }
}

#[test]
fn variables_that_a_wrapper_sets_are_held_to_the_same_rule() {
    for line in
        ["env A=1 B=secret python3", "env -S B=secret python3", "nice sudo B=secret python3"]
    {
        let judged = judged(&with_env(line, "A", "1"));
        let error = judged.error.as_ref().unwrap();
        assert_eq!((error.code.word(), &error.details["key"]), ("policy.env_denied", &json!("B")));
        assert!(!format!("{judged:?}").contains("secret"), "{line}");
    }
}

#[test]
fn where_shells_are_allowed_the_allow_list_still_holds() {
    for (line, commands, expected) in [
        ("bash -c x", json!(["bash"]), "allowed"),
        ("env bash", json!(["env", "bash"]), "allowed"),
        ("env bash", json!(["env"]), "policy.command_denied"),
        ("watch ls", json!(["watch"]), "allowed"),
        ("busybox ls", json!(["busybox", "ls"]), "allowed"),
        ("busybox ls", json!(["busybox"]), "policy.command_denied"),
        ("su -c x", json!([]), "policy.command_denied"),
    ] {
        let mut request = request(&words(line), &commands);
        request.policy.allow_shell = true;
        assert_eq!(verdict(&judged(&request)), expected, "{line} {commands}");
    }
}

#[test]
fn what_is_too_deep_or_too_much_to_be_followed_is_denied() {
    let deep = |count: usize| format!("{}python3", "env ".repeat(count));
    assert_eq!(code(&deep(8)), "allowed");
    assert_eq!(code(&deep(9)), "policy.shell_denied");
    let many = |count: usize| format!("find .{}", " -exec python3 ;".repeat(count));
    assert_eq!(code(&many(32)), "allowed");
    assert_eq!(code(&many(33)), "policy.shell_denied");
    // And in no time.
    assert_eq!(code(&format!("find .{}", " -exec find".repeat(30))), "policy.shell_denied");
    assert_eq!(code(&format!("find .{}", " -exec find".repeat(400_000))), "policy.shell_denied");
    let long = format!(" -exec find{}", " x".repeat(300));
    assert_eq!(code(&format!("find{}", long.repeat(31))), "policy.shell_denied");
    assert_eq!(code(&format!("env python3 {}", "x ".repeat(20_000))), "policy.shell_denied");
}

#[test]
fn the_error_tells_which_word_it_is_and_how() {
    for (line, argv0, reason) in [
        ("bash", "bash", "shell"),
        ("env foo", "foo", "shell"),
        ("env watch ls", "watch", "wrapper"),
        ("timeout 5 env -Z x", "env", "wrapper_untold"),
    ] {
        let error = judged(&request(&words(line), &everything())).error.unwrap();
        assert_eq!(
            (&error.details["argv0"], &error.details["reason"]),
            (&json!(argv0), &json!(reason)),
            "{line}"
        );
    }
}
