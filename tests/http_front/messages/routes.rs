//! Paths, methods and bodies.

use crate::support::{HEALTH, ScriptedChecks, body, post, settings, start, start_echo};

fn request(method: &str, target: &str, headers: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")
}

#[test]
fn health_answers_in_every_form() {
    let server = start_echo();
    for (target, headers, mime, body) in [
        ("/health", "", "text/plain", "ok\n"),
        ("/health?verbose=1", "", "text/plain", "ok\n"),
        ("/health", "accept: */*\r\n", "text/plain", "ok\n"),
        ("/health", "accept: application/json\r\n", "application/json", r#"{"status":"ok"}"#),
        (
            "/health",
            "Accept: text/html, application/json;q=0.9\r\n",
            "application/json",
            r#"{"status":"ok"}"#,
        ),
        ("http://x/health", "", "text/plain", "ok\n"),
    ] {
        let answer = server.ask(request("GET", target, headers));
        assert_eq!((answer.status, answer.body.as_str()), (200, body), "{target} {headers}");
        assert_eq!(answer.header("content-type"), Some(mime), "{target} {headers}");
    }
}

#[test]
fn head_is_get_without_a_body() {
    let server = start_echo();
    let mut client = server.connect();
    client.send(request("HEAD", "/health", ""));
    let head = client.head().head;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.to_lowercase().contains("content-type: text/plain\r\n"), "{head}");
    client.send(HEALTH);
    assert_eq!(client.answer().body, "ok\n", "the answer to HEAD had a body");
}

#[test]
fn an_unknown_path_is_not_found_with_any_method() {
    let server = start_echo();
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/health/"),
        ("GET", "/Health"),
        ("GET", "//health"),
        ("GET", "/health/../run"),
        ("GET", "/%68ealth"),
        ("POST", "/run/"),
        ("POST", "/run/x"),
        ("OPTIONS", "*"),
        ("FOO", "/x"),
        ("POST", "/shutdown"),
        ("GET", "/shutdown"),
    ] {
        let answer = server.ask(request(method, target, ""));
        assert_eq!(answer.status, 404, "{method} {target}");
        assert_eq!(answer.body, r#"{"error":"not found"}"#);
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
}

#[test]
fn a_known_path_names_the_methods_it_allows() {
    let server = start_echo();
    for (method, target, allow) in [
        ("GET", "/run", "POST"),
        ("PUT", "/run", "POST"),
        ("OPTIONS", "/run", "POST"),
        ("FOO", "/run", "POST"),
        ("POST", "/health", "GET,HEAD"),
        ("DELETE", "/health", "GET,HEAD"),
    ] {
        let answer = server.ask(request(method, target, ""));
        assert_eq!(answer.status, 405, "{method} {target}");
        assert_eq!(answer.body, r#"{"error":"method not allowed"}"#);
        assert_eq!(answer.header("allow"), Some(allow), "{method} {target}");
    }
    let mut client = server.connect();
    client.send(request("HEAD", "/run", ""));
    assert!(client.head().head.starts_with("HTTP/1.1 405 "));
}

#[test]
fn shutdown_exists_only_if_allowed() {
    let allowed = start(
        ScriptedChecks::echo(),
        cofferdam::http::HttpSettings { allow_shutdown: true, ..settings() },
    );
    let answer = allowed.ask(request("GET", "/shutdown", ""));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
}

#[test]
fn a_bad_body_is_a_400_that_names_the_fault_and_keeps_the_connection() {
    let server = start_echo();
    let mut client = server.connect();
    for (body, words) in [
        ("", "empty body"),
        ("{", "bad JSON"),
        ("[]", "expected an object"),
        ("\u{FEFF}{}", "byte order mark"),
        (r#"{"lang_slug":"python"}"#, "solution_text is required"),
        (r#"{"lang_slug":"python","solution_text":1}"#, "solution_text must be a string"),
        (
            r#"{"lang_slug":"python","solution_text":"","timeout":"1h"}"#,
            r#"{"error":"invalid timeout"}"#,
        ),
        (r#"{"lang_slug":"Python","solution_text":""}"#, r#"{"error":"unsupported lang_slug"}"#),
    ] {
        client.send(post("", body));
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.body.contains(words), "{body}: {answer:?}");
    }
}

#[test]
fn every_coding_but_identity_is_refused() {
    let server = start_echo();
    for coding in ["gzip", "GZIP", "br", "zstd", "x", "", "identity, gzip", "identity, identity"] {
        let answer = server.ask(post(&format!("Content-Encoding: {coding}\r\n"), &body("x")));
        assert_eq!(answer.status, 415, "{coding:?}");
        assert_eq!(answer.body, r#"{"error":"content-encoding not supported"}"#);
    }
    let twice = "content-encoding: identity\r\ncontent-encoding: gzip\r\n";
    assert_eq!(server.ask(post(twice, &body("x"))).status, 415);
    for coding in ["identity", "Identity", "IDENTITY"] {
        let answer = server.ask(post(&format!("content-encoding: {coding}\r\n"), &body("x")));
        assert_eq!(answer.status, 200, "{coding:?}");
    }
}
