//! Rows 1, 4, 5 and 21 of the contract: paths, methods and the framing of requests.

use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{post, request, solution};
use cofferdam_test_server::service::{Setup, best_of_three};
use serde_json::json;

#[test]
fn health_answers_in_text_or_on_request_in_json() {
    let service = Setup::shell().start();
    service.get("/health").assert_text(200, "ok\n");
    let json = request("GET", "/health", "accept: application/json\r\n");
    service.ask(json).assert_json(200, r#"{"status":"ok"}"#);
}

#[test]
fn health_answers_within_100_ms_with_every_slot_busy() {
    let _alone = alone();
    let service = Setup::shell().env("RUN_CONCURRENCY", "2").start();
    let _busy = [0, 1].map(|_| service.live("while :; do :; done"));
    assert_eq!(service.run("true").status, 429);
    best_of_three(Duration::from_millis(100), || {
        let start = Instant::now();
        service.get("/health").assert_text(200, "ok\n");
        start.elapsed()
    });
}

#[test]
fn an_unknown_path_is_not_found_with_any_method() {
    let service = Setup::shell().env("ALLOW_SHUTDOWN", "1").start();
    for target in ["/", "/runs", "/run/", "/RUN", "/health/", "/healthz", "/shutdown/"] {
        for method in ["GET", "POST", "PUT", "FOO"] {
            let answer = service.ask(request(method, target, "content-length: 0\r\n"));
            answer.assert_json(404, r#"{"error":"not found"}"#);
        }
    }
}

#[test]
fn a_known_path_names_the_methods_it_allows() {
    let service = Setup::shell().env("ALLOW_SHUTDOWN", "1").start();
    for (target, allowed, others) in [
        ("/health", "GET,HEAD", ["POST", "PUT", "DELETE", "OPTIONS", "FOO"]),
        ("/run", "POST", ["GET", "PUT", "DELETE", "OPTIONS", "FOO"]),
        ("/shutdown", "POST", ["GET", "PUT", "DELETE", "OPTIONS", "FOO"]),
    ] {
        for method in others {
            let answer = service.ask(request(method, target, ""));
            answer.assert_json(405, r#"{"error":"method not allowed"}"#);
            let allow = answer.header("allow").unwrap_or_default();
            assert_eq!(allow.replace(' ', ""), allowed, "{method} {target}");
        }
    }
}

#[test]
fn head_is_get_without_a_body() {
    let service = Setup::shell().start();
    let mut client = service.connect();
    client.send(request("HEAD", "/health", ""));
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, Some("3")), "{}", head.head);
    assert_eq!(head.header("content-type"), Some("text/plain"));
    // The next answer follows directly after the head.
    client.ask(request("GET", "/health", "")).assert_text(200, "ok\n");
}

#[test]
fn shutdown_is_not_found_unless_it_is_allowed() {
    for value in [None, Some(""), Some("0"), Some("TRUE"), Some("yes"), Some("true ")] {
        let mut setup = Setup::shell();
        if let Some(value) = value {
            setup = setup.env("ALLOW_SHUTDOWN", value);
        }
        let service = setup.start();
        for method in ["POST", "GET"] {
            let answer = service.ask(request(method, "/shutdown", ""));
            answer.assert_json(404, r#"{"error":"not found"}"#);
        }
        service.get("/health").assert_text(200, "ok\n");
    }
}

#[test]
fn a_request_in_every_http_1_framing_is_run() {
    let service = Setup::shell().start();
    let body = solution("echo hi").to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let chunked = format!(
        "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
         {:x}\r\n{first}\r\n{:x};a=b\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    let old = format!("POST /run HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for framed in [
        post("", &body),
        post("content-type: application/json\r\n", &body),
        post("content-type: text/plain\r\n", &body),
        chunked.clone().into_bytes(),
        old.into_bytes(),
    ] {
        assert_eq!(service.ask(framed).stdout(), "hi\n");
    }

    let mut client = service.connect();
    let expecting = String::from_utf8(post("expect: 100-continue\r\n", &body)).unwrap();
    let (head, body) = expecting.split_at(expecting.len() - body.len());
    client.send(head);
    assert_eq!(client.head().status, 100);
    assert_eq!(client.ask(body).stdout(), "hi\n");

    // Several requests at once on the same connection.
    client.send([post("", body), chunked.into_bytes(), post("", body)].concat());
    for _ in 0..3 {
        assert_eq!(client.answer().stdout(), "hi\n");
    }
}

#[test]
fn a_request_of_another_protocol_of_the_platform_is_a_400() {
    let service = Setup::shell().start();
    let body = json!({ "include_bots": true, "options": { "round": 1 }, "solutions": [] });
    service.post(&body).assert_error_naming(400, "is required");
}
