//! Requests that two readers could understand differently do not pass, within TLS too.

use std::io::Write;
use std::net::Shutdown;

use serde_json::json;

use super::scene::{HostAuthority, RuledScene, rest};
use crate::egress::proxy::tests::scene::read_message;
use cofferdam_core::egress::EgressReason;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[test]
fn an_ambiguous_request_is_refused_and_what_follows_it_is_no_request() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let mut scene = RuledScene::new(&authority, json!({"rules": {format!("a.test:{port}"): [{}]}}));
    let next = format!("GET /next HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n");
    let post = |headers: &str, body: &str| {
        format!("POST / HTTP/1.1\r\nhost: a.test:{port}\r\n{headers}\r\n{body}{next}")
    };
    let sent = [
        post("content-length: 5\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n"),
        post("transfer-encoding: chunked\r\ncontent-length: 5\r\n", "0\r\n\r\n"),
        post("content-length: 0\r\ncontent-length: 5\r\n", "hello"),
        post("content-length: 5\r\ncontent-length: 5\r\n", "hello"),
        post("content-length: +5\r\n", "hello"),
        post("transfer-encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        post("transfer-encoding: xchunked\r\n", "0\r\n\r\n"),
        post(" folded: x\r\n", ""),
        post("a : b\r\n", ""),
        post("a: b\0\r\n", ""),
        post("host: b.test\r\n", ""),
        post("transfer-encoding: chunked\r\n", "x\r\n"),
        post("transfer-encoding: chunked\r\n", "3 \r\nabc\r\n0\r\n\r\n"),
        post("transfer-encoding: chunked\r\n", "1\r\nab\r\n0\r\n\r\n"),
        format!("GET /\x01 HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n{next}"),
        format!("GET / HTTP/1.1\r\n\r\n{next}"),
    ];
    for request in &sent {
        let answer = scene.ask(port, request);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{request:?}: {answer}");
        let is_get = request.starts_with("GET");
        assert!(is_get || !answer.contains("\"method\":\"GET\""), "{request:?}: {answer}");
        let seen: Vec<String> = requests.try_iter().collect();
        assert!(!seen.iter().any(|seen| seen.contains("/next")), "{request:?}: {seen:?}");
    }
    let records = scene.scene.records();
    assert_eq!(records.len(), sent.len(), "{records:?}");
    for (record, request) in records.iter().zip(&sent) {
        assert_eq!(record.reason, Some(EgressReason::BadRequest), "{request:?}: {record:?}");
        let is_true = record.method.as_ref().is_none_or(|method| request.starts_with(method));
        assert!(is_true, "{request:?}: {record:?}");
    }
}

#[test]
fn each_request_on_a_kept_connection_is_judged_and_written_anew() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    let rules = json!({"rules": {format!("a.test:{port}"): [{"path": "/ok*"}]}});
    let mut scene = RuledScene::new(&authority, rules);
    let mut stream = scene.open(port);
    for path in ["/ok1", "/ok2"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a.test:{port}\r\nconnection: keep-alive, x-of-hop\r\n\
             x-of-hop: 1\r\nupgrade: h2c\r\nproxy-authorization: x\r\nX-Own: 1\r\n\
             transfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let answer = read_message(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hi"), "{answer}");
        let request = requests.recv().unwrap();
        assert!(request.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{request}");
        for gone in ["x-of-hop", "upgrade", "proxy-", "x=y", "connection"] {
            assert!(!request.contains(gone), "{gone}: {request}");
        }
        assert!(request.contains("x-own: 1") && request.contains("abc"), "{request}");
    }
    stream
        .write_all(format!("GET /no HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n").as_bytes())
        .unwrap();
    let answer = rest(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("egress.no_rule"), "{answer}");
    assert!(answer.contains("\"method\":\"GET\"") && answer.contains("\"rule\":null"), "{answer}");
    let records = scene.scene.records();
    let statuses: Vec<_> = records.iter().map(|one| (one.status, one.rule)).collect();
    assert_eq!(statuses, [(Some(200), Some(0)), (Some(200), Some(0)), (Some(403), None)]);
    assert_eq!(records[0].path.as_deref(), Some("/ok1"));
    assert!(records[0].bytes_sent > 3 && records[0].bytes_received > 2, "{records:?}");
}

#[test]
fn a_program_that_has_closed_its_side_reads_the_answer() {
    let authority = HostAuthority::new();
    let (port, _requests) = authority.answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    let scene = RuledScene::new(&authority, json!({"rules": {format!("a.test:{port}"): [{}]}}));
    let mut stream = scene.open(port);
    let head = format!(
        "POST / HTTP/1.1\r\nhost: a.test:{port}\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    stream.sock.shutdown(Shutdown::Write).unwrap();
    let answer = rest(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hi"), "{answer}");
}
