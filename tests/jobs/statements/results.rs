//! Statements 28 to 31, 36 and 37: the content of a result, which is the same through every door.

use std::collections::BTreeSet;
use std::process::Command;

use cofferdam_test_server::service::cofferdam;
use serde_json::{Value, json};

use crate::doors::{Door, EACH, doors};
use crate::workspace::{Workspace, with};

#[test]
fn s28_a_result_repeats_the_command_and_has_the_three_hashes() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("print(1)").file("sub/x.py", "print(2)");
    let request = workspace.request(&["python3", "x.py"]);
    let request = with(request, "command.cwd", "sub");
    let request = with(request, "trace", json!({"trace_id": "t", "anything": {"else": [1]}}));
    for door in EACH {
        let result = doors.result(door, &request);
        assert_eq!(result["command"]["argv"], json!(["python3", "x.py"]));
        assert_eq!((&result["command"]["cwd"], &result["exit_code"]), (&json!("sub"), &json!(0)));
        assert_eq!(result["trace"], request["trace"], "{door:?}");
        for hash in ["request", "snapshot", "result"] {
            let hash = result["replay"][hash].as_str().unwrap();
            assert!(hash.strip_prefix("v1:").is_some_and(|hash| hash.len() == 64), "{hash}");
        }
        assert_eq!(result["error"], Value::Null);
        for (figure, least) in [("wall_ms", 0), ("cpu_ms", 1), ("memory_peak_bytes", 1 << 20)] {
            assert!(result["usage"][figure].as_u64().unwrap() >= least, "{figure}: {result}");
        }
        assert_eq!(result["enforced"]["seccomp"], "default", "{result}");
        let timing = &result["timing"];
        let times =
            ["queued_at", "started_at", "finished_at"].map(|name| timing[name].as_str().unwrap());
        assert!(times.is_sorted() && times.iter().all(|time| time.ends_with('Z')), "{timing}");
    }
}

#[test]
fn s29_equal_jobs_have_equal_hashes_and_a_change_alters_its_hash() {
    let Some(doors) = doors() else { return };
    let program = "import os; print(1); open('out', 'w').write('x')";
    let make = || Workspace::python(program).executable("tool", "t");
    let (first, again) = (make(), make());
    let other_mode = Workspace::python(program).file("tool", "t");
    let other_text = make().file("main.py", "print(2); open('out', 'w').write('x')");
    let keep = |request| with(request, "policy.artifacts", json!({"include": ["out"]}));
    for door in EACH {
        let hashes = |request: Value| doors.result(door, &keep(request))["replay"].clone();
        let base = hashes(first.run_main());
        let named = with(again.run_main(), "job_id", format!("s29-{door:?}"));
        assert_eq!(hashes(with(named, "trace", json!({"x": 1}))), base, "{door:?}");
        for (request, changed) in [
            (other_mode.run_main(), &["snapshot"][..]),
            (other_text.run_main(), &["snapshot", "result"]),
            (with(first.run_main(), "limits.timeout_ms", 29_999), &["request"]),
        ] {
            let hashes = hashes(request);
            for name in ["request", "snapshot", "result"] {
                let is_changed = hashes[name] != base[name];
                assert_eq!(is_changed, changed.contains(&name), "{door:?} {name} {changed:?}");
            }
        }
    }
}

#[test]
fn s31_an_unavailable_backend_is_reported_and_nothing_runs_elsewhere() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("print(1)");
    let request = with(workspace.run_main(), "backend", json!({"kind": "firecracker"}));
    for door in EACH {
        let result = doors.result(door, &request);
        assert_eq!(result["status"], "backend_unavailable", "{door:?}: {result}");
        assert_eq!(result["error"]["code"], "backend.unavailable");
        assert_eq!(result["error"]["details"]["backend"], "firecracker");
        assert_eq!((&result["usage"], &result["exit_code"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn s36_the_command_line_has_an_exit_code_for_each_class() {
    let Some(doors) = doors() else { return };
    let run = |request: &Value| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), request.to_string()).unwrap();
        let output = Command::new(cofferdam())
            .args(["job", "run"])
            .arg(file.path())
            .arg("--store-dir")
            .arg(doors.store(Door::CommandLine))
            .output()
            .unwrap();
        (output.status.code(), output.stdout)
    };
    let workspace = Workspace::python("print(1)");
    let request = workspace.run_main();
    let exits = Workspace::python("raise SystemExit(7)");
    let hangs = Workspace::python("import time; time.sleep(60)");
    for (request, code) in [
        (request.clone(), 0),
        (exits.run_main(), 1),
        (with(request.clone(), "policy.allowed_commands", json!([])), 3),
        (with(request.clone(), "workspace.path", "/nowhere/at/all"), 4),
        (with(request.clone(), "backend", json!({"kind": "firecracker"})), 5),
        (with(hangs.run_main(), "limits.timeout_ms", 500), 124),
        (with(request, "extra", 1), 2),
    ] {
        let (found, stdout) = run(&request);
        assert_eq!(found, Some(code), "{request}: {}", String::from_utf8_lossy(&stdout));
    }
}

/// Removes the parts that may differ between two runs of the same request, and between two doors.
fn without_volatile(mut result: Value) -> Value {
    for name in ["job_id", "timing", "usage"] {
        result[name].take();
    }
    for artifact in result["artifacts"].as_array_mut().unwrap() {
        artifact["uri"].take();
    }
    result
}

#[test]
fn s37_every_door_gives_the_same_result() {
    let Some(doors) = doors() else { return };
    let leaves = Workspace::python("open('out', 'w').write('x'); print('é'); raise SystemExit(3)");
    let hangs = Workspace::python("print('began', flush=True)\nimport time; time.sleep(60)");
    let base = leaves.run_main();
    let requests = [
        with(base.clone(), "policy.artifacts", json!({"include": ["*"]})),
        with(hangs.run_main(), "limits.timeout_ms", 500),
        with(base.clone(), "policy.allowed_commands", json!([])),
        with(base.clone(), "command.env", json!({"A": "b"})),
        with(base.clone(), "workspace.path", "/nowhere/at/all"),
        with(base.clone(), "backend", json!({"kind": "firecracker"})),
        leaves.request(&["no-such-program"]),
        with(base, "command.stdin", "some"),
    ];
    for request in requests {
        let results = EACH.map(|door| without_volatile(doors.result(door, &request)));
        assert_eq!(results[0], results[1], "library and command line: {request}");
        assert_eq!(results[0], results[2], "library and HTTP: {request}");
    }
}

#[test]
fn s30_a_result_has_one_of_the_seven_final_states() {
    let Some(doors) = doors() else { return };
    let schema = Command::new(cofferdam()).args(["schema", "result"]).output().unwrap();
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    let status = &schema["$defs"]["JobStatus"]["oneOf"];
    let words = status.as_array().unwrap().iter().map(|variant| variant["const"].as_str().unwrap());
    let words: BTreeSet<&str> = words.collect();
    let expected = [
        "queued",
        "running",
        "completed",
        "failed",
        "timed_out",
        "policy_denied",
        "setup_failed",
        "backend_unavailable",
        "canceled",
    ];
    assert_eq!(words, expected.into(), "{schema}");
    // `s35` tests the seventh.
    let base = Workspace::python("");
    let fails = Workspace::python("raise SystemExit(1)");
    let hangs = Workspace::python("import time; time.sleep(60)");
    for (request, status) in [
        (base.run_main(), "completed"),
        (fails.run_main(), "failed"),
        (with(hangs.run_main(), "limits.timeout_ms", 300), "timed_out"),
        (with(base.run_main(), "policy.allowed_commands", json!([])), "policy_denied"),
        (with(base.run_main(), "workspace.path", "/nowhere/at/all"), "setup_failed"),
        (with(base.run_main(), "backend", json!({"kind": "firecracker"})), "backend_unavailable"),
    ] {
        for door in EACH {
            assert_eq!(doors.result(door, &request)["status"], status, "{door:?}");
        }
    }
}
