//! `POST W/run`: a program in a sandbox of its own over the files of its workspace.

mod shared;

use std::time::{Duration, Instant};

use cofferdam_test_server::host;
use serde_json::{Value, json};

use crate::exchange::ask;
use crate::scene::scene;

#[test]
fn a_result_has_the_keys_of_the_contract() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let script = "printf out; printf err >&2; exit 3";
    let result = scene.run(&workspace, &json!({"cmd": "sh", "args": ["-c", script]}));
    let keys: Vec<&str> = result.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "duration_ms",
        "egress",
        "encoding",
        "enforced",
        "error",
        "exit_code",
        "limit",
        "not_enforced",
        "outcome",
        "run_dir",
        "signal",
        "stderr",
        "stderr_bytes",
        "stderr_truncated",
        "stdout",
        "stdout_bytes",
        "stdout_truncated",
        "timed_out",
        "usage",
    ];
    assert_eq!(keys, expected);
    for (key, value) in [
        ("stdout", json!("out")),
        ("stderr", json!("err")),
        ("encoding", json!("utf-8")),
        ("exit_code", json!(3)),
        ("timed_out", json!(false)),
        ("stdout_bytes", json!(3)),
        ("stdout_truncated", json!(false)),
        ("error", Value::Null),
        ("outcome", json!("exited")),
        ("signal", Value::Null),
        ("limit", Value::Null),
    ] {
        assert_eq!(result[key], value, "{key}");
    }
}

#[test]
fn files_stay_and_processes_do_not() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    scene.sh(
        &workspace,
        "for f in . /tmp \"$HOME\"; do echo kept >$f/file; done; setsid sleep 60 &",
    );
    assert!(host::tenants(scene.service.pid()).is_empty());
    assert_eq!(
        scene.sh(&workspace, "cat file /tmp/file /tmp/home/file; ps -e | wc -l"),
        "kept\nkept\nkept\n5\n"
    );
    assert_eq!(
        scene.sh(&workspace, "stat -c '%a %u %n' skills work runs out metadata.json"),
        "755 10001 skills\n755 10001 work\n755 10001 runs\n755 10001 out\n600 10001 metadata.json\n"
    );
}

#[test]
fn variables_come_from_the_service_the_workspace_and_the_request_and_later_ones_win() {
    let Some(scene) = scene(&[]) else { return };
    let env = json!({"A": "workspace", "B": "workspace", "LANG": "C"});
    let workspace = scene.create(&json!({"path": "/srv/agent", "env": env}));
    let body = json!({"cmd": "env", "env": {"B": "request", "OUTPUT_DIR": "mine"}, "skill": "s"});
    let result = scene.run(&workspace, &body);
    let run_dir = result["run_dir"].as_str().unwrap();
    let expected = [
        "A=workspace".to_owned(),
        "B=request".to_owned(),
        "HOME=/tmp/home".to_owned(),
        "LANG=C".to_owned(),
        "OUTPUT_DIR=mine".to_owned(),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        "PWD=/srv/agent".to_owned(),
        format!("RUN_DIR=/srv/agent/{run_dir}"),
        "SKILLS_DIR=/srv/agent/skills".to_owned(),
        "SKILL_NAME=s".to_owned(),
        "TMPDIR=/tmp".to_owned(),
        "WORKSPACE_DIR=/srv/agent".to_owned(),
        "WORK_DIR=/srv/agent/work".to_owned(),
    ];
    let mut lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, expected);
    let named = scene.create(&json!({"env": {"SKILL_NAME": "workspace"}}));
    let skill_name = |env: Value| {
        let body =
            json!({"cmd": "sh", "args": ["-c", "echo $SKILL_NAME"], "skill": "s", "env": env});
        scene.run(&named, &body)["stdout"].as_str().unwrap().to_owned()
    };
    assert_eq!(skill_name(json!({})), "workspace\n");
    assert_eq!(skill_name(json!({"SKILL_NAME": "request"})), "request\n");
    let with_path = json!({"cmd": "mine", "env": {"PATH": "/srv/agent"}});
    scene.sh(&workspace, "printf '#!/bin/sh\\necho found\\n' >mine; chmod +x mine");
    assert_eq!(scene.run(&workspace, &with_path)["stdout"], "found\n");
}

#[test]
fn the_directory_of_a_run_is_its_own_and_stays_only_with_something_in_it() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let run = |script: &str| {
        let body = json!({"cmd": "sh", "args": ["-ec", script]});
        scene.run(&workspace, &body)["run_dir"].as_str().unwrap().to_owned()
    };
    let (kept, empty) =
        (run("test -d \"$RUN_DIR\"; echo x >\"$RUN_DIR/x\""), run("cd \"$RUN_DIR\""));
    assert_ne!(kept, empty);
    let name = kept.strip_prefix("runs/run_").unwrap();
    assert!(name.len() > 20 && name.as_bytes()[8] == b'T', "{kept}");
    assert_eq!(scene.sh(&workspace, &format!("cat {kept}/x; ls runs | wc -l")), "x\n2\n");
    // A program in the way does not keep the next one from starting.
    scene.sh(&workspace, "rm -r runs; echo >runs");
    let without =
        scene.run(&workspace, &json!({"cmd": "sh", "args": ["-c", "echo \"${RUN_DIR-none}\""]}));
    assert_eq!((&without["run_dir"], &without["stdout"]), (&Value::Null, &json!("none\n")));
}

#[test]
fn a_working_directory_is_made_and_does_not_leave_the_workspace() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let run =
        |cwd: &str| scene.post(&format!("{workspace}/run"), &json!({"cmd": "pwd", "cwd": cwd}));
    for (cwd, shown) in [
        (".", "/workspace\n"),
        ("a/b", "/workspace/a/b\n"),
        ("/workspace/a/../c", "/workspace/c\n"),
        ("/tmp/x", "/tmp/x\n"),
    ] {
        assert_eq!(run(cwd).json()["stdout"], shown, "{cwd}");
    }
    for cwd in ["", "..", "a/../..", "/etc", "/workspaces"] {
        let error = run(cwd).assert_error(422, "validation.path_escape");
        assert_eq!(error["details"]["path"], "cwd", "{cwd}");
    }
    scene.sh(&workspace, "echo >file; ln -s /etc link; ln -s a inside");
    run("file").assert_error(409, "file.not_regular");
    run("link/new").assert_error(409, "file.through_link");
    // The sandbox resolves a link as any program would: to a directory that it shows.
    assert_eq!(run("inside").json()["exit_code"], 0);
}

#[test]
fn input_and_output_may_be_any_bytes() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let text = scene.run(&workspace, &json!({"cmd": "cat", "stdin": "é\n"}));
    assert_eq!((&text["stdout"], &text["encoding"]), (&json!("é\n"), &json!("utf-8")));
    let bytes = json!({"cmd": "cat", "stdin": "/+A=", "encoding": "base64"});
    let bytes = scene.run(&workspace, &bytes);
    assert_eq!((&bytes["stdout"], &bytes["encoding"]), (&json!("/+A="), &json!("base64")));
    assert_eq!(scene.run(&workspace, &json!({"cmd": "cat"}))["stdout"], "");
}

#[test]
fn a_program_that_does_not_start_has_a_result_and_a_wrong_request_has_none() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let result = scene.run(&workspace, &json!({"cmd": "no-such-program"}));
    assert_eq!((&result["exit_code"], &result["outcome"]), (&json!(-1), &json!("not_started")));
    assert_eq!(result["error"]["code"], "run.spawn_failed");
    assert_eq!(scene.sh(&workspace, "ls runs | wc -l"), "1\n");
    for (body, path) in [
        (json!({}), "cmd"),
        (json!({"cmd": ""}), "cmd"),
        (json!({"cmd": ["sh"]}), "cmd"),
        (json!({"cmd": "a", "args": "b"}), "args"),
        (json!({"cmd": "a", "shell": true}), "shell"),
        (json!({"cmd": "a", "limits": {"max_files": 1}}), "limits.max_files"),
        (json!({"cmd": "a", "limits": {"max_pids": 1025}}), "limits.max_pids"),
        (json!({"cmd": "a", "timeout_ms": 3_600_001}), "timeout_ms"),
        (json!({"cmd": "a", "encoding": "hex"}), "encoding"),
    ] {
        let reply = scene.post(&format!("{workspace}/run"), &body);
        let error = reply.assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], path, "{body}");
    }
    let reply = ask(&scene.service, "POST", &format!("{workspace}/run"), "", b"nonsense");
    reply.assert_error(400, "validation.invalid_request");
}

#[test]
fn a_time_limit_kills_everything_and_what_was_written_stays() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let script = "echo before; setsid sleep 60 & (sleep 60 &) ; sleep 60";
    let began = Instant::now();
    let body = json!({"cmd": "sh", "args": ["-c", script], "timeout_ms": 2000});
    let result = scene.run(&workspace, &body);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(host::tenants(scene.service.pid()).is_empty());
    for (key, value) in [
        ("timed_out", json!(true)),
        ("exit_code", json!(-1)),
        ("outcome", json!("timed_out")),
        ("limit", json!("wall_time")),
        ("stdout", json!("before\n")),
    ] {
        assert_eq!(result[key], value, "{key}");
    }
}

#[test]
fn a_run_ends_with_its_main_process_whoever_holds_its_pipes() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let result = scene.run(
        &workspace,
        &json!({"cmd": "sh", "args": ["-c", "setsid sleep 60 & echo ended"], "timeout_ms": 60_000}),
    );
    assert_eq!((&result["stdout"], &result["exit_code"]), (&json!("ended\n"), &json!(0)));
    assert!(result["duration_ms"].as_u64().unwrap() < 30_000);
}

#[test]
fn limits_of_the_workspace_and_of_the_request_are_enforced_and_named() {
    let Some(scene) = scene(&[]) else { return };
    let limits = json!({"memory_mb": 32, "max_pids": 10});
    let workspace = scene.create(&json!({"limits": limits, "policy": {"max_disk_bytes": 1 << 20}}));
    let script = |script: &str, limits: Value| {
        let body = json!({"cmd": "sh", "args": ["-c", script], "limits": limits});
        scene.run(&workspace, &body)
    };
    let memory = "n=$(head -c 64M /dev/zero | tail -c 64M | wc -c); [ $n = 67108864 ]";
    let killed = script(memory, json!({}));
    assert_eq!(killed["limit"], "memory", "{killed}");
    assert_eq!(script(memory, json!({"memory_mb": 256}))["exit_code"], 0);
    let forks = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1 & done || exit 7; wait";
    assert_eq!(script(forks, json!({}))["limit"], "processes");
    let full = script("head -c 2M /dev/zero >big || exit 5", json!({}));
    assert_eq!((&full["limit"], &full["exit_code"]), (&json!("disk"), &json!(5)));
    scene.delete(&format!("{workspace}/files?path=big"));
    let busy = script("while :; do :; done", json!({"cpu_time_ms": 200}));
    assert_eq!((&busy["limit"], &busy["exit_code"]), (&json!("cpu_time"), &json!(-1)));
    assert_eq!(script("ulimit -n; ulimit -f", json!({}))["stdout"], "4096\nunlimited\n");
}

#[test]
fn output_over_its_limit_is_counted_and_dropped() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let body = json!({
        "cmd": "sh", "args": ["-c", "yes é | head -c 3000000; echo done >&2"],
        "limits": {"stdout_bytes": 1000},
    });
    let result = scene.run(&workspace, &body);
    assert_eq!((&result["exit_code"], &result["limit"]), (&json!(0), &Value::Null));
    assert_eq!(
        (&result["stdout_bytes"], &result["stdout_truncated"]),
        (&json!(3_000_000), &json!(true))
    );
    let kept = result["stdout"].as_str().unwrap();
    assert!((998..=1000).contains(&kept.len()) && kept.starts_with("é\né\n"), "{}", kept.len());
    assert_eq!((&result["stderr"], &result["stderr_truncated"]), (&json!("done\n"), &json!(false)));
}

#[test]
fn a_run_is_followed_as_a_stream_of_events() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let body = json!({"cmd": "sh", "args": ["-c", "echo out; sleep 0.1; echo err >&2; exit 4"]});
    let reply =
        scene.post_with(&format!("{workspace}/run"), "accept: text/event-stream\r\n", &body);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    let text = String::from_utf8(reply.body.clone()).unwrap();
    assert!(text.contains("event: stdout\nid: 0\ndata: \"out\\n\"\n\n"), "{text}");
    assert!(text.contains("event: stderr\nid: 0\ndata: \"err\\n\"\n\n"), "{text}");
    let result = text.split("event: result\ndata: ").nth(1).unwrap();
    let result = result.lines().next().unwrap();
    let result: Value = serde_json::from_str(result).unwrap();
    assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(4), &json!("out\n")));
    let refused = scene.post_with(
        &format!("{workspace}/run"),
        "accept: text/event-stream\r\n",
        &json!({"cmd": ""}),
    );
    refused.assert_error(422, "validation.invalid_request");
}

#[test]
fn a_key_runs_a_program_once() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let body = json!({"cmd": "sh", "args": ["-c", "echo x >>count; wc -l <count"]});
    let run = || scene.post_with(&format!("{workspace}/run"), "idempotency-key: k\r\n", &body);
    let (first, again) = (run(), run());
    assert_eq!((first.status, &first.body), (200, &again.body));
    assert_eq!(scene.sh(&workspace, "wc -l <count"), "1\n");
}
