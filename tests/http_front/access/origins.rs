//! Requests that a page of another origin makes a browser send.

use std::sync::atomic::Ordering;

use cofferdam::http::HttpSettings;

use crate::support::{HEALTH, ScriptedChecks, body, post, settings, start};

const REFUSED: &str = r#"{"error":"cross-origin request"}"#;

#[test]
fn a_page_of_another_origin_cannot_post() {
    let checks = ScriptedChecks::echo();
    let listed = vec!["https://battle.example".to_owned()];
    let allowing = HttpSettings { allow_shutdown: true, origins_allow: listed, ..settings() };
    let server = start(checks.clone(), allowing);
    for origin in [
        "http://evil.example",
        // The host name of this server, as after DNS rebinding.
        "http://x",
        "http://127.0.0.1:4040",
        "null",
        "",
        "*",
        "https://battle.example.evil.example",
        "https://battle.example/",
        "https://battle.example:443",
        "http://battle.example",
        "https://BATTLE.example",
        "https://battle.example, http://evil.example",
        "https://battle.example\r\norigin: http://evil.example",
        "\u{e9}",
    ] {
        for request in [
            post(&format!("origin: {origin}\r\ncontent-type: text/plain\r\n"), &body("hi")),
            format!("POST /shutdown HTTP/1.1\r\nhost: x\r\nOrigin: {origin}\r\n\r\n"),
            format!("POST /nowhere HTTP/1.1\r\nhost: x\r\nOrigin: {origin}\r\n\r\n"),
            format!("DELETE /run HTTP/1.1\r\nhost: x\r\nOrigin: {origin}\r\n\r\n"),
        ] {
            let answer = server.ask(request);
            assert_eq!((answer.status, answer.body.as_str()), (403, REFUSED), "{origin:?}");
            assert!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
        }
    }
    assert_eq!(checks.runs.load(Ordering::SeqCst), 0);
    assert_eq!(server.ask(HEALTH).body, "ok\n", "the server was shut down");
}

#[test]
fn a_body_from_another_origin_is_not_read() {
    let server = start(ScriptedChecks::echo(), settings());
    let mut client = server.connect();
    client.send(
        "POST /run HTTP/1.1\r\nhost: x\r\norigin: http://evil.example\r\n\
         content-length: 900\r\nexpect: 100-continue\r\n\r\n",
    );
    // The client sent no body, and the server does not ask for one.
    assert_eq!(client.answer().status, 403);
}

#[test]
fn listed_origins_and_clients_without_an_origin_may_post() {
    let listed = vec!["https://battle.example".to_owned(), "http://localhost:3000".to_owned()];
    let server =
        start(ScriptedChecks::echo(), HttpSettings { origins_allow: listed, ..settings() });
    for headers in ["", "origin: https://battle.example\r\n", "Origin: http://localhost:3000\r\n"] {
        let answer = server.ask(post(headers, &body("through")));
        assert_eq!(answer.status, 200, "{headers:?}");
        assert!(answer.body.contains("through"), "{answer:?}");
        // Pages of the same origin behind a proxy need no CORS headers; no other page may read it.
        assert!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
    }
}

#[test]
fn no_page_may_read_an_answer() {
    let listed = vec!["https://battle.example".to_owned()];
    let server =
        start(ScriptedChecks::echo(), HttpSettings { origins_allow: listed, ..settings() });
    for origin in ["https://battle.example", "http://evil.example"] {
        let from = format!("origin: {origin}\r\n");
        let preflight = format!(
            "OPTIONS /run HTTP/1.1\r\nhost: x\r\n{from}access-control-request-method: POST\r\n\r\n"
        );
        let probe = format!("GET /health HTTP/1.1\r\nhost: x\r\n{from}\r\n");
        for (request, status) in [(preflight, 405), (probe, 200)] {
            let answer = server.ask(request);
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
        }
    }
}
