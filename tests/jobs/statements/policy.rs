//! Statements 8 to 17: the policy.

use std::fs;

use cofferdam_core::values::digest::sha256_of;
use serde_json::{Value, json};

use crate::doors::{Door, Doors, EACH, doors, post_job};
use crate::workspace::{Workspace, with};

/// Asserts that a result is a denial with `code`, and that nothing ran.
#[track_caller]
fn assert_denied(result: &Value, code: &str) {
    assert_eq!(result["status"], "policy_denied", "{result}");
    assert_eq!(result["error"]["code"], code, "{result}");
    assert_eq!(result["policy"]["decision"], "denied", "{result}");
    assert_eq!(result["policy"]["reasons"][0], code, "{result}");
    for nothing in ["exit_code", "signal", "usage", "snapshot"] {
        assert_eq!(result[nothing], Value::Null, "{result}");
    }
    assert_eq!((&result["stdout"]["bytes"], &result["artifacts"]), (&json!(0), &json!([])));
}

#[track_caller]
fn denied(doors: &Doors, door: Door, request: &Value, code: &str) -> Value {
    let result = doors.result(door, request);
    assert_denied(&result, code);
    result["error"].clone()
}

/// The digest of a host file.
fn digest_of(path: &str) -> String {
    sha256_of(&fs::read(path).unwrap())
}

#[test]
fn s08_a_denied_job_is_accepted_and_ends_denied() {
    let Some(doors) = doors() else { return };
    let request = with(Workspace::python("").run_main(), "policy.allowed_commands", json!(["ls"]));
    let answer = post_job(doors.service(), &request);
    assert_eq!(answer.status, 202, "{answer:?}");
    for door in EACH {
        let error = denied(&doors, door, &request, "policy.command_denied");
        assert_eq!(error["details"]["argv0"], "python3", "{error}");
    }
}

#[test]
fn s09_an_allowed_command_is_a_name_or_an_object() {
    let Some(doors) = doors() else { return };
    let path = fs::canonicalize("/usr/bin/python3").unwrap();
    let digest = digest_of("/usr/bin/python3");
    for door in EACH {
        for allowed in [
            json!("python3"),
            json!({"basename": "python3"}),
            json!({"basename": "python3", "path": "/usr/bin/python3"}),
            json!({"basename": "python3", "path": path}),
            json!({"path": "/usr/bin/python3", "sha256": digest}),
            json!({"basename": "python3", "path": path, "sha256": digest.to_uppercase()}),
        ] {
            let workspace = Workspace::python("print(1)");
            let request = with(workspace.run_main(), "policy.allowed_commands", json!([allowed]));
            let result = doors.result(door, &request);
            assert_eq!(result["stdout"]["text"], "1\n", "{door:?}: {result}");
        }
    }
}

#[test]
fn s10_the_first_fault_of_command_shell_env_artifacts_network_backend_and_snapshot_is_reported() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::empty();
    let mut request = workspace.request(&["bash", "-c", "true"]);
    request = with(request, "policy.allowed_commands", json!([]));
    request = with(request, "command.env", json!({"SECRET": "x"}));
    request = with(request, "policy.artifacts", json!({"include": ["../x"]}));
    request = with(request, "policy.network", "host");
    request = with(request, "backend", json!({"kind": "firecracker"}));
    request = with(request, "workspace.path", "/nowhere/at/all");
    for (code, pointer, mended) in [
        ("policy.command_denied", "policy.allowed_commands", json!(["bash"])),
        ("policy.shell_denied", "policy.allow_shell", json!(true)),
        ("policy.env_denied", "policy.allowed_env", json!(["SECRET"])),
        ("policy.artifact_denied", "policy.artifacts", json!({"include": ["x"]})),
        ("policy.network_denied", "policy.network", json!("none")),
        ("backend.unavailable", "backend", json!({"kind": "local_process"})),
        ("backend.setup_failed", "workspace.path", json!(workspace.path())),
    ] {
        for door in EACH {
            let result = doors.result(door, &request);
            assert_eq!(result["error"]["code"], code, "{door:?}: {result}");
        }
        request = with(request, pointer, mended);
    }
    for door in EACH {
        assert_eq!(doors.result(door, &request)["status"], "completed");
    }
}

#[test]
fn s11_without_allowed_commands_everything_is_denied() {
    let Some(doors) = doors() else { return };
    let mut request = Workspace::python("").run_main();
    request.as_object_mut().unwrap().remove("policy");
    for door in EACH {
        denied(&doors, door, &request, "policy.command_denied");
    }
}

#[test]
fn s12_a_workspace_file_never_counts_as_an_allowed_program() {
    let Some(doors) = doors() else { return };
    let fake = "#!/bin/sh\necho fake\n";
    let workspace = Workspace::python("print('real')")
        .executable("python3", fake)
        .executable("bin/python3", fake);
    for door in EACH {
        for argv0 in ["./python3", "bin/python3", "/workspace/python3", "../usr/bin/python3"] {
            let request = workspace.request(&[argv0, "main.py"]);
            let request = with(request, "policy.allowed_commands", json!(["python3"]));
            denied(&doors, door, &request, "policy.command_denied");
        }
        for argv0 in ["python3", "/usr/bin/python3"] {
            let request = workspace.request(&[argv0, "main.py"]);
            let request = with(request, "policy.allowed_commands", json!(["python3"]));
            assert_eq!(doors.result(door, &request)["stdout"]["text"], "real\n", "{door:?}");
        }
        let request = workspace.request(&["bin/python3"]);
        let allowed = json!([{"path": "/workspace/bin/python3"}]);
        let request = with(request, "policy.allowed_commands", allowed);
        assert_eq!(doors.result(door, &request)["stdout"]["text"], "fake\n", "{door:?}");
    }
}

#[test]
fn s13_a_pinned_program_is_the_exact_file_that_was_hashed() {
    let Some(doors) = doors() else { return };
    let workspace =
        Workspace::python("import sys; print('ran')").executable("tool", "#!/bin/sh\necho tool\n");
    let digest = digest_of("/usr/bin/python3");
    let target = fs::canonicalize("/usr/bin/python3").unwrap();
    let pinned =
        |entry: Value| with(workspace.run_main(), "policy.allowed_commands", json!([entry]));
    for door in EACH {
        let right = json!({"basename": "python3", "path": "/usr/bin/python3", "sha256": digest});
        let result = doors.result(door, &pinned(right));
        assert_eq!(result["stdout"]["text"], "ran\n", "{door:?}: {result}");
        let executable = &result["command"]["executable"];
        assert_eq!(*executable, json!({"path": target, "sha256": digest}), "{door:?}");

        let wrong = json!({"basename": "python3", "sha256": "0".repeat(64)});
        let error = denied(&doors, door, &pinned(wrong), "policy.command_denied");
        assert_eq!(error["details"]["expected"], "0".repeat(64), "{error}");
        assert_eq!(error["details"]["actual"], digest, "{error}");
        let elsewhere = json!({"basename": "python3", "path": "/usr/local/bin/python3"});
        denied(&doors, door, &pinned(elsewhere), "policy.command_denied");

        let tool = digest_of(workspace.path().join("tool").to_str().unwrap());
        for (digest, code) in
            [(tool, Value::Null), ("1".repeat(64), json!("policy.command_denied"))]
        {
            let allowed = json!([{"path": "/workspace/tool", "sha256": digest}]);
            let request = with(workspace.request(&["./tool"]), "policy.allowed_commands", allowed);
            assert_eq!(doors.result(door, &request)["error"]["code"], code, "{door:?}");
        }
    }
}

#[test]
fn s14_a_shell_or_a_wrapper_needs_allow_shell() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::empty();
    for door in EACH {
        for argv in [
            &["sh", "-c", "true"][..],
            &["bash", "-c", "true"],
            &["dash", "-c", "true"],
            &["/bin/sh", "-c", "true"],
            &["env"],
            &["/usr/bin/env", "python3", "-c", "1"],
            &["env", "A=1", "sh", "-c", "true"],
            &["timeout", "5", "sh", "-c", "true"],
            &["nice", "-n", "5", "env", "sh", "-c", "true"],
            &["xargs", "sh", "-c", "true"],
            &["find", ".", "-exec", "sh", "-c", "true", ";"],
        ] {
            let allowed = json!(["sh", "env", "bash", "dash", "timeout", "nice", "xargs", "find"]);
            let request = with(workspace.request(argv), "policy.allowed_commands", allowed);
            let error = denied(&doors, door, &request, "policy.shell_denied");
            assert_eq!(error["details"]["argv0"], argv[0], "{error}");
            let allowing = with(request, "policy.allow_shell", true);
            let result = doors.result(door, &allowing);
            assert_eq!(result["status"], "completed", "{door:?} {argv:?}: {result}");
            // The allow-list applies to a wrapper as to a shell.
            let unlisted = with(allowing, "policy.allowed_commands", json!(["python3"]));
            denied(&doors, door, &unlisted, "policy.command_denied");
        }
        let request = workspace.request(&["python3", "-c", "print('no shell')"]);
        assert_eq!(doors.result(door, &request)["stdout"]["text"], "no shell\n");
    }
}

#[test]
fn s15_the_environment_has_only_allowed_variables() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::empty();
    for door in EACH {
        let result = doors.result(door, &workspace.request(&["printenv"]));
        assert_eq!(
            (&result["status"], &result["stdout"]["text"]),
            (&json!("completed"), &json!(""))
        );

        let secret = "hunter2-in-no-record";
        let request =
            with(workspace.request(&["printenv"]), "command.env", json!({"TOKEN": secret}));
        let mut error = denied(&doors, door, &request, "policy.env_denied");
        assert_eq!(error["details"]["key"], "TOKEN", "{error}");
        assert!(!error.take().to_string().contains(secret));
        let result = doors.result(door, &request);
        assert!(!result.to_string().contains(secret), "{result}");

        let env = json!({"ALLOWED_BY_RUNNER": "1", "ALLOWED": "2", "LD_PRELOAD": ""});
        let request = with(workspace.request(&["printenv"]), "command.env", env);
        let request = with(request, "policy.allowed_env", json!(["ALLOWED", "LD_PRELOAD"]));
        let result = doors.result(door, &request);
        let text = result["stdout"]["text"].as_str().unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["ALLOWED=2", "ALLOWED_BY_RUNNER=1", "LD_PRELOAD="], "{door:?}");
        assert_eq!(result["policy"]["reasons"], json!(["dangerous_env:LD_PRELOAD"]), "{door:?}");

        for name in ["A-B", "1A", "A=B", ""] {
            let request = with(workspace.request(&["printenv"]), "command.env", json!({name: "x"}));
            let error = doors.refusal(door, &request);
            assert_eq!(error["code"], "validation.invalid_request", "{error}");
        }
    }
}

#[test]
fn s16_there_is_no_network_and_the_result_says_so() {
    let Some(doors) = doors() else { return };
    let program = "\
import errno, socket
print(open('/proc/net/dev').read().count(':'))
try:
    socket.create_connection(('192.0.2.1', 80), timeout=2)
except OSError as error:
    print(errno.errorcode[error.errno])
";
    let workspace = Workspace::python(program);
    for door in EACH {
        let result = doors.result(door, &workspace.run_main());
        assert_eq!(result["stdout"]["text"], "1\nENETUNREACH\n", "{door:?}: {result}");
        assert_eq!(result["policy"]["network"], "none");
        assert_eq!(result["policy"]["network_enforced"], true, "{result}");
        let request = with(workspace.run_main(), "policy.network", "host");
        denied(&doors, door, &request, "policy.network_denied");
        let request =
            with(workspace.run_main(), "policy.require_enforced", json!(["network", "seccomp"]));
        assert_eq!(doors.result(door, &request)["status"], "completed");
    }
}

#[test]
fn s17_every_result_has_the_decision_and_its_version() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("");
    for door in EACH {
        let allowed = workspace.run_main();
        let mut versions = Vec::new();
        for (request, decision) in [
            (allowed.clone(), "allowed"),
            (with(allowed.clone(), "policy.allowed_commands", json!([])), "denied"),
            (with(allowed.clone(), "workspace.path", "/nowhere/at/all"), "allowed"),
            (with(allowed.clone(), "backend", json!({"kind": "firecracker"})), "allowed"),
        ] {
            let result = doors.result(door, &request);
            assert_eq!(result["policy"]["decision"], decision, "{door:?}: {result}");
            let version = result["policy"]["version"].as_str().unwrap().to_owned();
            assert!(version.strip_prefix("v1:").is_some_and(|hash| hash.len() == 64), "{version}");
            versions.push(version);
        }
        assert_eq!(versions[0], versions[2], "the same policy");
        assert_ne!(versions[0], versions[1], "another one");
    }
}
