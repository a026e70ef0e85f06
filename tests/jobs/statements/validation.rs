//! Statements 1 to 7: valid requests, and requests that are refused before anything happens.

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::doors::{EACH, doors, post_to};
use crate::workspace::{Workspace, with};

/// Asserts an `invalid_request` error at `path`.
#[track_caller]
fn assert_invalid(error: &Value, path: &str) {
    assert_eq!(error["code"], "validation.invalid_request", "{error}");
    assert_eq!(error["details"]["path"], path, "{error}");
    assert!(error["message"].as_str().unwrap().contains(path), "{error}");
}

#[test]
fn s01_a_job_without_an_id_gets_one_and_ids_are_plain_names() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("print(1)");
    for door in EACH {
        let result = doors.result(door, &workspace.run_main());
        let id = result["job_id"].as_str().unwrap();
        let uuid = id.strip_prefix("job_").unwrap();
        assert!(uuid.len() == 36 && uuid.matches('-').count() == 4, "{door:?}: {id}");
        for bad in ["", ".a", "a/b", "../x", "a b", "é", &"x".repeat(129)] {
            let error = doors.refusal(door, &with(workspace.run_main(), "job_id", bad));
            assert_invalid(&error, "job_id");
        }
        let long = format!("{door:?}-{}", "x".repeat(100));
        let result = doors.result(door, &with(workspace.run_main(), "job_id", long.as_str()));
        assert_eq!(
            (result["job_id"].as_str(), &result["status"]),
            (Some(long.as_str()), &json!("completed"))
        );
    }
}

#[test]
fn s02_an_id_in_use_is_refused_and_its_record_stays() {
    let Some(doors) = doors() else { return };
    for door in EACH {
        let id = format!("taken-{door:?}");
        let first = Workspace::python("print('first')");
        let result = doors.result(door, &with(first.run_main(), "job_id", id.as_str()));
        let second = Workspace::python("print('second')");
        let error = doors.refusal(door, &with(second.run_main(), "job_id", id.as_str()));
        assert_eq!(error["code"], "job.conflict", "{door:?}: {error}");
        let kept = doors.store(door).join("runs").join(&id).join("result.json");
        let kept: Value = serde_json::from_slice(&std::fs::read(kept).unwrap()).unwrap();
        assert_eq!((&kept, &kept["stdout"]["text"]), (&result, &json!("first\n")), "{door:?}");
    }
}

#[test]
fn s03_a_command_is_a_list_of_strings_and_unknown_keys_are_refused() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("");
    for door in EACH {
        for (pointer, value, path) in [
            ("command.argv", json!("python3 main.py"), "command.argv"),
            ("command.argv", json!([]), "command.argv"),
            ("command.argv", json!([""]), "command.argv"),
            ("command.argv", json!(["python3", "a\0b"]), "command.argv[1]"),
            ("extra", json!(1), "extra"),
            ("workspace.extra", json!(1), "workspace.extra"),
            ("policy.artifacts", json!({"extra": 1}), "policy.artifacts.extra"),
            ("limits.timeout_ms", json!(u64::MAX), "limits.timeout_ms"),
        ] {
            let request = with(workspace.run_main(), pointer, value);
            assert_invalid(&doors.refusal(door, &request), path);
        }
    }
}

#[test]
fn s04_a_workspace_is_a_local_path() {
    let Some(doors) = doors() else { return };
    let request = with(Workspace::python("").run_main(), "workspace.source", "git");
    for door in EACH {
        assert_invalid(&doors.refusal(door, &request), "workspace.source");
    }
}

#[test]
fn s05_a_working_directory_stays_in_the_workspace() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("").file("sub/main.py", "import os; print(os.getcwd())");
    std::os::unix::fs::symlink("/etc", workspace.path().join("outside")).unwrap();
    std::os::unix::fs::symlink("sub", workspace.path().join("inside")).unwrap();
    for door in EACH {
        for cwd in ["/etc", "..", "sub/../..", ""] {
            let error = doors.refusal(door, &with(workspace.run_main(), "command.cwd", cwd));
            assert_eq!(error["code"], "validation.path_escape", "{door:?} {cwd:?}: {error}");
        }
        let result = doors.result(door, &with(workspace.run_main(), "command.cwd", "outside"));
        assert_eq!(result["status"], "setup_failed", "{door:?}: {result}");
        assert_eq!(result["error"]["code"], "validation.path_escape", "{door:?}: {result}");
        let result = doors.result(door, &with(workspace.run_main(), "command.cwd", "absent"));
        assert_eq!(result["error"]["code"], "backend.setup_failed", "{door:?}: {result}");
        for (cwd, seen) in [("sub", "/workspace/sub\n"), ("inside", "/workspace/sub\n")] {
            let result = doors.result(door, &with(workspace.run_main(), "command.cwd", cwd));
            assert_eq!(result["stdout"]["text"], seen, "{door:?}: {result}");
        }
    }
}

#[test]
fn s06_over_http_a_bad_request_is_422_invalid_json_400_and_a_long_body_413() {
    let Some(doors) = doors() else { return };
    let service = doors.service();
    let bad = with(Workspace::python("").run_main(), "extra", 1).to_string();
    let long = format!("\"{}\"", "x".repeat(2 << 20));
    for (body, status, code) in [
        (bad.as_str(), 422, "validation.invalid_request"),
        ("{", 400, "validation.invalid_request"),
        ("", 400, "validation.invalid_request"),
        ("[]", 422, "validation.invalid_request"),
        (long.as_str(), 413, "validation.too_large"),
    ] {
        let answer = post_to(service, "/v1/jobs", "", body);
        assert_eq!(answer.status, status, "{answer:?}");
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(error["code"], code, "{error}");
        let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["code", "details", "message"], "{error}");
        assert!(error["details"].is_object() && error["message"].is_string(), "{error}");
    }
}

#[test]
fn s07_an_unreadable_workspace_fails_the_job_when_it_runs() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("").file("file", "");
    mkfifo(&workspace.path().join("fifo"), Mode::S_IRWXU).unwrap();
    for door in EACH {
        for path in ["absent", "file", "fifo"] {
            let path = workspace.path().join(path);
            let request = with(workspace.run_main(), "workspace.path", path.to_str().unwrap());
            let result = doors.result(door, &request);
            assert_eq!(result["status"], "setup_failed", "{door:?}: {result}");
            assert_eq!(result["error"]["code"], "backend.setup_failed", "{door:?}: {result}");
            assert_eq!(result["snapshot"], Value::Null);
        }
    }
}
