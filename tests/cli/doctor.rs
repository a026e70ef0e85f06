//! `cofferdam doctor`: what this host enforces.

use cofferdam_test_server::client::request;
use cofferdam_test_server::service::{Service, Setup};
use serde_json::{Value, json};

use crate::support::{cofferdam, has_keys_in_order};

#[test]
fn every_control_has_a_status_and_a_fix_unless_it_is_enforced() {
    let done = cofferdam("doctor --json").run().exits(0).quietly();
    let text = done.stdout();
    let keys = ["controls", "name", "status", "reason", "fix", "workspaces", "environment"];
    has_keys_in_order(&text, &keys);
    let report: Value = serde_json::from_str(&text).unwrap();
    let controls = report["controls"].as_array().unwrap();
    assert!(controls.iter().any(|control| control["name"] == "seccomp"), "{text}");
    let rows = [&controls[..], &report["workspaces"].as_array().unwrap()[..]].concat();
    for control in &rows {
        let status = control["status"].as_str().unwrap();
        assert!(["enforced", "degraded", "missing"].contains(&status), "{control}");
        assert_ne!(control["reason"], "", "{control}");
        assert_eq!(control["fix"] == "", status == "enforced", "{control}");
    }
    let lines = cofferdam("doctor").run().exits(0).quietly();
    let text = lines.stdout();
    for control in &rows {
        let shows_control = |line: &str| {
            let words: Vec<&str> = line.split("  ").map(str::trim).collect();
            words.first().is_some_and(|name| control["name"] == *name)
                && line.contains(control["status"].as_str().unwrap())
        };
        lines
            .holds(text.lines().filter(|line| shows_control(line)).count() == 1, "a line for each");
    }
    lines.holds(text.lines().all(|line| line.chars().count() <= 100), "lines that fit a terminal");
    let environment = report["environment"].as_str().unwrap();
    lines.holds(text.contains(&format!("environment: {environment};")), "the environment");
}

/// As a user who may not create sandboxes and has no directory to write to.
#[test]
fn a_host_without_sandboxes_gets_a_report_and_its_own_exit_code() {
    let doctor = |options: &str| {
        // The tmpfs on /tmp may hide the binary, so it is opened first.
        let binary = env!("CARGO_BIN_EXE_cofferdam");
        let script = format!(
            "exec 3<{binary} && mount -t tmpfs -o mode=755 tmpfs /tmp && \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/3 doctor {options}"
        );
        let call = ["--mount", "sh", "-c", &script];
        std::process::Command::new("unshare").args(call).output().unwrap()
    };
    let output = doctor("--json");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(125), ""), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let controls = report["controls"].as_array().unwrap();
    let whole = controls.iter().find(|control| control["name"] == "whole box").unwrap();
    assert_eq!(whole["status"], "missing", "{whole}");
    assert!(whole["reason"].as_str().unwrap().ends_with("; not started as root"), "{whole}");
    assert_ne!(whole["fix"], "", "{whole}");
    let output = doctor("");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.ends_with("no sandbox can be created: a service would not start\n"), "{text}");
    assert_eq!(doctor("--strict").status.code(), Some(1));
}

#[test]
fn strict_fails_unless_everything_is_enforced() {
    let report = cofferdam("doctor --json").run().exits(0).stdout();
    let report: Value = serde_json::from_str(&report).unwrap();
    let controls = report["controls"].as_array().unwrap();
    let whole = controls.iter().all(|control| control["status"] == "enforced");
    cofferdam("doctor --strict").run().exits(if whole { 0 } else { 1 });
}

/// What doctor tried is what a service does.
#[test]
fn what_doctor_tells_about_workspaces_is_what_a_service_has() {
    let store = tempfile::tempdir().unwrap();
    let place = store.path().join("engine");
    let report = cofferdam("doctor --json")
        .env("ENGINE_STORE_DIR", place.to_str().unwrap())
        .run()
        .exits(0)
        .stdout();
    assert!(!place.exists(), "doctor leaves nothing");
    let report: Value = serde_json::from_str(&report).unwrap();
    let rows = report["workspaces"].as_array().unwrap();
    let status = |name| &rows.iter().find(|row| row["name"] == name).unwrap()["status"];
    let service = Setup::shell().env("ENGINE_STORE_DIR", &place).start();
    if status("workspaces") == "missing" {
        assert_eq!((rows.len(), service.get("/v1/engine").status), (1, 404));
        return;
    }
    let engine: Value = serde_json::from_str(&service.get("/v1/engine").body).unwrap();
    assert_eq!(status("workspace forks") == "enforced", engine["fork"] == "overlay");
    let on_disk = json!({"policy": {"storage": "disk"}});
    let created = post(&service, "/v1/workspaces", &on_disk).0;
    let expected = if status("workspace on disk") == "enforced" { 201 } else { 503 };
    assert_eq!(created, expected, "{report}");
    let shared = json!({"sandbox": "workspace"});
    let created = post(&service, "/v1/workspaces", &shared).0;
    let expected = if status("shared sandbox") == "enforced" { 201 } else { 503 };
    assert_eq!(created, expected, "{report}");
    let workspace = post(&service, "/v1/workspaces", &json!({})).1;
    let path = format!("/v1/workspaces/{}", workspace["workspace_id"].as_str().unwrap());
    let fork = post(&service, &format!("{path}/fork"), &json!({})).1;
    let path = format!("/v1/workspaces/{}/run", fork["workspace_id"].as_str().unwrap());
    let result = post(&service, &path, &json!({"cmd": "true"})).1;
    let shares = result["not_enforced"].to_string().contains("shares it with its forks");
    assert_eq!(shares, status("workspace ids") != "enforced", "{result}");
}

fn post(service: &Service, target: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let head = request("POST", target, &format!("content-length: {}\r\n", body.len()));
    let answer = service.ask([head, body].concat());
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

#[test]
fn doctor_tells_where_the_files_of_evaluations_lie_and_whether_their_directory_can_be_used() {
    let place = tempfile::TempDir::new().unwrap();
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("open")).unwrap();
    std::os::unix::fs::symlink(at("new"), at("link")).unwrap();
    let row = |base: &str| {
        let done = cofferdam("doctor --json")
            .env("WORKSPACE_BASE", at(base).to_str().unwrap())
            .run()
            .exits(0);
        let report: Value = serde_json::from_str(&done.stdout()).unwrap();
        let rows = report["workspaces"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == "evaluation files").unwrap().clone()
    };
    for (base, words) in [("open", "mode 0700"), ("link", "not a link")] {
        let row = row(base);
        assert_eq!(row["status"], "missing", "{row}");
        assert!(row["reason"].as_str().unwrap().contains(words), "{row}");
        assert!(row["fix"].as_str().unwrap().contains("WORKSPACE_BASE"), "{row}");
    }
    let row = row("new");
    let starts = if row["status"] == "enforced" { "on disk" } else { "in memory" };
    assert!(row["reason"].as_str().unwrap().starts_with(starts), "{row}");
    // Doctor makes nothing.
    assert!(!at("new").exists());
}

#[test]
fn doctor_tells_how_many_runtimes_are_started_ahead_or_why_none() {
    let row = |name: &str, value: &str| {
        let done = cofferdam("doctor --json").env(name, value).run().exits(0);
        let report: Value = serde_json::from_str(&done.stdout()).unwrap();
        let controls = report["controls"].as_array().unwrap();
        let is_counted =
            controls.iter().any(|row| row["name"] == "memory" && row["status"] == "enforced");
        let rows = report["workspaces"].as_array().unwrap();
        (rows.iter().find(|row| row["name"] == "runtimes ahead").unwrap().clone(), is_counted)
    };
    for (name, value, words) in
        [("PRESTART", "off", "PRESTART"), ("STANDBY_MAX", "0", "STANDBY_MAX")]
    {
        let (row, _) = row(name, value);
        assert_eq!(row["status"], "missing", "{row}");
        assert!(row["reason"].as_str().unwrap().contains(words), "{row}");
    }
    let (row, is_counted) = row("STANDBY_MEMORY_MAX", "96MiB");
    assert_eq!(row["status"] == "enforced", is_counted, "{row}");
    let words = if is_counted { "96 MiB" } else { "not counted" };
    assert!(row["reason"].as_str().unwrap().contains(words), "{row}");
}
