//! Messages with ambiguous framing.

use std::sync::atomic::Ordering;

use crate::support::{HEALTH, ScriptedChecks, body, post, settings, start, start_echo};

/// Sends an ambiguous request with a hidden run behind it. Asserts one 400
/// answer, a closed connection, and no run.
fn assert_refused(request: &str) {
    let checks = ScriptedChecks::echo();
    let server = start(checks.clone(), settings());
    let mut client = server.connect();
    client.send(format!("{request}{}", post("", &body("smuggled"))));
    let answers = client.rest_text();
    assert!(answers.starts_with("HTTP/1.1 400 "), "{request:?} was answered {answers:?}");
    assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{request:?}: {answers:?}");
    assert_eq!(checks.runs.load(Ordering::SeqCst), 0, "{request:?} ran");
    assert_eq!(server.ask(HEALTH).status, 200);
}

fn run_with(headers: &str) -> String {
    let body = body("direct");
    let headers = headers.replace("LEN", &body.len().to_string());
    format!("POST /run HTTP/1.1\r\nhost: x\r\n{headers}\r\n{body}")
}

/// Headers that state the length of a body more than once or not validly; LEN is its length.
pub const DOUBTFUL_LENGTHS: &[&str] = &[
    "content-length: LEN\r\ncontent-length: 5\r\n",
    "content-length: 5\r\ncontent-length: LEN\r\n",
    "content-length: LEN\r\ncontent-length: LEN\r\n",
    "content-length: LEN, LEN\r\n",
    "content-length: LEN,\r\n",
    "content-length: +LEN\r\n",
    "content-length: -1\r\n",
    "content-length: -LEN\r\n",
    "content-length: 0x2d\r\n",
    "content-length: 2d\r\n",
    "content-length: LEN \t5\r\n",
    "content-length: 4.5\r\n",
    "content-length: \r\n",
    "content-length: 18446744073709551616\r\n",
    "content-length: 99999999999999999999999\r\n",
    "content-length: 00000000000000000000000LEN\r\n",
];

#[test]
fn an_ambiguous_length_is_refused_and_ends_the_connection() {
    for headers in DOUBTFUL_LENGTHS {
        assert_refused(&run_with(headers));
    }
}

/// Contradictory or invalid transfer codings of a chunked body.
pub const DOUBTFUL_CODINGS: &[&str] = &[
    "transfer-encoding: gzip\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "transfer-encoding: chunked, gzip\r\n",
    "transfer-encoding: chunked, identity\r\n",
    "transfer-encoding: identity\r\n",
    "transfer-encoding: xchunked\r\n",
    "transfer-encoding: \"chunked\"\r\n",
    "transfer-encoding: chunked;q=1\r\n",
    "transfer-encoding:\r\n",
    "transfer-encoding: \x0bchunked\r\n",
    "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    "transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n",
    "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    "content-length: 5\r\ntransfer-encoding: chunked\r\n",
];

#[test]
fn an_ambiguous_transfer_coding_is_refused_and_ends_the_connection() {
    let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", body("c").len(), body("c"));
    for headers in DOUBTFUL_CODINGS {
        assert_refused(&format!("POST /run HTTP/1.1\r\nhost: x\r\n{headers}\r\n{chunked}"));
    }
    assert_refused_old(&format!(
        "POST /run HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n{chunked}"
    ));
}

/// As [`assert_refused`], for answers that have the version of the request.
fn assert_refused_old(request: &str) {
    let checks = ScriptedChecks::echo();
    let server = start(checks.clone(), settings());
    let mut client = server.connect();
    client.send(request);
    let answers = client.rest_text();
    assert!(answers.contains(" 400 "), "{request:?} was answered {answers:?}");
    assert_eq!(checks.runs.load(Ordering::SeqCst), 0);
}

#[test]
fn a_malformed_head_is_refused_and_ends_the_connection() {
    for head in [
        "content-length: LEN\r\n folded: 1\r\n",
        "a: b\r\n\tc\r\ncontent-length: LEN\r\n",
        " a: b\r\ncontent-length: LEN\r\n",
        "content-length : LEN\r\n",
        "a\t: b\r\ncontent-length: LEN\r\n",
        "a: \0\r\ncontent-length: LEN\r\n",
        "a\0: b\r\ncontent-length: LEN\r\n",
        "a: b\rc: d\r\ncontent-length: LEN\r\n",
        "a: b\r\r\ncontent-length: LEN\r\n",
        "no colon\r\ncontent-length: LEN\r\n",
        ": no name\r\ncontent-length: LEN\r\n",
        "content-length: LEN\r\na: \x01\r\n",
    ] {
        assert_refused(&run_with(head));
    }
    for line in [
        "POST /run HTTP/1.1 \r\n",
        "POST /run\r\n",
        "POST  /run HTTP/1.1\r\n",
        "POST /run HTTP/9.9\r\n",
        "POST /ru\0n HTTP/1.1\r\n",
        "PO\0ST /run HTTP/1.1\r\n",
        "POST /run HTTP/1.1\rx\r\n",
        "\x16\x03\x01 TLS\r\n",
    ] {
        let body = body("direct");
        assert_refused(&format!("{line}content-length: {}\r\n\r\n{body}", body.len()));
    }
}

/// Text that is invalid after a chunk size.
const DOUBTFUL_SIZES: &[&str] = &[
    " ",
    "\t",
    "\x0b",
    ";",
    " ;a",
    "; a",
    ";a ",
    ";;a",
    ";a;",
    ";=b",
    ";a=",
    ";a =b",
    ";a= b",
    ";a[=b",
    ";a=b]",
    ";a=b c",
    ";a=\"b",
    ";a=\"b\"c",
    ";a=\"\x01\"",
    ";a=\rb",
    "\r",
    ",1",
    "#",
];

#[test]
fn malformed_chunks_are_refused_and_run_nothing() {
    let body = body("c");
    let length = body.len();
    for chunks in [
        format!("+{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("-{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("0x{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x}\n{body}\n0\n\n"),
        format!("{:x}\r\n{body}\r\n0\r\n\r\n", length - 1),
        format!("{length:x}\r\n{body}X0\r\n\r\n"),
        format!("ffffffffffffffffff\r\n{body}\r\n0\r\n\r\n"),
        format!("\r\n{body}\r\n0\r\n\r\n"),
        format!("g\r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x}\r\n{body}\r\n0\r\nx-sum : 1\r\n\r\n"),
        format!("{length:x}\r\n{body}\r\n0\r\nx-sum\r\n\r\n"),
        format!("{length:x}\r\n{body}\r\n0\r\n\n"),
    ]
    .into_iter()
    .chain(DOUBTFUL_SIZES.iter().flat_map(|behind| {
        // After the size of the first chunk and of the last one.
        let first = format!("{length:x}{behind}\r\n{body}\r\n0\r\n\r\n");
        [first, format!("{length:x}\r\n{body}\r\n0{behind}\r\n\r\n")]
    })) {
        let chunked = "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_refused(&format!("{chunked}{chunks}"));
    }
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
