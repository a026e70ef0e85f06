//! Access with bearer tokens.

use std::sync::atomic::Ordering;

use cofferdam::config::{MetricsPlace, Tokens};
use cofferdam::http::HttpSettings;

use crate::jobs::scripted::ScriptedJobs;
use crate::jobs::{JOB, assert_error, get, request, serve, submission};
use crate::support::{
    Answer, Client, HEALTH, ScriptedChecks, body, post, settings, start, start_with,
};

const ONE: &str = "first-token-0123456789";
const OTHER: &str = "Second_Token+0123456789==";

fn guarded() -> HttpSettings {
    let tokens = Tokens::of([("one", ONE), ("other", OTHER)]);
    HttpSettings { tokens, allow_shutdown: true, ..settings() }
}

fn with(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[track_caller]
fn assert_unauthorized(answer: &Answer, in_v1: bool) {
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{answer:?}");
    if in_v1 {
        assert_error(answer, 401, "auth.required");
    } else {
        let expected = (401, r#"{"error":"unauthorized"}"#);
        assert_eq!((answer.status, answer.body.as_str()), expected);
    }
}

#[test]
fn everything_but_health_needs_a_token() {
    let (checks, jobs) = (ScriptedChecks::echo(), ScriptedJobs::new());
    jobs.add("j");
    let server = start_with(checks.clone(), Some(jobs.clone()), guarded());
    for asked in [
        post("", &body("x")),
        get("/status"),
        get("/metrics"),
        get("/"),
        get("/nowhere"),
        get("/health/"),
        get("//health"),
        get("/v1"),
        get("/run"),
        post("", "").replace("/run", "/shutdown"),
        post("origin: http://evil.example\r\n", &body("x")),
    ] {
        assert_unauthorized(&server.ask(&asked), false);
    }
    for asked in [
        submission("", JOB),
        get("/v1/jobs"),
        get("/v1/jobs/j"),
        get("/v1/jobs/j/artifacts"),
        get("/v1/jobs/j/artifacts/a"),
        get("/v1/jobs/j/events"),
        get("/v1/nowhere"),
        request("PUT", "/v1/jobs", ""),
        request("OPTIONS", "/v1/jobs", ""),
        request("POST", "/v1/jobs/j/cancel", "content-length: 0\r\n"),
    ] {
        assert_unauthorized(&server.ask(&asked), true);
    }
    assert_eq!(server.ask(HEALTH).body, "ok\n");
    assert_eq!(server.ask(request("POST", "/health", "content-length: 0\r\n")).status, 405);
    assert_eq!(checks.runs.load(Ordering::SeqCst), 0);
    assert!(jobs.submitted.lock().unwrap().is_empty());
}

#[test]
fn a_client_with_a_token_is_served_normally() {
    let (checks, jobs) = (ScriptedChecks::echo(), ScriptedJobs::new());
    jobs.add("j");
    let server = start_with(checks, Some(jobs), guarded());
    for token in [ONE, OTHER] {
        let shown = with(token);
        for (asked, status) in [
            (post(&shown, &body("x")), 200),
            (request("GET", "/status", &shown), 200),
            (request("GET", "/metrics", &shown), 200),
            (request("GET", "/nowhere", &shown), 404),
            (submission(&shown, JOB), 202),
            (request("GET", "/v1/jobs/j", &shown), 200),
            (post(&format!("{shown}origin: http://evil.example\r\n"), &body("x")), 403),
            (request("GET", "/health", &shown), 200),
        ] {
            assert_eq!(server.ask(&asked).status, status, "{asked}");
        }
    }
    let ended = server.ask(post(&with(ONE), "").replace("/run", "/shutdown"));
    assert_eq!(ended.status, 200);
}

#[test]
fn only_a_complete_bearer_token_in_one_header_is_accepted() {
    let server = start(ScriptedChecks::echo(), guarded());
    let longer = format!("{ONE}0");
    for headers in [
        with(&ONE[..ONE.len() - 1]),
        with(&ONE[1..]),
        with(&longer),
        with(&ONE.to_uppercase()),
        with(&OTHER.to_lowercase()),
        with(&format!("{ONE} {OTHER}")),
        with(&format!("{ONE},{OTHER}")),
        with(&format!("\"{ONE}\"")),
        with(""),
        with("one"),
        with(&"x".repeat(10_000)),
        "Authorization: Bearer\r\n".into(),
        format!("Authorization: {ONE}\r\n"),
        format!("Authorization: Basic {ONE}\r\n"),
        format!("Authorization: Basic {}\r\n", "b25lOmZpcnN0LXRva2VuLTAxMjM0NTY3ODk="),
        format!("Authorization: Token {ONE}\r\n"),
        format!("{}{}", with(ONE), with(ONE)),
        format!("{}{}", with(ONE), with("x")),
        format!("Proxy-Authorization: Bearer {ONE}\r\n"),
        format!("Cookie: token={ONE}\r\n"),
    ] {
        assert_unauthorized(&server.ask(post(&headers, &body("x"))), false);
    }
    let in_query = request("GET", &format!("/status?access_token={ONE}"), "");
    assert_unauthorized(&server.ask(in_query), false);
    for headers in [
        format!("authorization: bearer {ONE}\r\n"),
        format!("AUTHORIZATION: BEARER {ONE}\r\n"),
        format!("Authorization:   Bearer   {ONE}   \r\n"),
    ] {
        assert_eq!(server.ask(post(&headers, &body("x"))).status, 200, "{headers}");
    }
}

#[test]
fn a_body_is_not_read_for_a_client_without_a_token() {
    let jobs = ScriptedJobs::new();
    let server = serve(&jobs, guarded());
    for path in ["/run", "/v1/jobs"] {
        for headers in ["", "expect: 100-continue\r\n", "authorization: Bearer x\r\n"] {
            let mut client = server.connect();
            // Above the body limit, and none of it is sent.
            client.send(format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: 99999999\r\n\r\n"
            ));
            // The first answer must not be a `100 Continue`.
            assert_unauthorized(&client.answer(), path == "/v1/jobs");
        }
    }
    let mut client = server.connect();
    let shown = with(ONE);
    client.send(format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: x\r\n{shown}expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        JOB.len()
    ));
    assert!(client.head().head.starts_with("HTTP/1.1 100 "), "the server asks for the body");
    client.send(JOB);
    assert_eq!(client.answer().status, 202);
}

#[test]
fn a_refused_client_that_sends_its_body_reads_the_answer() {
    let server = start(ScriptedChecks::echo(), guarded());
    for _ in 0..5 {
        assert_unauthorized(&server.ask(post("", &"x".repeat(3_000_000))), false);
    }
}

#[test]
fn metrics_on_a_listener_of_their_own_need_no_token() {
    let own = MetricsPlace::Own("127.0.0.1:0".parse().unwrap());
    let server = start(ScriptedChecks::echo(), HttpSettings { metrics: own, ..guarded() });
    let socket = std::net::TcpStream::connect(server.metrics_address.unwrap()).unwrap();
    let mut client = Client::of(socket);
    client.send(get("/metrics"));
    let scraped = client.answer();
    assert_eq!(scraped.status, 200);
    assert_unauthorized(&server.ask(get("/metrics")), false);
    client.send(get("/metrics"));
    let counted = r#"cofferdam_refusals_total{reason="unauthorized"} 1"#;
    assert!(client.answer().body.contains(counted));
}

#[test]
fn settings_show_no_token() {
    let shown = format!("{:?}", guarded());
    assert!(shown.contains("Tokens([\"one\", \"other\"])"), "{shown}");
    assert!(!shown.contains(ONE) && !shown.contains(OTHER), "{shown}");
}
