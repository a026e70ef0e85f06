//! Malformed requests: values of the wrong type, duplicate keys and invalid JSON.

use std::io::Write;
use std::process::{Command, Stdio};

use cofferdam_test_server::service::cofferdam;
use serde_json::{Value, json};

use crate::doors::{EACH, doors, post_to};
use crate::workspace::{Workspace, with};

/// The answer of `cofferdam job validate` to `text`.
fn validated(text: &str) -> Value {
    let mut child = Command::new(cofferdam())
        .args(["job", "validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_door_names_a_value_of_the_wrong_type() {
    let Some(doors) = doors() else { return };
    let request = Workspace::empty().request(&["true"]);
    let list = json!(["arr1", {}, ["local_path", "/x", ["**"], []], [["true"], ".", {}, ""]]);
    for (request, path) in [
        (list, "."),
        (with(request.clone(), "workspace", json!(["local_path", "/x"])), "workspace"),
        (
            with(request.clone(), "workspace.source", json!({"local_path": null})),
            "workspace.source",
        ),
        (with(request, "command.env", json!([["A", "b"]])), "command.env"),
    ] {
        for door in EACH {
            let error = doors.refusal(door, &request);
            assert_eq!(error["code"], "validation.invalid_request", "{door:?} {request}");
            assert_eq!(error["details"]["path"], path, "{door:?} {request}");
        }
        assert_eq!(validated(&request.to_string())["details"]["path"], path);
    }
}

#[test]
fn a_duplicate_key_is_422_and_invalid_json_400() {
    let Some(doors) = doors() else { return };
    let workspace = r#""workspace":{"source":"local_path","path":"/w"}"#;
    let command = r#""command":{"argv":["true"],"env":{"A":"1","A":"2"}}"#;
    let twice = format!("{{{workspace},{command}}}");
    for (text, status, path) in [
        (twice.as_str(), 422, Some("command.env.A")),
        (r#"{"trace":{"a":{"b":1,"b":1}}}"#, 422, Some("trace.a.b")),
        ("[]", 422, Some(".")),
        ("{}", 422, Some("workspace")),
        ("[7", 400, None),
        (r#"{"unknown":1"#, 400, None),
        (r#"{"workspace":7}}"#, 400, None),
    ] {
        let answer = post_to(doors.service(), "/v1/jobs", "", text);
        assert_eq!(answer.status, status, "{text}: {}", answer.body);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        for error in [body, validated(text)] {
            assert_eq!(error["details"]["path"].as_str(), path, "{text}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(!message.contains("struct") && !message.starts_with('.'), "{text}: {message}");
        }
    }
}
