//! Messages with ambiguous framing.

use std::sync::atomic::Ordering;

use cofferdam_fixtures::smuggling::SmugglingDoor;

use crate::support::{HEALTH, ScriptedChecks, body, post, settings, start, start_echo};

/// Sends an ambiguous request with a hidden run behind it. Asserts one 400
/// answer, a closed connection, and no run.
fn assert_refused(request: &str) {
    let checks = ScriptedChecks::echo();
    let server = start(checks.clone(), settings());
    let mut client = server.connect();
    client.send(format!("{request}{}", post("", &body("smuggled"))));
    let answers = client.rest_text();
    let is_refused =
        ["HTTP/1.0 400 ", "HTTP/1.1 400 "].iter().any(|line| answers.starts_with(line));
    assert!(is_refused, "{request:?} was answered {answers:?}");
    assert_eq!(answers.matches("HTTP/1.").count(), 1, "{request:?}: {answers:?}");
    assert_eq!(checks.runs.load(Ordering::SeqCst), 0, "{request:?} ran");
    assert_eq!(server.ask(HEALTH).status, 200);
}

/// Asserts that each of `requests` is refused.
fn assert_all_refused(requests: &[String]) {
    requests.iter().for_each(|request| assert_refused(request));
}

/// The requests of the corpus, as runs.
fn doubtful(body: &str) -> SmugglingDoor<'_> {
    SmugglingDoor { target: "/run", host: "x", body }
}

#[test]
fn an_ambiguous_length_is_refused_and_ends_the_connection() {
    assert_all_refused(&doubtful(&body("direct")).lengths());
}

#[test]
fn an_ambiguous_transfer_coding_is_refused_and_ends_the_connection() {
    assert_all_refused(&doubtful(&body("c")).codings());
}

#[test]
fn a_malformed_head_is_refused_and_ends_the_connection() {
    assert_all_refused(&doubtful(&body("direct")).heads());
}

#[test]
fn malformed_chunks_are_refused_and_run_nothing() {
    assert_all_refused(&doubtful(&body("c")).chunks());
}

#[test]
fn a_truncated_body_runs_nothing() {
    for request in [
        post("", &body("cut")).replace("content-length: 4", "content-length: 9"),
        "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n".to_owned(),
    ] {
        let checks = ScriptedChecks::echo();
        let server = start(checks.clone(), settings());
        let mut client = server.connect();
        client.send(&request);
        client.socket.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = client.rest_text();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
        assert_eq!(checks.runs.load(Ordering::SeqCst), 0, "{request:?} ran");
    }
}

#[test]
fn pipelined_requests_of_every_framing_are_answered_in_order() {
    let server = start_echo();
    let chunked = |solution: &str| {
        let body = body(solution);
        let (left, right) = body.split_at(7);
        format!(
            "POST /run HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x};x=y;z=\"a b\"\r\n{left}\r\n{:X}\r\n{right}\r\n0\r\nx-sum: 1\r\n\r\n",
            left.len(),
            right.len(),
        )
    };
    let requests = [
        HEALTH.to_owned(),
        post("", &body("one")),
        chunked("two"),
        format!("\r\n{HEALTH}"),
        chunked("three"),
        post("", &body("four")),
    ]
    .concat();
    let expected = ["ok\n", "one", "two", "ok\n", "three", "four"];
    // All at once, and byte by byte: framing must not depend on TCP segments.
    for piece_bytes in [requests.len(), 7, 1] {
        let mut client = server.connect();
        client.socket.set_nodelay(true).unwrap();
        for piece in requests.as_bytes().chunks(piece_bytes) {
            client.send(piece);
        }
        for text in expected {
            let answer = client.answer();
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(answer.body.contains(text), "{text}: {answer:?}");
        }
    }
}

#[test]
fn fifty_pipelined_requests_are_all_answered() {
    let server = start_echo();
    let mut client = server.connect();
    client.send(HEALTH.repeat(50));
    for _ in 0..50 {
        assert_eq!(client.answer().body, "ok\n");
    }
}

#[test]
fn http_1_0_and_keep_alive_clients_are_served() {
    let server = start_echo();
    let mut old = server.connect();
    old.send("GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(old.answer().status, 200);
    assert_eq!(old.rest_text(), "", "an HTTP/1.0 connection is closed after its answer");
    let mut kept = server.connect();
    kept.send("GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
    assert_eq!(kept.answer().status, 200);
    kept.send("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(kept.answer().status, 200);
    assert_eq!(kept.rest_text(), "");
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let server = start_echo();
    let request = post("expect: 100-continue\r\n", &body("late"));
    let (head, body) = request.split_at(request.find('{').unwrap());
    let mut client = server.connect();
    client.send(head);
    assert!(client.head().head.starts_with("HTTP/1.1 100 "));
    client.send(body);
    assert!(client.answer().body.contains("late"));
}

#[test]
fn a_client_that_closed_its_sending_side_still_reads_its_answer() {
    let server = start_echo();
    let mut client = server.connect();
    client.send(HEALTH);
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.rest_text().ends_with("ok\n"));
}
