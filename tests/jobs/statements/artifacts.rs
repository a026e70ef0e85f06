//! Statements 26 and 27: the artifacts of a job.

use std::fs;

use cofferdam_core::values::digest::sha256_of;
use serde_json::{Value, json};

use crate::doors::{EACH, doors};
use crate::workspace::{Workspace, with};

fn paths(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap()).collect()
}

#[test]
fn s26_artifacts_are_requested_regular_files_within_their_limits() {
    let Some(doors) = doors() else { return };
    let program = "\
import os
os.makedirs('out/deep')
for name, size in [('a.txt', 3), ('deep/b', 100), ('c.key', 1), ('d.log', 1)]:
    open('out/' + name, 'w').write('x' * size)
os.symlink('/etc/passwd', 'out/link')
os.mkfifo('out/fifo')
open('elsewhere', 'w').write('x')
";
    let workspace = Workspace::python(program);
    let patterns = json!({"include": ["out/**"], "deny": ["**/*.log"]});
    let request = with(workspace.run_main(), "policy.artifacts", patterns);
    let request = with(request, "limits.artifact_file_bytes", 50);
    for door in EACH {
        let result = doors.result(door, &request);
        assert_eq!(result["status"], "completed", "{door:?}: {result}");
        assert_eq!(paths(&result["artifacts"]), ["out/a.txt", "out/deep/b"], "{result}");
        for (index, bytes, truncated) in [(0, 3, false), (1, 50, true)] {
            let artifact = &result["artifacts"][index];
            let contents = "x".repeat(bytes);
            assert_eq!(artifact["bytes"], bytes);
            assert_eq!(artifact["sha256"], sha256_of(contents.as_bytes()));
            assert_eq!(artifact["truncated"], truncated);
            let uri = artifact["uri"].as_str().unwrap();
            let file = uri.strip_prefix("file://").unwrap();
            assert!(
                std::path::Path::new(file)
                    .starts_with(fs::canonicalize(doors.store(door)).unwrap()),
                "{uri}"
            );
            assert_eq!(fs::read_to_string(file).unwrap(), contents);
        }
        let omitted = json!([
            {"path": "out/c.key", "reason": "secret"},
            {"path": "out/d.log", "reason": "denied"},
            {"path": "out/fifo", "reason": "not_a_regular_file"},
            {"path": "out/link", "reason": "not_a_regular_file"},
        ]);
        assert_eq!(result["artifacts_omitted"], omitted, "{door:?}");
    }
}

#[test]
fn s26_artifacts_above_the_count_or_the_total_are_listed_as_omitted() {
    let Some(doors) = doors() else { return };
    let program = "[open(f'o{n}', 'w').write('x' * 10) for n in range(5)]";
    let workspace = Workspace::python(program);
    let request = with(workspace.run_main(), "policy.artifacts", json!({"include": ["o*"]}));
    for door in EACH {
        for (limit, value, kept, reason) in [
            ("artifact_count", 2, 2, "count_limit"),
            ("artifact_total_bytes", 35, 3, "total_limit"),
        ] {
            let request = with(request.clone(), &format!("limits.{limit}"), value);
            let result = doors.result(door, &request);
            assert_eq!(result["status"], "completed", "{door:?}: {result}");
            assert_eq!(result["artifacts"].as_array().unwrap().len(), kept, "{result}");
            let omitted = result["artifacts_omitted"].as_array().unwrap();
            assert_eq!(omitted.len(), 5 - kept, "{result}");
            assert!(omitted.iter().all(|file| file["reason"] == reason), "{result}");
        }
    }
}

#[test]
fn s26_a_pattern_outside_the_workspace_or_for_secrets_is_denied() {
    let Some(doors) = doors() else { return };
    for door in EACH {
        for pattern in
            ["../x", "/etc/passwd", "a/../../x", ".env", "**/*.pem", "secrets/**", ".ssh/id_rsa"]
        {
            let request = Workspace::python("").run_main();
            let request = with(request, "policy.artifacts", json!({"include": ["ok", pattern]}));
            let result = doors.result(door, &request);
            assert_eq!(result["error"]["code"], "policy.artifact_denied", "{pattern}: {result}");
            assert_eq!(result["error"]["details"]["pattern"], pattern, "{result}");
        }
    }
}

#[test]
fn s27_failed_and_timed_out_jobs_have_artifacts_and_denied_ones_have_none() {
    let Some(doors) = doors() else { return };
    let fails = Workspace::python("open('log', 'w').write('why'); raise SystemExit(1)");
    let hangs = Workspace::python("open('log', 'w').write('why')\nimport time; time.sleep(600)");
    for door in EACH {
        for (workspace, status) in [(&fails, "failed"), (&hangs, "timed_out")] {
            let request =
                with(workspace.run_main(), "policy.artifacts", json!({"include": ["log"]}));
            let request = with(request, "limits.timeout_ms", 1500);
            let result = doors.result(door, &request);
            assert_eq!(result["status"], status, "{door:?}: {result}");
            assert_eq!(paths(&result["artifacts"]), ["log"], "{result}");
            let denied = with(request, "policy.allowed_commands", json!([]));
            assert_eq!(doors.result(door, &denied)["artifacts"], json!([]));
        }
    }
}
