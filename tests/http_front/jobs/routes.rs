//! The answers and refusals of each route.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam::http::{HttpLimits, HttpSettings};
use cofferdam::job::JobQuery;
use cofferdam_core::job::{ErrorCode, JobError, JobStatus};
use cofferdam_core::values::digest::sha256_of;
use cofferdam_test_server::exposition::Exposition;
use serde_json::{Value, json};

use super::scripted::{ScriptedJobs, result_json};
use super::{JOB, assert_error, get, request, serve, serve_plainly, submission};
use crate::support::{Answer, HEALTH, ScriptedChecks, settings, start};

fn json_of(answer: &Answer) -> Value {
    assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn a_job_is_accepted_under_its_own_or_a_generated_id() {
    let jobs = ScriptedJobs::new();
    let server = serve_plainly(&jobs);
    let named = JOB.replacen('{', r#"{"job_id":"mine.1","#, 1);
    for (body, id) in [(JOB, "job_new"), (&named, "mine.1")] {
        let answer = server.ask(submission("", body));
        assert_eq!(
            (answer.status, json_of(&answer)),
            (202, json!({"job_id": id, "status": "queued"}))
        );
        assert_eq!(answer.header("location"), Some(format!("/v1/jobs/{id}").as_str()));
    }
    let submitted = jobs.submitted.lock().unwrap();
    assert_eq!(submitted[1].0.command.argv, ["x"]);
    assert!(submitted.iter().all(|(_, idempotency)| idempotency.is_none()));
}

#[test]
fn every_job_error_has_its_status() {
    let jobs = ScriptedJobs::new();
    let server = serve_plainly(&jobs);
    for (code, status, soon) in [
        (ErrorCode::InvalidRequest, 422, false),
        (ErrorCode::PathEscape, 422, false),
        (ErrorCode::TooLarge, 413, false),
        (ErrorCode::JobNotFound, 404, false),
        (ErrorCode::JobConflict, 409, false),
        (ErrorCode::QueueFull, 503, true),
        (ErrorCode::QueueClosed, 503, true),
        (ErrorCode::BackendUnavailable, 503, false),
        (ErrorCode::CommandDenied, 403, false),
        (ErrorCode::IoFailed, 500, false),
    ] {
        let refusal = JobError::new(code, "for the test").with("path", "limits.x");
        *jobs.refusal.lock().unwrap() = Some(refusal.clone());
        let answer = server.ask(submission("", JOB));
        let error = assert_error(&answer, status, code.word());
        assert_eq!(error, serde_json::to_value(&refusal).unwrap());
        assert_eq!(answer.header("retry-after"), soon.then_some("1"), "{code:?}");
        assert_eq!(answer.header("location"), None);
    }
}

#[test]
fn an_invalid_request_is_refused_with_the_fault() {
    let jobs = ScriptedJobs::new();
    let server = serve_plainly(&jobs);
    for body in ["", "{", "nonsense", "\u{feff}{}"] {
        assert_error(&server.ask(submission("", body)), 400, "validation.invalid_request");
    }
    for (body, path) in [
        (JOB.replacen('{', r#"{"extra":1,"#, 1), "extra"),
        (JOB.replace(r#"["x"]"#, r#""x""#), "command.argv"),
        (JOB.replace("/w", "w"), "workspace.path"),
        (JOB.replacen('{', r#"{"job_id":"../x","#, 1), "job_id"),
    ] {
        let error =
            assert_error(&server.ask(submission("", &body)), 422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], path);
    }
    let escape = JOB.replace(r#"["x"]"#, r#"["x"],"cwd":"../x""#);
    assert_error(&server.ask(submission("", &escape)), 422, "validation.path_escape");
    let coded = server.ask(submission("content-encoding: gzip\r\n", JOB));
    assert_error(&coded, 415, "validation.invalid_request");
    assert!(jobs.submitted.lock().unwrap().is_empty());
}

#[test]
fn a_request_may_be_as_long_as_the_limit_and_no_longer() {
    let jobs = ScriptedJobs::new();
    let server = serve_plainly(&jobs);
    let body = |length: usize| format!("{JOB}{}", " ".repeat(length - JOB.len()));
    assert_eq!(server.ask(submission("", &body(1000))).status, 202);
    let chunked = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n{}\r\n0\r\n\r\n",
        body(1001)
    );
    let announced =
        "POST /v1/jobs HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1001\r\n\r\n";
    for request in [submission("", &body(1001)), chunked, announced.to_owned()] {
        let answer = server.ask(request);
        let error = assert_error(&answer, 413, "validation.too_large");
        assert_eq!(error["details"]["bytes_max"], 1000);
        assert_eq!(answer.header("connection"), Some("close"));
    }
    assert_eq!(jobs.submitted.lock().unwrap().len(), 1);
}

#[test]
fn an_incomplete_body_is_refused() {
    let jobs = ScriptedJobs::new();
    let limits = HttpLimits { body_within: Duration::from_millis(100), ..settings().limits };
    let server = serve(&jobs, HttpSettings { limits, ..settings() });
    let late = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{";
    assert_error(&server.ask(late), 408, "validation.invalid_request");
    let broken = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    assert_error(&server.ask(broken), 400, "validation.invalid_request");
    assert!(jobs.submitted.lock().unwrap().is_empty());
}

#[test]
fn an_idempotency_key_is_passed_on_with_its_request() {
    let jobs = ScriptedJobs::new();
    let server = serve_plainly(&jobs);
    let long = "k".repeat(255);
    for key in ["a", "a-b_c.d:e/f?", &long] {
        let answer = server.ask(submission(&format!("Idempotency-Key: {key}\r\n"), JOB));
        assert_eq!(answer.status, 202, "{key}");
        let submitted = jobs.submitted.lock().unwrap();
        let idempotency = submitted.last().unwrap().1.as_ref().unwrap();
        assert_eq!(idempotency.key, key);
        assert_eq!(idempotency.body.as_str(), sha256_of(JOB.as_bytes()));
    }
    let longer = "k".repeat(256);
    for keys in ["", "a b", "\u{e9}", "a\tb", &longer, "a\r\nidempotency-key: a"] {
        let answer = server.ask(submission(&format!("Idempotency-Key: {keys}\r\n"), JOB));
        assert_error(&answer, 422, "validation.invalid_request");
    }
    assert_eq!(jobs.submitted.lock().unwrap().len(), 3);
}

#[test]
fn a_list_has_the_requested_jobs() {
    let jobs = ScriptedJobs::new();
    jobs.add("a");
    jobs.add_ended("b", b"", b"");
    let server = serve_plainly(&jobs);
    let line = |id: &str, status: &str| {
        json!({"job_id": id, "status": status, "queued_at": "2026-01-02T03:04:05.006Z",
               "started_at": null, "finished_at": null})
    };
    let expected =
        json!({"jobs": [line("a", "queued"), line("b", "completed")], "next_cursor": "next"});
    let all = JobQuery { limit: 100, ..JobQuery::default() };
    for (query, asked) in [
        ("", all.clone()),
        ("?", all.clone()),
        (
            "?status=running&limit=3&cursor=a%3Db",
            JobQuery { status: Some(JobStatus::Running), limit: 3, cursor: Some("a=b".into()) },
        ),
    ] {
        let answer = server.ask(get(&format!("/v1/jobs{query}")));
        assert_eq!((answer.status, json_of(&answer)), (200, expected.clone()), "{query}");
        assert_eq!(jobs.listed.lock().unwrap().last(), Some(&asked), "{query}");
    }
    for query in ["limit=0", "limit=1001", "limit=x", "status=done", "page=1", "limit=1&limit=2"] {
        let answer = server.ask(get(&format!("/v1/jobs?{query}")));
        assert_error(&answer, 422, "validation.invalid_request");
    }
    assert_eq!(jobs.listed.lock().unwrap().len(), 3);
    let stale = server.ask(get("/v1/jobs?cursor=stale"));
    assert_error(&stale, 422, "validation.invalid_request");
}

#[test]
fn a_job_view_shows_its_current_state() {
    let jobs = ScriptedJobs::new();
    jobs.add("live");
    jobs.add_ended("over", b"", b"");
    let server = serve_plainly(&jobs);
    let live = json!({"job_id": "live", "status": "queued",
                      "queued_at": "2026-01-02T03:04:05.006Z", "started_at": null});
    assert_eq!(json_of(&server.ask(get("/v1/jobs/live"))), live);
    let over = server.ask(get("/v1/jobs/over?verbose=1"));
    assert_eq!((over.status, json_of(&over)), (200, result_json("over", JobStatus::Completed)));
}

#[test]
fn an_unknown_job_is_not_found_on_any_route() {
    let server = serve_plainly(&ScriptedJobs::new());
    let long = "x".repeat(129);
    for id in ["none", ".", "..", ".hidden", "a%2Fb", "a%00b", "%ff", "%", "a%20b", &long] {
        for (method, rest) in [
            ("GET", ""),
            ("HEAD", ""),
            ("GET", "/artifacts"),
            ("GET", "/artifacts/a"),
            ("GET", "/events"),
            ("POST", "/cancel"),
        ] {
            let asked = request(method, &format!("/v1/jobs/{id}{rest}"), "content-length: 0\r\n");
            if method == "HEAD" {
                let mut client = server.connect();
                client.send(asked);
                assert!(client.head().head.starts_with("HTTP/1.1 404 "));
            } else {
                assert_error(&server.ask(asked), 404, "job.not_found");
            }
        }
    }
}

#[test]
fn a_cancel_returns_the_new_state_of_the_job() {
    let jobs = ScriptedJobs::new();
    jobs.add("live");
    jobs.add_ended("over", b"", b"");
    let server = serve_plainly(&jobs);
    let cancel = |id: &str| {
        server.ask(request("POST", &format!("/v1/jobs/{id}/cancel"), "content-length: 0\r\n"))
    };
    let live = cancel("live");
    assert_eq!(
        (live.status, json_of(&live)),
        (202, json!({"job_id": "live", "status": "canceled"}))
    );
    assert_error(&cancel("over"), 409, "job.conflict");
}

#[test]
fn artifacts_are_listed_after_the_end_of_the_job() {
    let jobs = ScriptedJobs::new();
    jobs.add("live");
    jobs.add_ended("over", b"", b"");
    jobs.keep("over", "out/a", b"abc");
    let server = serve_plainly(&jobs);
    let listed = server.ask(get("/v1/jobs/over/artifacts"));
    let artifact = json!({"path": "out/a", "bytes": 3, "sha256": sha256_of(b"abc"),
                          "uri": "file:///store/out/a", "truncated": false});
    assert_eq!((listed.status, json_of(&listed)), (200, json!({"artifacts": [artifact]})));
    assert_error(&server.ask(get("/v1/jobs/live/artifacts")), 409, "job.conflict");
}

#[test]
fn every_error_below_v1_has_the_shape_of_job_errors() {
    let jobs = ScriptedJobs::new();
    let server = serve_plainly(&jobs);
    for target in
        ["/v1/", "/v1/job", "/v1/jobs/", "/v1/jobs//", "/v1/jobs/a/x", "/v1/jobs/a/artifacts/"]
    {
        assert_error(&server.ask(get(target)), 404, "job.not_found");
    }
    for (method, target, allow) in [
        ("PUT", "/v1/jobs", "GET,HEAD,POST"),
        ("DELETE", "/v1/jobs/a", "GET,HEAD"),
        ("POST", "/v1/jobs/a", "GET,HEAD"),
        ("GET", "/v1/jobs/a/cancel", "POST"),
        ("POST", "/v1/jobs/a/events", "GET,HEAD"),
    ] {
        let answer = server.ask(request(method, target, "content-length: 0\r\n"));
        assert_error(&answer, 405, "validation.invalid_request");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {target}");
    }
    let framed_twice = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_error(&server.ask(framed_twice), 400, "validation.invalid_request");
    let evil = "origin: http://evil.example\r\n";
    assert_error(&server.ask(submission(evil, JOB)), 403, "validation.invalid_request");
    // A page of another origin may not even read jobs.
    assert_error(&server.ask(request("GET", "/v1/jobs", evil)), 403, "validation.invalid_request");
    assert!(jobs.submitted.lock().unwrap().is_empty());
    // Outside /v1, errors have the other shape.
    for target in ["/v1", "/v2/jobs", "/x/v1/jobs"] {
        assert_eq!(server.ask(get(target)).body, r#"{"error":"not found"}"#);
    }
}

#[test]
fn without_jobs_their_routes_are_not_found() {
    let server = start(ScriptedChecks::echo(), settings());
    for asked in [get("/v1/jobs"), get("/v1/jobs/a"), submission("", JOB)] {
        assert_error(&server.ask(asked), 404, "job.not_found");
    }
}

#[test]
fn a_hanging_store_does_not_delay_health() {
    let jobs = ScriptedJobs::new();
    jobs.add("a");
    let server = serve_plainly(&jobs);
    let hold = jobs.asking.lock().unwrap();
    let mut waiting: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for (index, client) in waiting.iter_mut().enumerate() {
        let asked = [get("/v1/jobs/a"), get("/v1/jobs"), submission("", JOB), get("/v1/jobs/a")];
        client.send(&asked[index % asked.len()]);
    }
    for _ in 0..20 {
        assert_eq!(server.ask(HEALTH).status, 200);
    }
    drop(hold);
    waiting.iter_mut().for_each(|client| assert!(matches!(client.answer().status, 200 | 202)));
}

#[test]
fn job_refusals_are_counted_under_the_known_reasons() {
    let jobs = ScriptedJobs::new();
    jobs.add("live");
    let server = serve_plainly(&jobs);
    let counted = || -> BTreeMap<String, f64> {
        let scraped = Exposition::parse(&server.ask(get("/metrics")).body);
        let all = scraped.all("cofferdam_refusals_total").filter(|sample| sample.value > 0.0);
        all.map(|sample| (sample.labels["reason"].clone(), sample.value)).collect()
    };
    let refusing = |code| *jobs.refusal.lock().unwrap() = Some(JobError::new(code, "x"));
    let mut expected = BTreeMap::new();
    for (reason, code, asked) in [
        ("not_found", None, get("/v1/jobs/none")),
        ("conflict", None, get("/v1/jobs/live/artifacts")),
        ("invalid", None, submission("", "{")),
        ("invalid", None, submission("", "{}")),
        ("too_large", None, submission("", &" ".repeat(1001))),
        ("method_not_allowed", None, request("PUT", "/v1/jobs", "")),
        ("queue_full", Some(ErrorCode::QueueFull), submission("", JOB)),
        ("draining", Some(ErrorCode::QueueClosed), submission("", JOB)),
        ("internal", Some(ErrorCode::IoFailed), submission("", JOB)),
    ] {
        if let Some(code) = code {
            refusing(code);
        }
        let answer = server.ask(asked);
        assert!(answer.status >= 400, "{answer:?}");
        *expected.entry(reason.to_owned()).or_insert(0.0) += 1.0;
        assert_eq!(counted(), expected, "after {reason}");
    }
}

#[test]
fn a_drain_closes_the_queue_and_cancels_waiting_jobs() {
    let jobs = ScriptedJobs::new();
    let server = serve_plainly(&jobs);
    server.shutdown.request();
    server.join();
    let told = jobs.told.lock().unwrap();
    // Later calls come from the end of the test.
    assert_eq!(told[..4], ["start_draining", "wait_idle", "cancel_all", "wait_idle"]);
}
