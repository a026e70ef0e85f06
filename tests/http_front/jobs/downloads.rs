//! Downloads of artifacts, complete and by range.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam::http::{HttpLimits, HttpSettings};
use cofferdam_core::values::digest::sha256_of;

use super::scripted::ScriptedJobs;
use super::{assert_error, get, request, serve, serve_plainly};
use crate::support::{HEALTH, Running, settings};

const TEN: &[u8] = b"0123456789";
const MIB: usize = 1 << 20;

fn of_one(path: &str, bytes: &[u8]) -> Arc<ScriptedJobs> {
    let jobs = ScriptedJobs::new();
    jobs.add_ended("j", b"", b"");
    jobs.keep("j", path, bytes);
    jobs
}

fn tag(bytes: &[u8]) -> String {
    format!("\"{}\"", sha256_of(bytes))
}

#[test]
fn an_artifact_is_sent_complete_with_its_metadata() {
    let server = serve_plainly(&of_one("out/a.html", TEN));
    let mut client = server.connect();
    for method in ["GET", "HEAD", "GET"] {
        client.send(request(method, "/v1/jobs/j/artifacts/out/a.html", ""));
        let (head, body) = match method {
            "HEAD" => (client.head().head, "0123456789".to_owned()),
            _ => {
                let answer = client.answer();
                (answer.head, answer.body)
            }
        };
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(body.as_bytes(), TEN, "{method}");
        let head = head.to_lowercase();
        for line in [
            "content-type: application/octet-stream\r\n",
            "content-length: 10\r\n",
            "accept-ranges: bytes\r\n",
            "content-disposition: attachment\r\n",
            "x-content-type-options: nosniff\r\n",
            &format!("etag: {}\r\n", tag(TEN)),
        ] {
            assert!(head.contains(line), "{method} {line}: {head}");
        }
        assert!(!head.contains("transfer-encoding"), "{head}");
    }
}

#[test]
fn only_listed_artifacts_are_found_by_their_exact_name() {
    let server = serve_plainly(&of_one("a b/é+%.txt", b"odd"));
    assert_eq!(server.ask(get("/v1/jobs/j/artifacts/a%20b/%C3%A9+%25.txt")).body, "odd");
    assert_eq!(server.ask(get("/v1/jobs/j/artifacts/a%20b%2F%c3%a9%2B%25.txt?x=1")).body, "odd");
    for path in [
        "a+b/%C3%A9+%25.txt",
        "a%20b",
        "a%20b//%C3%A9+%25.txt",
        "./a%20b/%C3%A9+%25.txt",
        "a%20b/%C3%A9+%25.txt/",
        "../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "%2Fetc%2Fpasswd",
        "%00",
        "%ff",
        "%",
    ] {
        assert_error(
            &server.ask(get(&format!("/v1/jobs/j/artifacts/{path}"))),
            404,
            "job.not_found",
        );
    }
}

#[test]
fn a_range_selects_the_bytes_sent() {
    let jobs = of_one("a", TEN);
    jobs.keep("j", "empty", b"");
    let server = serve_plainly(&jobs);
    for (path, range, status, content_range, body) in [
        ("a", "bytes=0-0", 206, Some("bytes 0-0/10"), "0"),
        ("a", "bytes=2-4", 206, Some("bytes 2-4/10"), "234"),
        ("a", "bytes=7-", 206, Some("bytes 7-9/10"), "789"),
        ("a", "bytes=-2", 206, Some("bytes 8-9/10"), "89"),
        ("a", "bytes=-99", 206, Some("bytes 0-9/10"), "0123456789"),
        ("a", "bytes=5-99999999999999999999", 206, Some("bytes 5-9/10"), "56789"),
        ("a", "bytes=0-1,4-5", 200, None, "0123456789"),
        ("a", "bytes=4-2", 200, None, "0123456789"),
        ("a", "lines=1-2", 200, None, "0123456789"),
        ("empty", "bytes=-1", 200, None, ""),
    ] {
        let target = format!("/v1/jobs/j/artifacts/{path}");
        let answer = server.ask(request("GET", &target, &format!("range: {range}\r\n")));
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{range}");
        assert_eq!(answer.header("content-range"), content_range, "{range}");
        assert_eq!(answer.header("accept-ranges"), Some("bytes"));
    }
    for (path, range, size) in
        [("a", "bytes=10-", 10), ("a", "bytes=-0", 10), ("empty", "bytes=0-", 0)]
    {
        let target = format!("/v1/jobs/j/artifacts/{path}");
        let answer = server.ask(request("GET", &target, &format!("range: {range}\r\n")));
        let error = assert_error(&answer, 416, "validation.invalid_request");
        assert_eq!(answer.header("content-range"), Some(format!("bytes */{size}").as_str()));
        assert_eq!(error["details"]["bytes"], size);
    }
    let mut client = server.connect();
    client.send(request("HEAD", "/v1/jobs/j/artifacts/a", "range: bytes=2-4\r\n"));
    let head = client.head().head;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-length: 10\r\n"), "{head}");
}

#[test]
fn an_unchanged_artifact_is_not_sent_again() {
    let server = serve_plainly(&of_one("a", TEN));
    let mut client = server.connect();
    for (condition, is_known) in [
        (tag(TEN), true),
        (format!("W/{}", tag(TEN)), true),
        ("*".into(), true),
        (tag(b"x"), false),
    ] {
        let headers = format!("if-none-match: {condition}\r\nrange: bytes=0-1\r\n");
        client.send(request("GET", "/v1/jobs/j/artifacts/a", &headers));
        let answer = client.answer();
        let expected = if is_known { (304, "") } else { (206, "01") };
        assert_eq!((answer.status, answer.body.as_str()), expected, "{condition}");
        assert_eq!(answer.header("etag"), Some(tag(TEN).as_str()));
        // A length in a 304 would have to be that of the file.
        assert!(!is_known || answer.header("content-length").is_none(), "{answer:?}");
    }
    for (condition, status) in [(tag(TEN), 206), (tag(b"x"), 200), (format!("W/{}", tag(TEN)), 200)]
    {
        let headers = format!("if-range: {condition}\r\nrange: bytes=0-1\r\n");
        let answer = server.ask(request("GET", "/v1/jobs/j/artifacts/a", &headers));
        assert_eq!(answer.status, status, "{condition}");
    }
}

/// Text in which every position is distinguishable.
fn long(bytes: usize) -> Vec<u8> {
    (0..bytes / 8).flat_map(|number| format!("{number:08}").into_bytes()).collect()
}

fn rest_of(server: &Running, target: &str) -> Vec<u8> {
    let mut client = server.connect();
    client.send(get(target).replace("HTTP/1.1", "HTTP/1.0"));
    assert!(client.head().head.starts_with("HTTP/1.0 200 "));
    client.rest_text().into_bytes()
}

#[test]
fn long_artifacts_arrive_complete_on_a_kept_connection() {
    let bytes = long(5 * MIB);
    let server = serve_plainly(&of_one("a", &bytes));
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(get("/v1/jobs/j/artifacts/a"));
        assert!(client.answer().body.as_bytes() == bytes, "the received bytes differ");
    }
    client.send(request("GET", "/v1/jobs/j/artifacts/a", "range: bytes=1048576-3145727\r\n"));
    assert!(client.answer().body.as_bytes() == &bytes[MIB..3 * MIB], "the received bytes differ");
}

#[test]
fn a_slow_reader_gets_the_whole_artifact_and_a_stalled_one_is_dropped() {
    let bytes = long(16 * MIB);
    let jobs = of_one("a", &bytes);
    let limits = HttpLimits {
        answer_within: Duration::from_millis(700),
        downloads_max: 1,
        ..settings().limits
    };
    let server = serve(&jobs, HttpSettings { limits, ..settings() });
    let part = || server.ask(request("GET", "/v1/jobs/j/artifacts/a", "range: bytes=0-1\r\n"));
    let mut idle = server.connect();
    idle.send(get("/v1/jobs/j/artifacts/a"));
    idle.head();
    assert_eq!(part().status, 503);
    let began = Instant::now();
    while part().status != 206 {
        assert!(began.elapsed() < Duration::from_secs(10), "the stalled reader keeps its place");
    }
    let mut slow = server.connect();
    slow.send(get("/v1/jobs/j/artifacts/a").replace("HTTP/1.1", "HTTP/1.0"));
    // Longer in total than an answer may stall, but it progresses all the time.
    let (mut whole, mut piece) = (Vec::new(), vec![0; MIB]);
    loop {
        std::thread::sleep(Duration::from_millis(50));
        match slow.socket.read(&mut piece).unwrap() {
            0 => break,
            count => whole.extend_from_slice(&piece[..count]),
        }
    }
    assert!(whole.ends_with(&bytes), "{} bytes", whole.len());
    assert_eq!(server.ask(HEALTH).status, 200);
}

#[test]
fn an_artifact_shorter_than_recorded_is_not_sent() {
    let jobs = of_one("a", TEN);
    *jobs.missing_bytes.lock().unwrap() = 1;
    let server = serve_plainly(&jobs);
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(get("/v1/jobs/j/artifacts/a"));
        assert_error(&client.answer(), 500, "run.io_failed");
    }
}

#[test]
fn concurrent_artifact_downloads_are_limited() {
    let bytes = long(16 * MIB);
    let jobs = of_one("a", &bytes);
    let limits = HttpLimits { downloads_max: 2, ..settings().limits };
    let server = serve(&jobs, HttpSettings { limits, ..settings() });
    let mut unread: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut unread {
        client.send(get("/v1/jobs/j/artifacts/a"));
        client.head();
    }
    let refused = server.ask(get("/v1/jobs/j/artifacts/a"));
    assert_error(&refused, 503, "queue.full");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.ask(HEALTH).status, 200);
    drop(unread.pop());
    let began = Instant::now();
    while server.ask(request("GET", "/v1/jobs/j/artifacts/a", "range: bytes=0-1\r\n")).status != 206
    {
        assert!(began.elapsed() < Duration::from_secs(10), "its place is not free");
    }
    drop(unread);
    assert_eq!(rest_of(&server, "/v1/jobs/j/artifacts/a").len(), bytes.len());
}
