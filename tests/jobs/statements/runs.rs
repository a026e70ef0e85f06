//! Statements 21 to 25: the end of a run and its output.

use std::time::Instant;

use cofferdam_core::values::digest::sha256_of;
use cofferdam_test_server::host;
use serde_json::{Value, json};

use crate::doors::{EACH, doors};
use crate::workspace::{Workspace, with};

#[test]
fn s21_a_timed_out_job_is_killed_with_its_descendants_and_keeps_its_output() {
    let Some(doors) = doors() else { return };
    for door in EACH {
        let marker = format!("s21-{door:?}-{}", std::process::id());
        let program = format!(
            "\
import subprocess, sys, time
print('began', flush=True)
print('oops', file=sys.stderr, flush=True)
for _ in range(3):
    subprocess.Popen([sys.executable or 'python3', '-c', 'import time; time.sleep(600)', '{marker}'],
                     executable='/usr/bin/python3', start_new_session=True)
time.sleep(600)
"
        );
        let workspace = Workspace::python(&program);
        let request = with(workspace.run_main(), "limits.timeout_ms", 1000);
        let began = Instant::now();
        let result = doors.result(door, &request);
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
        assert_eq!(result["status"], "timed_out", "{door:?}: {result}");
        assert_eq!(result["error"]["code"], "run.timed_out");
        assert_eq!((&result["exit_code"], &result["signal"]), (&Value::Null, &Value::Null));
        assert_eq!(result["stdout"]["text"], "began\n");
        assert_eq!(result["stderr"]["text"], "oops\n");
        assert!(!host::has_process(&marker), "{door:?}");
    }
}

#[test]
fn s22_an_exit_code_and_a_signal_are_distinguished() {
    let Some(doors) = doors() else { return };
    let exits = Workspace::python("import sys; sys.exit(3)");
    let dies = Workspace::python("import os; os.kill(os.getpid(), 15)");
    for door in EACH {
        let result = doors.result(door, &exits.run_main());
        assert_eq!(result["status"], "failed", "{result}");
        assert_eq!((&result["exit_code"], &result["signal"]), (&json!(3), &Value::Null));
        assert_eq!(result["error"]["code"], "run.exit_nonzero");
        assert_eq!(result["error"]["details"]["exit_code"], 3);
        let result = doors.result(door, &dies.run_main());
        assert_eq!(result["status"], "failed", "{result}");
        assert_eq!((&result["exit_code"], &result["signal"]), (&Value::Null, &json!(15)));
        assert_eq!(result["error"]["code"], "run.exit_nonzero");
    }
}

#[test]
fn s23_a_program_that_cannot_start_differs_from_one_that_fails() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::empty().file("not-executable", "x").executable("no-format", "x");
    for door in EACH {
        let absent = workspace.request(&["no-such-program-anywhere"]);
        for (request, reason) in [
            (absent, "ENOENT"),
            (
                with(
                    workspace.request(&["./not-executable"]),
                    "policy.allowed_commands",
                    json!([{"path": "/workspace/not-executable"}]),
                ),
                "EACCES",
            ),
            (
                with(
                    workspace.request(&["./no-format"]),
                    "policy.allowed_commands",
                    json!([{"path": "/workspace/no-format"}]),
                ),
                "ENOEXEC",
            ),
        ] {
            let result = doors.result(door, &request);
            assert_eq!(result["status"], "setup_failed", "{door:?}: {result}");
            assert_eq!(result["error"]["code"], "run.spawn_failed", "{door:?}: {result}");
            assert_eq!(result["error"]["details"]["reason"], reason, "{door:?}: {result}");
        }
    }
}

#[test]
fn s24_output_is_kept_up_to_its_limit_but_hashed_and_counted_in_full() {
    let Some(doors) = doors() else { return };
    let program = "\
import sys
for n in range(300000): print(n % 10, end='')
sys.stderr.write('e' * 1000)
";
    let workspace = Workspace::python(program);
    let whole: String = "0123456789".repeat(30_000);
    let request = with(workspace.run_main(), "limits.stdout_bytes", 1000);
    let request = with(request, "limits.stderr_bytes", 1000);
    for door in EACH {
        let result = doors.result(door, &request);
        assert_eq!(result["status"], "completed", "{door:?}: {result}");
        let kept = json!({
            "text": whole[..1000], "truncated": true, "bytes": 300_000,
            "sha256": sha256_of(whole.as_bytes()), "encoding": "utf-8",
        });
        assert_eq!(result["stdout"], kept, "{door:?}");
        let errors = "e".repeat(1000);
        let kept = json!({
            "text": errors, "truncated": false, "bytes": 1000,
            "sha256": sha256_of(errors.as_bytes()), "encoding": "utf-8",
        });
        assert_eq!(result["stderr"], kept, "{door:?}");
    }
}

#[test]
fn s25_binary_output_is_exact_and_truncation_splits_no_character() {
    let Some(doors) = doors() else { return };
    let binary = Workspace::python("import sys; sys.stdout.buffer.write(b'\\xff\\x00\\xfe')");
    let text = Workspace::python("import sys; sys.stdout.buffer.write('né€😀'.encode())");
    for door in EACH {
        let stdout = &doors.result(door, &binary.run_main())["stdout"];
        assert_eq!((&stdout["encoding"], &stdout["text"]), (&json!("base64"), &json!("/wD+")));
        for (bytes, kept) in
            [(1, "n"), (2, "n"), (3, "né"), (5, "né"), (6, "né€"), (9, "né€"), (10, "né€😀")]
        {
            let request = with(text.run_main(), "limits.stdout_bytes", bytes);
            let stdout = &doors.result(door, &request)["stdout"];
            assert_eq!((&stdout["encoding"], &stdout["text"]), (&json!("utf-8"), &json!(kept)));
            assert_eq!(stdout["truncated"], bytes < 10, "{bytes}");
        }
    }
}
