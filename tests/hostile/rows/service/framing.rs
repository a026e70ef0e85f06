//! Messages with ambiguous framing, and slow messages.

use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, post, request};
use cofferdam_test_server::host::threads_and_descriptors;
use cofferdam_test_server::service::best_of_three;

use super::plain;
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

/// Slow connections, half of them sending heads and half of them bodies.
const SLOW: usize = 200;
/// The contract's deadline for a head, plus a margin for a loaded machine.
const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// Threads that the server may add for any number of slow clients.
const THREADS_MORE_MAX: usize = 8;

pub fn doubtful_messages(target: &Target) -> Result<(), Unexercised> {
    let mut dripping = target.connect();
    dripping.send("GET /health HTTP/1.1\r\nhost: x\r\nx: ");
    let began = Instant::now();

    lengths(target);
    codings(target);
    heads(target);
    chunks(target);
    cut_short(target);
    too_much(target);
    expected_and_coded(target);
    slow_clients(target);

    while dripping.try_send("y") {
        assert!(began.elapsed() < HEAD_WITHIN, "a slow head keeps its connection");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Sends an ambiguous request with a hidden run behind it. Asserts one answer,
/// 400, and the end of the connection.
#[track_caller]
fn assert_refused(target: &Target, request: impl AsRef<[u8]>) {
    let request = request.as_ref();
    let mut client = target.connect();
    // The server may refuse it and close the connection before it is fully sent.
    client.try_send([request, &plain(target)].concat());
    let answers = String::from_utf8_lossy(&client.rest()).into_owned();
    let shown = request.escape_ascii();
    assert!(
        answers.starts_with("HTTP/1.") && answers[8..].starts_with(" 400 "),
        "{shown}: {answers}"
    );
    assert_eq!(answers.matches("HTTP/1.").count(), 1, "{shown}: {answers}");
}

/// A run request that is valid except for these headers.
fn with_headers(target: &Target, headers: &str) -> String {
    let body = body(target);
    let headers = headers.replace("LEN", &body.len().to_string());
    format!("POST /run HTTP/1.1\r\nhost: x\r\n{headers}\r\n{body}")
}

fn body(target: &Target) -> String {
    Probe::inline("def probe():\n    return None").body(target.slug()).to_string()
}

fn lengths(target: &Target) {
    for headers in [
        "content-length: LEN\r\ncontent-length: 5\r\n",
        "content-length: 5\r\ncontent-length: LEN\r\n",
        "content-length: LEN\r\ncontent-length: LEN\r\n",
        "content-length: LEN, LEN\r\n",
        "content-length: +LEN\r\n",
        "content-length: -1\r\n",
        "content-length: 0x2d\r\n",
        "content-length: 2d\r\n",
        "content-length: LEN \t5\r\n",
        "content-length: 4.5\r\n",
        "content-length: 18446744073709551616\r\n",
        "content-length: 99999999999999999999999\r\n",
    ] {
        assert_refused(target, with_headers(target, headers));
    }
}

fn codings(target: &Target) {
    let body = body(target);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for headers in [
        "transfer-encoding: gzip\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked;q=1\r\n",
        "transfer-encoding: \x0bchunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
    ] {
        assert_refused(target, format!("POST /run HTTP/1.1\r\nhost: x\r\n{headers}\r\n{chunked}"));
    }
    // A server may refuse a length with chunks or use the chunks, but never use the length.
    for headers in [
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
    ] {
        let both = format!("POST /run HTTP/1.1\r\nhost: x\r\n{headers}\r\n{chunked}");
        let mut client = target.connect();
        client.try_send([both.as_bytes(), &plain(target)].concat());
        let answers = String::from_utf8_lossy(&client.rest()).into_owned();
        let status = answers.get(9..12).unwrap_or_default();
        assert!(["400", "200"].contains(&status), "{headers:?}: {answers}");
        assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{headers:?}: {answers}");
    }
}

fn heads(target: &Target) {
    for headers in [
        "content-length: LEN\r\n folded: 1\r\n",
        "a: b\r\n\tc\r\ncontent-length: LEN\r\n",
        "content-length : LEN\r\n",
        "a\t: b\r\ncontent-length: LEN\r\n",
        "a: \0\r\ncontent-length: LEN\r\n",
        "a\0: b\r\ncontent-length: LEN\r\n",
        "a: b\rc: d\r\ncontent-length: LEN\r\n",
        "a: b\r\r\ncontent-length: LEN\r\n",
        "no colon\r\ncontent-length: LEN\r\n",
    ] {
        assert_refused(target, with_headers(target, headers));
    }
    for line in [
        "POST /run\r\n",
        "POST /ru\0n HTTP/1.1\r\n",
        "PO\0ST /run HTTP/1.1\r\n",
        "\x16\x03\x01 TLS\r\n",
    ] {
        let body = body(target);
        assert_refused(target, format!("{line}content-length: {}\r\n\r\n{body}", body.len()));
    }
}

fn chunks(target: &Target) {
    let body = body(target);
    let length = body.len();
    for chunks in [
        format!("+{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("-{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("0x{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("{:x}\r\n{body}\r\n0\r\n\r\n", length - 1),
        format!("{length:x}\r\n{body}X0\r\n\r\n"),
        // One more than a 64-bit length can hold.
        format!("1{length:016x}\r\n{body}\r\n0\r\n\r\n"),
        format!("ffffffffffffffffff\r\n{body}\r\n0\r\n\r\n"),
        format!("g\r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x} \r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x};\r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x};a[=b\r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x};a=\"b\r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x}\r\n{body}\r\n0 \r\n\r\n"),
    ] {
        let chunked = "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_refused(target, format!("{chunked}{chunks}"));
    }
}

fn cut_short(target: &Target) {
    let body = body(target);
    let half = &body[..body.len() / 2];
    for request in [
        format!(
            "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len() + 1
        ),
        format!(
            "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{half}",
            body.len()
        ),
        format!(
            "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n",
            body.len()
        ),
    ] {
        let mut client = target.connect();
        client.send(request);
        client.stop_sending();
        let answer = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
}

fn too_much(target: &Target) {
    let endless_head = format!("GET /health HTTP/1.1\r\nx: {}", "y".repeat(1 << 20));
    let many = format!("GET /health HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(200));
    for head in [endless_head, format!("GET /{}", "y".repeat(100_000)), many] {
        let mut client = target.connect();
        client.try_send(head);
        assert_eq!(client.head().status, 431);
    }
    // Refused by the head alone, with or without `expect: 100-continue`.
    for headers in ["", "expect: 100-continue\r\n"] {
        let head = format!(
            "POST /run HTTP/1.1\r\nhost: x\r\n{headers}content-length: 99999999999\r\n\r\n"
        );
        target.ask(head).assert_json(413, r#"{"error":"payload too large"}"#);
    }
}

fn expected_and_coded(target: &Target) {
    let whole = String::from_utf8(plain(target)).unwrap();
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    let mut client = target.connect();
    client.send(format!("{head}\r\nexpect: 100-continue\r\n\r\n"));
    assert_eq!(client.head().status, 100);
    client.send(body);
    assert_eq!(client.answer().status, 200);
    for coding in ["gzip", "GZIP", "br", "deflate", "identity, gzip", "gzip, identity"] {
        let answer = target.ask(post(&format!("content-encoding: {coding}\r\n"), "\x1f\u{8b}"));
        answer.assert_json(415, r#"{"error":"content-encoding not supported"}"#);
    }
}

fn slow_clients(target: &Target) {
    let threads = || target.own().ok().map(|own| threads_and_descriptors(own.service.pid()).0);
    let before = threads();
    let held: Vec<Client> = (0..SLOW)
        .map(|number| {
            let mut client = target.connect();
            client.send(match number % 2 {
                0 => "GET /health HTTP/1.1\r\nx: ",
                _ => "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
            });
            client
        })
        .collect();
    best_of_three(Duration::from_millis(100), || {
        let began = Instant::now();
        assert_eq!(target.ask(request("GET", "/health", "")).status, 200);
        began.elapsed()
    });
    assert_eq!(target.ask(plain(target)).status, 200);
    if let (Some(before), Some(now)) = (before, threads()) {
        assert!(now <= before + THREADS_MORE_MAX, "{before} threads became {now}");
    }
    drop(held);
}
