//! The answers and refusals of each route.

use std::time::Duration;

use cofferdam::config::Tokens;
use cofferdam::evaluation::result::EvaluationVerdict;
use cofferdam::evaluation::service::EvaluationsError;
use cofferdam::http::HttpSettings;
use serde_json::{Value, json};

use super::scripted::ScriptedEvaluations;
use super::{EVALUATION, post_to, serve};
use crate::jobs::{assert_error, get, request};
use crate::support::{ScriptedChecks, settings, start};

const BATCH: &str =
    r#"{"tasks":[{"task_url":"https://h/t"}],"agents":[{"name":"a","agent_code":"x"}]}"#;

#[test]
fn an_evaluation_and_a_batch_are_accepted_with_their_places() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    let answer = server.ask(post_to("/evaluate", "", EVALUATION));
    assert_eq!((answer.status, answer.body.as_str()), (202, r#"{"eval_id":"live"}"#));
    assert_eq!(answer.header("location"), Some("/evaluate/live"));
    let answer = server.ask(post_to("/evaluations/batch", "", BATCH));
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(answer.status, 202);
    assert_eq!(body, json!({ "batch_id": "all", "eval_ids": ["live", "ended"] }));
    assert_eq!(answer.header("location"), Some("/evaluations/batch/all"));
    assert_eq!(evaluations.batches.lock().unwrap()[0].0.agents[0].name, "a");
}

#[test]
fn every_refusal_has_its_status_and_its_shape() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    let retry_after = Duration::from_millis(1500);
    for (error, status, code, soon) in [
        (EvaluationsError::invalid("rootfs", "x"), 400, "evaluate.invalid_request", None),
        (
            EvaluationsError::LanguageUnavailable("go".to_owned()),
            503,
            "evaluate.language_unavailable",
            None,
        ),
        (
            EvaluationsError::AtCapacity { capacity: 4, retry_after },
            503,
            "evaluate.at_capacity",
            Some("2"),
        ),
        (EvaluationsError::Draining { retry_after }, 503, "evaluate.draining", Some("2")),
        (EvaluationsError::IdempotencyConflict, 409, "evaluate.conflict", None),
        (EvaluationsError::Store("disk".to_owned()), 500, "evaluate.store_failed", None),
    ] {
        *evaluations.refusal.lock().unwrap() = Some(error);
        let answer = server.ask(post_to("/evaluate", "", EVALUATION));
        assert_error(&answer, status, code);
        assert_eq!(answer.header("retry-after"), soon, "{code}");
    }
}

#[test]
fn a_wrong_request_is_refused_before_the_service_sees_it() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    for (body, field) in [
        ("{", "body"),
        ("[]", "body"),
        (r#"{"agent_code":"x"}"#, "task_url"),
        (r#"{"agent_code":"x","task_url":"https://h/t","extra":1}"#, "extra"),
        (r#"{"agent_code":1,"task_url":"https://h/t"}"#, "agent_code"),
    ] {
        let answer = server.ask(post_to("/evaluate", "", body));
        let error = assert_error(&answer, 400, "evaluate.invalid_request");
        assert_eq!(error["details"]["field"], field, "{body}");
    }
    let network = EVALUATION.replacen('{', r#"{"agent_network":{"allow":["h"]},"#, 1);
    let denied = server.ask(post_to("/evaluate", "", &network));
    assert_error(&denied, 403, "policy.network_denied");
    let key = server.ask(post_to("/evaluate", "idempotency-key: a b\r\n", EVALUATION));
    assert_error(&key, 400, "evaluate.invalid_request");
    assert!(evaluations.submitted.lock().unwrap().is_empty());
}

#[test]
fn a_body_may_be_as_long_as_the_limit_and_no_longer() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    for (target, body, bytes_max) in
        [("/evaluate", EVALUATION, 6 * 100 + (64 << 10)), ("/evaluations/batch", BATCH, 2000)]
    {
        let padded = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
        assert_eq!(server.ask(post_to(target, "", &padded(bytes_max))).status, 202);
        let answer = server.ask(post_to(target, "", &padded(bytes_max + 1)));
        let error = assert_error(&answer, 413, "validation.too_large");
        assert_eq!(error["details"]["bytes_max"], bytes_max);
    }
}

#[test]
fn a_key_names_one_body_of_one_route() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    let key = "idempotency-key: k\r\n";
    for body in [EVALUATION, EVALUATION, &EVALUATION.replace('x', "y")] {
        assert_eq!(server.ask(post_to("/evaluate", key, body)).status, 202);
    }
    let submitted = evaluations.submitted.lock().unwrap();
    let keys: Vec<_> = submitted.iter().map(|(.., key)| key.clone().unwrap()).collect();
    assert!(keys[0].key == "k" && keys[0].body == keys[1].body && keys[0].body != keys[2].body);
}

#[test]
fn an_evaluation_is_read_and_cancelled_by_its_id() {
    let server = serve(&ScriptedEvaluations::new(), settings());
    let view = server.ask(get("/evaluate/live"));
    assert_eq!(view.header("content-type"), Some("application/json"));
    assert_eq!((view.status, view.body.contains(r#""eval_id":"live""#)), (200, true));
    for (id, status) in [("live", 202), ("ended", 200)] {
        let answer = server.ask(request("DELETE", &format!("/evaluate/{id}"), ""));
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, &body["eval_id"]), (status, &json!(id)));
    }
    let junit = server.ask(get("/evaluate/ended/junit.xml"));
    assert_eq!((junit.status, junit.body.as_str()), (200, "<testsuite/>"));
    assert_eq!(server.ask(get("/evaluations/batch/all")).body, r#"{"batch_id":"all"}"#);
    assert_eq!(server.ask(request("DELETE", "/evaluations/batch/all", "")).status, 200);
    for live in ["/evaluate/live/patch", "/evaluate/live/junit.xml"] {
        assert_error(&server.ask(get(live)), 409, "evaluate.conflict");
    }
}

#[test]
fn what_does_not_exist_is_not_found_however_it_is_written() {
    let server = serve(&ScriptedEvaluations::new(), settings());
    for target in [
        "/evaluate/x",
        "/evaluate/",
        "/evaluate/%ff",
        "/evaluate/..%2flive",
        "/evaluate/x/patch",
        "/evaluate/x/events",
        "/evaluate/live/other",
        "/evaluations/batch/x",
        "/evaluations/other",
    ] {
        assert_error(&server.ask(get(target)), 404, "evaluate.not_found");
    }
    let disabled = start(ScriptedChecks::echo(), settings());
    for asked in [get("/evaluate/live"), get("/evaluations"), post_to("/evaluate", "", EVALUATION)]
    {
        assert_error(&disabled.ask(asked), 404, "evaluate.not_found");
    }
    assert_error(&server.ask(request("PUT", "/evaluate", "")), 405, "evaluate.invalid_request");
}

#[test]
fn a_page_of_a_list_names_the_next_one() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    let first = server.ask(get("/evaluations?limit=1&verdict=partial"));
    assert_eq!((first.status, first.body.as_str()), (200, "[]"));
    let link = first.header("link").unwrap();
    let target = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap();
    let last = server.ask(get(target));
    assert_eq!((last.status, last.header("link")), (200, None));
    let listed = evaluations.listed.lock().unwrap();
    assert_eq!(listed[1].cursor.as_deref(), Some("2="));
    assert!(listed.iter().all(|one| one.limit == 1));
    assert!(listed.iter().all(|one| one.verdict == Some(EvaluationVerdict::Partial)));
    drop(listed);
    for (query, field) in [("limit=0", "limit"), ("cursor=stale", "cursor"), ("x=1", "x")] {
        let answer = server.ask(get(&format!("/evaluations?{query}")));
        let error = assert_error(&answer, 400, "evaluate.invalid_request");
        assert_eq!(error["details"]["field"], field);
    }
}

#[test]
fn a_token_sees_only_its_own() {
    let evaluations = ScriptedEvaluations::new();
    let tokens =
        Tokens::of([("one", "first-token-0123456789"), ("two", "second-token-0123456789")]);
    let server = serve(&evaluations, HttpSettings { tokens, ..settings() });
    let shown = |name: &str| format!("authorization: Bearer {name}-token-0123456789\r\n");
    for target in ["/evaluate/live", "/evaluate/ended/patch", "/evaluations/batch/all"] {
        assert_eq!(server.ask(request("GET", target, &shown("first"))).status, 200, "{target}");
        let other = server.ask(request("GET", target, &shown("second")));
        assert_error(&other, 404, "evaluate.not_found");
        assert_error(&server.ask(get(target)), 401, "auth.required");
    }
    let cancelled = server.ask(request("DELETE", "/evaluate/live", &shown("second")));
    assert_error(&cancelled, 404, "evaluate.not_found");
    // Refused before its body is there.
    let unread = "POST /evaluate HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    assert_error(&server.ask(unread), 401, "auth.required");
    server.ask(post_to("/evaluate", &shown("second"), EVALUATION));
    assert_eq!(evaluations.submitted.lock().unwrap()[0].0, "two");
}

#[test]
fn a_drain_tells_the_evaluations_and_waits_for_them() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    server.shutdown.request();
    server.join();
    let told = evaluations.told.lock().unwrap();
    let at = |word: &str| told.iter().position(|told| *told == word).unwrap();
    assert!(at("start_draining") < at("wait_idle") && at("wait_idle") < at("cancel_all"));
}
