//! What verbs print, and their exit codes.

use std::io::Read;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::recording_server::RecordingServer;
use crate::support::{ends_within, pid_of};

fn error(code: &str) -> String {
    json!({"code": code, "message": "words\u{1b}[2J", "details": {}}).to_string()
}

#[test]
fn an_error_is_one_line_on_stderr_and_its_status_gives_the_exit_code() {
    for (status, code, exit) in [
        (400, "validation.invalid_json", 2),
        (422, "validation.invalid_request", 2),
        (404, "workspace.not_found", 1),
        (401, "auth.required", 1),
        (409, "session.running", 1),
        (503, "engine.busy", 1),
        (500, "sandbox.failed", 1),
    ] {
        let server = RecordingServer::json(status, &error(code));
        for words in ["show w", "create", "get w a", "run w -- true", "attach w s", "put w - a"] {
            let done = server.workspace(words).run().exits(exit).prints("");
            assert_eq!(done.error()["code"], code, "{words}");
            done.holds(!done.stderr().contains('\u{1b}'), "an escaped control character");
        }
    }
}

#[test]
fn an_answer_of_something_else_is_named() {
    for (status, body) in [(200, "<html>"), (200, "{"), (502, "<html>"), (302, "")] {
        let server = RecordingServer::answering(status, "text/html", body);
        server.workspace("show w").run().exits(1).prints("").complains(&server.url);
    }
}

#[test]
fn get_prints_the_bytes() {
    let bytes = "a\u{0}b\r\n".repeat(50_000);
    let server = RecordingServer::answering(200, "application/octet-stream", &bytes);
    let done = server.workspace("get w").arg("a b").run().exits(0).quietly();
    assert!(done.output.stdout == bytes.as_bytes());
    assert_eq!(server.next().line, "GET /v1/workspaces/w/files?path=a%20b");
}

#[test]
fn an_answer_stays_one_line_in_the_order_of_the_service() {
    let server =
        RecordingServer::json(200, "{\n  \"b\": 18446744073709551615,\n  \"a\": \"x\\ny\"\n}\n");
    let done = server.workspace("show w").run().exits(0).quietly();
    done.prints("{   \"b\": 18446744073709551615,   \"a\": \"x\\ny\" }\n");
    RecordingServer::json(204, "").workspace("del w a").run().exits(0).prints("{}\n");
}

#[test]
fn run_passes_output_through_and_exits_like_exec() {
    let result = |more: Value| {
        let mut result =
            json!({"outcome": "exited", "exit_code": 0, "signal": null, "limit": null});
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        result.to_string()
    };
    for (more, exit) in [
        (json!({}), 0),
        (json!({"exit_code": 7}), 7),
        (json!({"outcome": "signaled", "exit_code": -1, "signal": 15}), 143),
        (json!({"outcome": "timed_out", "exit_code": -1, "limit": "wall_time"}), 124),
        (json!({"outcome": "memory_limit", "exit_code": -1, "signal": 9, "limit": "memory"}), 123),
        (json!({"outcome": "disk_limit", "exit_code": 1, "limit": "disk"}), 1),
        (json!({"outcome": "cancelled", "exit_code": -1}), 125),
    ] {
        let result = result(more.clone());
        let server = RecordingServer::events(&[
            ("stdout", "\"one\\n\""),
            ("ping", "{}"),
            ("stderr", "\"two\""),
            ("later", "[]"),
            ("stdout", "\"é\\u0000\""),
            ("result", &result),
        ]);
        let done = server.workspace("run w --timeout-ms 1s -- sh -c true").run().exits(exit);
        done.holds(done.stdout() == "one\né\0" && done.stderr() == "two", "the output");
        let request = server.next();
        assert_eq!(request.line, "POST /v1/workspaces/w/run");
        assert_eq!(request.header("accept"), Some("text/event-stream"));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body, json!({"cmd": "sh", "args": ["-c", "true"], "timeout_ms": 1000}));
    }
}

#[test]
fn a_long_event_arrives_whole() {
    let text = "x".repeat(3 << 20);
    let data = json!(text).to_string();
    let result = json!({"stdout": text, "exit_code": 0}).to_string();
    let server = RecordingServer::events(&[("stdout", &data), ("result", &result)]);
    let done = server.workspace("run w -- cat").run().exits(0).quietly();
    assert_eq!(done.output.stdout.len(), text.len());
}

#[test]
fn a_program_that_did_not_start_has_the_codes_of_exec() {
    for (errno, exit) in [("ENOENT", 127), ("EACCES", 126)] {
        let error =
            json!({"code": "run.spawn_failed", "message": "m", "details": {"errno": errno}});
        let result = json!({"outcome": "not_started", "exit_code": -1, "error": error});
        let server = RecordingServer::events(&[("result", &result.to_string())]);
        let done = server.workspace("run w -- prog").run().exits(exit).prints("");
        assert_eq!(done.error()["code"], "run.spawn_failed");
    }
}

#[test]
fn a_run_whose_events_fail_or_break_off_is_an_error() {
    let failed = error("sandbox.failed");
    for (last, words) in [
        (Some(("error", failed.as_str())), "sandbox.failed"),
        (Some(("error", "{\"error\":\"x\"}")), "the service failed"),
        (Some(("result", "7")), "the event result"),
        (Some(("stdout", "7")), "the event stdout"),
        (None, "ended before the program"),
    ] {
        let mut events = vec![("stdout", "\"partial\"")];
        events.extend(last);
        let server = RecordingServer::events(&events);
        let done = server.workspace("run w -- true").run().exits(1).prints("partial");
        done.holds(done.stderr().contains(words) && done.stderr().lines().count() == 1, words);
    }
}

/// The service ends the program when its client has gone.
#[test]
fn a_signal_ends_a_run() {
    for (signal, exit) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let server = RecordingServer::hanging("event: stdout\ndata: \"up\"\n\n");
        let mut child = server.workspace("run w -- sleep 60").spawn();
        let mut up = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        kill(pid_of(&child), signal).unwrap();
        assert_eq!(ends_within(&mut child, Duration::from_secs(5)).code(), Some(exit));
    }
}
