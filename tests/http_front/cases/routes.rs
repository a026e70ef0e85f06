//! The answers and refusals of each route.

use std::time::Duration;

use cofferdam::case::file::{CaseCode, CaseFinding};
use cofferdam::case::harness::CaseDenial;
use cofferdam::case::service::{CaseRunQuery, CaseRunStatus, CaseRunsError};
use cofferdam::config::Tokens;
use cofferdam::http::HttpSettings;
use cofferdam_test_server::exposition::Exposition;
use serde_json::{Value, json};

use super::scripted::{Asked, ScriptedCases};
use super::{post_to, serve};
use crate::jobs::{assert_error, get, request};
use crate::support::{ScriptedChecks, settings, start};

const CASE: &str = r#"{"path":"/srv/cases/a"}"#;

fn json_of(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

fn asked(input: &str) -> Asked {
    Asked {
        owner: String::new(),
        input: vec![input.to_owned()],
        trials: None,
        harnesses: Vec::new(),
        models: Vec::new(),
        key: None,
    }
}

#[test]
fn a_case_is_accepted_by_its_path_with_its_cells_and_key() {
    let cases = ScriptedCases::new();
    let server = serve(&cases, settings());
    let answer = server.ask(post_to("/v1/cases", "", CASE));
    answer.assert_json(202, r#"{"run_id":"live","status":"queued"}"#);
    assert_eq!(answer.header("location"), Some("/v1/cases/live"));
    let more = r#"{"path":"/a","trials":3,"harnesses":["nop"],"models":["m","n"]}"#;
    for headers in ["idempotency-key: k\r\n", "idempotency-key: k\r\n", ""] {
        assert_eq!(server.ask(post_to("/v1/cases", headers, more)).status, 202);
    }
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let expected = Asked {
        trials: Some(3),
        harnesses: names(&["nop"]),
        models: names(&["m", "n"]),
        key: Some("k".to_owned()),
        ..asked("/a")
    };
    let submitted = cases.submitted.lock().unwrap();
    assert_eq!(submitted[..2], [asked("/srv/cases/a"), expected]);
    let digests = cases.digests.lock().unwrap();
    assert_eq!((digests.len(), &digests[0]), (2, &digests[1]));
}

#[test]
fn a_request_that_is_not_one_is_refused_by_the_field() {
    let cases = ScriptedCases::new();
    let server = serve(&cases, settings());
    for body in ["", "{", "nonsense", "PK", "\u{feff}{}"] {
        let answer = server.ask(post_to("/v1/cases", "", body));
        assert_error(&answer, 400, "validation.invalid_request");
    }
    for (target, body, field) in [
        ("/v1/cases", "[]", "body"),
        ("/v1/cases", "{}", "path"),
        ("/v1/cases", r#"{"path":7}"#, "path"),
        ("/v1/cases", r#"{"path":"a"}"#, "path"),
        ("/v1/cases", r#"{"path":"/a","path":"/b"}"#, "path"),
        ("/v1/cases", r#"{"path":"/a","trials":0}"#, "trials"),
        ("/v1/cases", r#"{"path":"/a","trials":"2"}"#, "trials"),
        ("/v1/cases", r#"{"path":"/a","trials":1.5}"#, "trials"),
        ("/v1/cases", r#"{"path":"/a","harnesses":"nop"}"#, "harnesses"),
        ("/v1/cases", r#"{"path":"/a","models":["m",4.1]}"#, "models[1]"),
        ("/v1/cases", r#"{"path":"/a","executor":"sandboxed"}"#, "executor"),
        ("/v1/cases", r#"{"path":"/a","run_id":"x"}"#, "run_id"),
        ("/v1/cases?trials=2", CASE, "trials"),
    ] {
        let answer = server.ask(post_to(target, "", body));
        let error = assert_error(&answer, 422, "validation.invalid_request");
        assert_eq!(error["details"]["field"], field, "{body}");
    }
    let local = server.ask(post_to("/v1/cases", "", r#"{"path":"/a","executor":"local"}"#));
    let error = assert_error(&local, 403, "policy.executor_denied");
    assert_eq!(error["details"]["denials"][0]["path"], "executor");
    let key = server.ask(post_to("/v1/cases", "idempotency-key: a b\r\n", CASE));
    assert_error(&key, 422, "validation.invalid_request");
    let coded = server.ask(post_to("/v1/cases", "content-encoding: gzip\r\n", CASE));
    assert_error(&coded, 415, "validation.invalid_request");
    let long = server.ask(post_to("/v1/cases", "", [b' '; 1001]));
    let error = assert_error(&long, 413, "validation.too_large");
    assert_eq!(error["details"]["bytes_max"], 1000);
    assert_eq!(long.header("connection"), Some("close"));
    assert!(cases.submitted.lock().unwrap().is_empty());
}

#[test]
fn what_an_archive_cannot_be_is_refused_before_it_is_submitted() {
    let cases = ScriptedCases::new();
    let server = serve(&cases, settings());
    for (target, body, field) in [
        ("/v1/cases?path=/a", &b"\x1f\x8b\x08"[..], "path"),
        ("/v1/cases?trials=x", b"PK\x03\x04", "trials"),
        ("/v1/cases", b"\x1f\x8b\x08 and no more", "body"),
        ("/v1/cases", b"PK\x03\x04 and no more", "body"),
    ] {
        let answer = server.ask(post_to(target, "", body));
        let error = assert_error(&answer, 422, "validation.invalid_request");
        assert_eq!(error["details"]["field"], field, "{target}");
    }
    assert!(cases.submitted.lock().unwrap().is_empty());
    assert_eq!(cases.staged(), 0, "what was staged is left");
}

#[test]
fn every_refusal_has_its_status_and_its_details() {
    let cases = ScriptedCases::new();
    let server = serve(&cases, settings());
    let retry_after = Duration::from_millis(1500);
    let finding = CaseFinding {
        path: "task.prompt".to_owned(),
        code: CaseCode::Missing,
        message: "missing".to_owned(),
    };
    let denial = CaseDenial {
        path: "harnesses.a.api_key_env".to_owned(),
        code: "policy.secret_denied",
        message: "a key is a secret".to_owned(),
    };
    let finding_json = json!({"path": "task.prompt", "code": "missing", "message": "missing"});
    let denial_json = json!({
        "path": "harnesses.a.api_key_env",
        "code": "policy.secret_denied",
        "message": "a key is a secret",
    });
    for (error, status, code, details, soon) in [
        (
            CaseRunsError::InvalidCase { errors: vec![finding] },
            422,
            "validation.invalid_case",
            json!({ "errors": [finding_json] }),
            None,
        ),
        (CaseRunsError::PathDenied, 403, "policy.path_denied", json!({"field": "path"}), None),
        (
            CaseRunsError::Denied(vec![denial]),
            403,
            "policy.secret_denied",
            json!({ "denials": [denial_json] }),
            None,
        ),
        (
            CaseRunsError::QueueFull { queue_max: 2, retry_after },
            503,
            "queue.full",
            json!({"queue_max": 2}),
            Some("2"),
        ),
        (CaseRunsError::Draining { retry_after }, 503, "queue.closed", json!({}), Some("2")),
        (CaseRunsError::IdempotencyConflict, 409, "case.conflict", json!({}), None),
        (CaseRunsError::Store("disk".to_owned()), 500, "case.store_failed", json!({}), None),
    ] {
        *cases.refusal.lock().unwrap() = Some(error);
        let answer = server.ask(post_to("/v1/cases", "", CASE));
        let error = assert_error(&answer, status, code);
        assert_eq!(error["details"], details);
        assert_eq!(answer.header("retry-after"), soon, "{code}");
    }
}

#[test]
fn a_run_is_shown_listed_and_canceled() {
    let cases = ScriptedCases::new();
    let server = serve(&cases, settings());
    let view = server.ask(get("/v1/cases/live"));
    assert_eq!(view.status, 200, "{view:?}");
    let view = json_of(&view.body);
    assert_eq!((&view["status"], &view["cells"]["done"]), (&json!("running"), &json!(2)));
    let listed = server.ask(get("/v1/cases?status=done&limit=7&cursor=1%3D"));
    let listed = json_of(&listed.body);
    assert_eq!(
        (&listed["runs"][0]["run_id"], &listed["next_cursor"]),
        (&json!("live"), &json!("2="))
    );
    let query =
        CaseRunQuery { status: Some(CaseRunStatus::Done), limit: 7, cursor: Some("1=".to_owned()) };
    assert_eq!(*cases.listed.lock().unwrap(), [query]);
    assert_error(&server.ask(get("/v1/cases?limit=0")), 422, "validation.invalid_request");
    let canceled = server.ask(post_to("/v1/cases/live/cancel", "", ""));
    canceled.assert_json(202, r#"{"run_id":"live","status":"running"}"#);
    assert_error(&server.ask(post_to("/v1/cases/ended/cancel", "", "")), 409, "case.conflict");
}

#[test]
fn documents_of_agents_are_sent_so_that_no_browser_runs_them() {
    let cases = ScriptedCases::new();
    let server = serve(&cases, settings());
    for (name, media_type, body) in [
        ("results", "application/json", r#"{"cells":[]}"#),
        ("junit.xml", "application/xml", "<testsuites/>"),
        ("report.html", "text/html; charset=utf-8", "<!DOCTYPE html>"),
    ] {
        let answer = server.ask(get(&format!("/v1/cases/ended/{name}")));
        assert_eq!((answer.status, answer.body.as_str()), (200, body));
        assert_eq!(answer.header("content-type"), Some(media_type));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    let policy = server.ask(get("/v1/cases/ended/report.html"));
    let policy = policy.header("content-security-policy").unwrap().to_owned();
    assert!(
        policy.starts_with("default-src 'none'; ") && policy.ends_with("; sandbox"),
        "{policy}"
    );
    assert!(!policy.contains("script"), "{policy}");
}

#[test]
fn a_run_belongs_to_its_token() {
    let cases = ScriptedCases::new();
    let tokens =
        Tokens::of([("one", "first-token-0123456789"), ("two", "second-token-0123456789")]);
    let server = serve(&cases, HttpSettings { tokens, ..settings() });
    let as_one = "authorization: Bearer first-token-0123456789\r\n";
    let as_two = "authorization: Bearer second-token-0123456789\r\n";
    assert_eq!(server.ask(post_to("/v1/cases", as_one, CASE)).status, 202);
    assert_eq!(cases.submitted.lock().unwrap()[0].owner, "one");
    for path in ["", "/results", "/junit.xml", "/report.html", "/events"] {
        let target = format!("/v1/cases/ended{path}");
        assert_eq!(server.ask(request("GET", &target, as_one)).status, 200, "{target}");
        let other = server.ask(request("GET", &target, as_two));
        assert_error(&other, 404, "case.not_found");
        assert_error(&server.ask(get(&target)), 401, "auth.required");
    }
    let other = server.ask(post_to("/v1/cases/live/cancel", as_two, ""));
    assert_error(&other, 404, "case.not_found");
    let listed = json_of(&server.ask(request("GET", "/v1/cases", as_two)).body);
    assert_eq!(listed["runs"], json!([]));
}

#[test]
fn routes_without_the_service_and_other_methods_are_as_everywhere() {
    let cases = ScriptedCases::new();
    let server = serve(&cases, settings());
    assert_error(&server.ask(get("/v1/cases/none")), 404, "case.not_found");
    assert_error(&server.ask(get("/v1/cases/live/other")), 404, "job.not_found");
    for (method, target) in
        [("DELETE", "/v1/cases/live"), ("GET", "/v1/cases/live/cancel"), ("PUT", "/v1/cases")]
    {
        let answer = server.ask(request(method, target, ""));
        assert_error(&answer, 405, "validation.invalid_request");
    }
    let without = start(ScriptedChecks::echo(), settings());
    assert_error(&without.ask(post_to("/v1/cases", "", CASE)), 404, "job.not_found");
    assert!(!without.ask(get("/metrics")).body.contains("cofferdam_case_runs"));
}

#[test]
fn runs_are_counted_and_end_with_the_service() {
    let cases = ScriptedCases::new();
    let server = serve(&cases, settings());
    let status = json_of(&server.ask(get("/status")).body);
    let expected = json!({"queued": 3, "running": 2, "cells_running": 4, "workers": 5});
    assert_eq!(status["cases"], expected);
    let scraped = Exposition::parse(&server.ask(get("/metrics")).body);
    let value = |name: &str| scraped.all(name).map(|sample| sample.value).sum::<f64>();
    for (name, expected) in [
        ("cofferdam_case_runs_total", 7.0),
        ("cofferdam_case_runs_queued", 3.0),
        ("cofferdam_case_runs_running", 2.0),
        ("cofferdam_cells_total", 11.0),
        ("cofferdam_cells_running", 4.0),
        ("cofferdam_cells_max", 5.0),
        ("cofferdam_cells_seconds_total", 1.5),
    ] {
        assert!((value(name) - expected).abs() < 1e-9, "{name}: {}", value(name));
    }
    drop(server);
    let told = cases.told.lock().unwrap();
    assert_eq!(told.first(), Some(&"start_draining"), "{told:?}");
    assert!(told.contains(&"interrupt_all") && told.contains(&"wait_idle"), "{told:?}");
}
