//! `cofferdam job run` without a server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use super::support::JobDirectory;
use crate::support::{Call, has_keys_in_order};

#[test]
fn every_status_has_its_exit_code_and_result() {
    let place = JobDirectory::new(&[]);
    let with = |mut request: Value, pointer: &str, value: Value| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        request.pointer_mut(parent).unwrap()[key] = value;
        request
    };
    let gone = json!(place.path().join("gone"));
    let slow = json!({"timeout_ms": 300});
    for (request, code, status, error) in [
        (place.request(&["true"]), 0, "completed", None),
        (place.request(&["false"]), 1, "failed", Some("run.exit_nonzero")),
        (place.script("kill -9 $$"), 1, "failed", Some("run.exit_nonzero")),
        (with(place.request(&["true"]), "/policy", json!({})), 3, "policy_denied", None),
        (place.request(&["no-such-program"]), 4, "setup_failed", Some("run.spawn_failed")),
        (
            with(place.request(&["true"]), "/workspace/path", gone),
            4,
            "setup_failed",
            Some("backend.setup_failed"),
        ),
        (
            with(place.request(&["true"]), "/backend", json!({"kind": "firecracker"})),
            5,
            "backend_unavailable",
            Some("backend.unavailable"),
        ),
        (
            with(place.request(&["sleep", "60"]), "/limits", slow),
            124,
            "timed_out",
            Some("run.timed_out"),
        ),
    ] {
        let done = place.run(&request).run().exits(code).quietly();
        let result = done.json();
        assert_eq!(result["status"], status, "{result}");
        if let Some(error) = error {
            assert_eq!(result["error"]["code"], error, "{result}");
        }
        let id = result["job_id"].as_str().unwrap();
        let stored = place.job("result").arg(id).run().exits(0).quietly();
        stored.holds(stored.stdout() == done.stdout(), "the result that was printed");
    }
}

#[test]
fn a_result_has_the_keys_of_the_contract_and_the_output() {
    let place = JobDirectory::new(&[("main.py", "print(open('data').read())"), ("data", "42")]);
    let mut request = place.request(&["python3", "main.py"]);
    request["job_id"] = json!("job_1");
    request["trace"] = json!({"task_id": "t"});
    let done = place.run(&request).run().exits(0).quietly();
    has_keys_in_order(
        &done.stdout(),
        &["job_id", "status", "trace", "command", "exit_code", "stdout", "stderr", "policy"],
    );
    let result = done.json();
    assert_eq!(result["stdout"]["text"], "42\n");
    assert_eq!((&result["job_id"], &result["trace"]["task_id"]), (&json!("job_1"), &json!("t")));
    assert_eq!(result["policy"]["network_enforced"], true);
    // The same id again: nothing is overwritten.
    let again = place.run(&request).run().exits(1).prints("");
    assert_eq!(again.error()["code"], "job.conflict");
    let stored = place.job("result job_1").run().exits(0).json();
    assert_eq!(stored, result);
}

#[test]
fn an_invalid_request_is_reported_as_by_a_service_and_creates_no_store() {
    let place = JobDirectory::new(&[]);
    let mut request = place.request(&["true"]);
    request["command"]["shell"] = json!("true");
    let done = place.run(&request).run().exits(2).prints("");
    let error = done.error();
    assert_eq!(error["code"], "validation.invalid_request");
    assert_eq!(error["details"]["path"], "command.shell");

    let done = place.job("run -").fed("{").run().exits(2).prints("");
    assert_eq!(done.error()["code"], "validation.invalid_request");

    let request = place.request(&["true"]);
    let limited = |name: &str, value: &str| place.run(&request).env(name, value).run();
    let error = limited("JOBS_INPUT_MAX", "10").exits(2).prints("").error();
    assert_eq!(error["code"], "validation.too_large");
    let error = limited("JOBS_MAX_PROCESSES", "255").exits(2).prints("").error();
    assert_eq!(error["details"], json!({"path": "limits.processes", "max": 255}));
    assert!(!place.store().exists(), "a store was created");

    limited("JOBS_MAX_PROCESSES", "many").exits(2).complains("JOBS_MAX_PROCESSES");
    place.job("run /no/such/file").run().exits(2).complains("FILE: /no/such/file: no such file");
    // Problems in the rest of the configuration do not matter.
    place.run(&request).env("PORT", "none").run().exits(0);
}

#[test]
fn the_environment_sets_the_rules_of_the_runner() {
    let place = JobDirectory::new(&[]);
    let mut request = place.script("echo $LANG");
    request["command"]["env"] = json!({"LANG": "C"});
    place.run(&request).run().exits(3);
    let done = place.run(&request).env("JOBS_ALLOWED_ENV", "LANG").run().exits(0);
    assert_eq!(done.json()["stdout"]["text"], "C\n");
    let request = place.request(&["true"]);
    let within = |roots: &str| place.run(&request).env("JOBS_WORKSPACE_ROOTS", roots).run();
    within(place.path().to_str().unwrap()).exits(0);
    let result = within("/usr").exits(3).json();
    assert_eq!(result["error"]["code"], "policy.workspace_denied");
    within("/no/such/root").exits(2).prints("").complains("JOBS_WORKSPACE_ROOTS: /no/such/root");
}

#[test]
fn a_store_that_cannot_be_created_is_an_error() {
    let place = JobDirectory::new(&[]);
    fs::write(place.store(), "a file").unwrap();
    let done = place.run(&place.request(&["true"])).run().exits(1).prints("");
    assert_eq!(done.error()["code"], "run.io_failed");
}

#[test]
fn an_unavailable_machine_is_reported_in_the_result_with_the_missing_file() {
    let place = JobDirectory::new(&[]);
    let (file, gone) = (place.path().join("file"), place.path().join("no-firecracker"));
    fs::write(&file, "").unwrap();
    let (file, gone) = (file.to_str().unwrap(), gone.to_str().unwrap());
    let work = place.path().join("machines");
    let machines = |call: Call| {
        call.env("FIRECRACKER_KERNEL", file)
            .env("FIRECRACKER_ROOT_IMAGE", file)
            .env("FIRECRACKER_ROOT_DIRECTORY", "/")
            .env("FIRECRACKER_BIN", gone)
            .env("FIRECRACKER_WORK_DIR", work.to_str().unwrap())
    };
    let mut request = place.request(&["true"]);
    request["backend"] = json!({"kind": "firecracker"});
    let result = machines(place.run(&request)).run().exits(5).quietly().json();
    assert_eq!(result["status"], "backend_unavailable", "{result}");
    assert_eq!(result["error"]["code"], "backend.unavailable");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains(gone), "{message}");
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "files of the machine are left");
    // The local backend works without it.
    machines(place.run(&place.request(&["true"]))).run().exits(0);
}

#[test]
fn an_incomplete_firecracker_configuration_is_a_usage_error() {
    let place = JobDirectory::new(&[]);
    let run = || place.run(&place.request(&["true"]));
    let done = run().env("FIRECRACKER_BIN", "/usr/bin/firecracker").run().exits(2).prints("");
    done.complains("FIRECRACKER_BIN: want FIRECRACKER_KERNEL beside it");
    let kernel = || run().env("FIRECRACKER_KERNEL", "/vmlinux");
    let done = kernel().env("FIRECRACKER_ROOT_DIRECTORY", "/").run().exits(2).prints("");
    done.complains("FIRECRACKER_ROOT_IMAGE: want an absolute path");
    let whole = kernel().env("FIRECRACKER_ROOT_IMAGE", "/i").env("FIRECRACKER_ROOT_DIRECTORY", "/");
    let done = whole.env("FIRECRACKER_WORK_DIR", "/dev/null/x").run().exits(2).prints("");
    done.complains("FIRECRACKER_WORK_DIR: /dev/null/x");
    assert!(!place.store().exists(), "a store was created");
}

#[test]
fn no_sandbox_shows_the_files_of_machines() {
    // A sandbox shows other directories there.
    let Ok(below) = tempfile::tempdir_in("/opt") else { return };
    fs::set_permissions(below.path(), Permissions::from_mode(0o755)).unwrap();
    let work = below.path().join("machines");
    let place = JobDirectory::new(&[]);
    // An empty directory masks it; the real one could not even be listed.
    let script = format!("ls -A {} && echo listed", work.display());
    let mut call = place.run(&place.script(&script));
    for name in ["KERNEL", "ROOT_IMAGE", "ROOT_DIRECTORY"] {
        call = call.env(&format!("FIRECRACKER_{name}"), "/usr");
    }
    fs::create_dir(&work).unwrap();
    fs::set_permissions(&work, Permissions::from_mode(0o700)).unwrap();
    fs::write(work.join("of-another-job"), "").unwrap();
    let result = call.env("FIRECRACKER_WORK_DIR", work.to_str().unwrap()).run().exits(0).json();
    assert_eq!(result["stdout"]["text"], "listed\n", "{result}");
}

#[test]
fn no_sandbox_shows_the_store() {
    // A sandbox shows other directories there.
    let Ok(below) = tempfile::tempdir_in("/opt") else { return };
    let store = below.path().join("store");
    let place = JobDirectory::new(&[]);
    let script = format!("ls -A {} | wc -l", store.display());
    let call = crate::support::cofferdam("job run - --store-dir").arg(&store);
    let result = call.fed(place.script(&script).to_string()).run().exits(0).json();
    assert_eq!(result["stdout"]["text"], "0\n", "{result}");
}

/// The output of `cofferdam job run` on a terminal; `stderr` redirects its stderr.
fn on_a_terminal(place: &JobDirectory, request: &Value, stderr: &str) -> String {
    let path = place.path().join("request.json");
    fs::write(&path, request.to_string()).unwrap();
    let (binary, store) = (env!("CARGO_BIN_EXE_cofferdam"), place.store());
    let line =
        format!("{binary} job run {} --store-dir {} {stderr}", path.display(), store.display());
    let script = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    assert!(script.status.success(), "{script:?}");
    String::from_utf8(script.stdout).unwrap()
}

#[test]
fn a_terminal_shows_an_indented_result_and_a_progress_line_that_is_cleared() {
    let place = JobDirectory::new(&[]);
    let request = place.script("printf '\\302\\2332J'; sleep 1");
    let text = on_a_terminal(&place, &request, "2>/dev/null");
    assert!(text.starts_with("{\r\n  \"job_id\": \"job_"), "{text}");
    assert!(!text.contains('\u{9b}') && !text.contains('\u{1b}'), "{text:?}");
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(result["stdout"]["text"], "\u{9b}2J");

    let text = on_a_terminal(&place, &request, "");
    let (progress, result) = text.split_once('{').unwrap();
    assert!(progress.contains("running "), "{progress:?}");
    assert!(progress.contains("stdout 4 B, stderr 0 B"), "{progress:?}");
    assert!(progress.ends_with("\r\u{1b}[K") && result.ends_with("}\r\n"), "{text:?}");
}
