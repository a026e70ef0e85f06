//! What the proxy answers itself.

use super::scene::{ProxySetup, closed_port, http_host};
use cofferdam_core::egress::{EgressDecision, EgressReason, EgressRecord};

/// Asserts that `answer` is the refusal, with its status, and `record` is of it.
fn assert_refused(
    answer: &str,
    record: &EgressRecord,
    status: u16,
    host: &str,
    reason: EgressReason,
) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["code"], format!("egress.{}", reason.word()), "{answer}");
    assert_eq!(body["details"]["host"], host);
    assert!(body["message"].is_string());
    assert_eq!((record.reason, record.host.as_str()), (Some(reason), host), "{record:?}");
    assert_eq!((record.bytes_sent, record.bytes_received), (0, 0));
}

#[test]
fn each_refusal_has_its_status_reason_and_record() {
    let (port, requests) = http_host("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let (own, closed) = (closed_port(), closed_port());
    let mut setup = ProxySetup::allowing(&["a.test:*", "private.test", "gone.test", "127.0.0.2"]);
    setup.policy.own_addresses = vec![format!("0.0.0.0:{own}").parse().unwrap()];
    let scene = setup.serve();
    scene.names.set("private.test", &[&["10.0.0.1", "::ffff:169.254.169.254"]]);
    let mut count = 0;
    for (host, asked, to, status, reason) in [
        ("evil.test", "evil.test", port, 403, EgressReason::NotListed),
        ("private.test", "private.test", 80, 403, EgressReason::NotListed),
        ("127.0.0.1", "127.0.0.1", port, 403, EgressReason::Literal),
        ("127.0.0.1", "2130706433", port, 403, EgressReason::Literal),
        ("127.0.0.1", "0x7f.1", port, 403, EgressReason::Literal),
        ("127.0.0.1", "0177.0.0.1", port, 403, EgressReason::Literal),
        ("127.0.0.1", "[::ffff:127.0.0.1]", port, 403, EgressReason::Literal),
        ("::1", "[::1]", port, 403, EgressReason::Literal),
        ("1.2.3.4.5", "1.2.3.4.5", port, 403, EgressReason::Literal),
        ("private.test", "private.test", 443, 403, EgressReason::PrivateAddress),
        ("127.0.0.2", "127.0.0.2", 443, 403, EgressReason::PrivateAddress),
        ("a.test", "a.test", own, 403, EgressReason::OwnAddress),
        ("gone.test", "gone.test", 443, 502, EgressReason::Unresolved),
        ("a.test", "a.test", closed, 502, EgressReason::Connect),
    ] {
        for request in [
            format!("CONNECT {asked}:{to} HTTP/1.1\r\nhost: {asked}:{to}\r\n\r\n"),
            format!("GET http://{asked}:{to}/ HTTP/1.1\r\nhost: {asked}:{to}\r\n\r\n"),
        ] {
            let answer = scene.ask(&request);
            count += 1;
            let record = &scene.await_records(count)[count - 1];
            assert_refused(&answer, record, status, host, reason);
            let failed = status == 502;
            let decision = if failed { EgressDecision::Failed } else { EgressDecision::Denied };
            assert_eq!((record.decision, record.port), (decision, to), "{request}");
        }
    }
    assert!(requests.try_recv().is_err(), "a refused request was sent on");
}

#[test]
fn an_ambiguous_request_is_refused_and_what_follows_it_is_no_request() {
    let (port, requests) = http_host("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let scene = ProxySetup::allowing(&["a.test:*"]).serve();
    let next = format!("GET http://a.test:{port}/next HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n");
    let post = |headers: &str, body: &str| {
        let target = format!("http://a.test:{port}/");
        format!("POST {target} HTTP/1.1\r\nhost: a.test:{port}\r\n{headers}\r\n{body}{next}")
    };
    let mut requests_sent = vec![
        post("content-length: 5\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n"),
        post("content-length: 0\r\ncontent-length: 5\r\n", "hello"),
        post("content-length: 5\r\ncontent-length: 5\r\n", "hello"),
        post("content-length: +5\r\n", "hello"),
        post("transfer-encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        post("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n"),
        post("host: b.test\r\n", ""),
        format!(
            "CONNECT a.test:{port} HTTP/1.1\r\nhost: a.test:{port}\r\ncontent-length: 3\r\n\r\nabc{next}"
        ),
        format!("GET / HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n{next}"),
        format!("GET https://a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n{next}"),
        format!("GET http://a.test:{port}/ HTTP/1.1\r\nhost: b.test:{port}\r\n\r\n{next}"),
        format!("GET http://b.test@a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n{next}"),
    ];
    // hyper refuses these in its own words.
    let unparsed = requests_sent.len();
    requests_sent.extend([
        post(" folded: x\r\n", ""),
        post("a : b\r\n", ""),
        post("a: b\0\r\n", ""),
        format!("GET http://a.test:{port}/ HTTP/1.1 x\r\n\r\n{next}"),
        format!("\x16\x03\x01\r\n\r\n{next}"),
    ]);
    for (index, request) in requests_sent.iter().enumerate() {
        let answer = scene.ask(request);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{request}: {answer}");
        assert!(index >= unparsed || answer.contains("egress.bad_request"), "{request}: {answer}");
        let record = &scene.await_records(index + 1)[index];
        assert_eq!(record.reason, Some(EgressReason::BadRequest), "{request}");
    }
    assert_eq!(scene.log.len(), requests_sent.len());
    assert!(requests.try_recv().is_err(), "a refused request was sent on");
}

#[test]
fn malformed_chunks_are_refused() {
    let (port, _requests) = http_host("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    for chunks in ["x\r\n", "3 \r\nabc\r\n0\r\n\r\n", "3\nabc\r\n0\r\n\r\n", "1\r\nab\r\n0\r\n\r\n"]
    {
        let mut scene = ProxySetup::allowing(&["a.test:*"]).serve();
        let answer = scene.ask(format!(
            "POST http://a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\n\
             transfer-encoding: chunked\r\n\r\n{chunks}"
        ));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert!(answer.contains("egress.bad_request"), "{chunks:?}: {answer}");
        assert_eq!(scene.records()[0].reason, Some(EgressReason::BadRequest), "{chunks:?}");
    }
}
