//! Tunnel, TLS and request name one host.

use std::io::Write;

use serde_json::json;

use super::scene::{HostAuthority, RuledScene, rest};
use crate::egress::client_hello::tests::{hello, name_extension, records};
use cofferdam_core::egress::{EgressDecision, EgressReason};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

#[test]
fn a_request_for_another_host_is_refused_and_sent_nowhere() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let both = json!({"rules": {format!("a.test:{port}"): [{}], format!("*.b.test:{port}"): [{}]}});
    let mut scene = RuledScene::new(&authority, both);
    for (host, target) in [
        (format!("x.b.test:{port}"), "/"),
        ("a.test".to_owned(), "/"),
        (format!("127.0.0.1:{port}"), "/"),
        (format!("x.b.test:{port}"), "https://a.test/"),
    ] {
        let answer = scene.ask(port, format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
        assert!(answer.contains("egress.host_mismatch"), "{host}: {answer}");
    }
    let answer = scene.get(port, "/", "");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hi"), "{answer}");
    let other = scene.open_as("x.b.test", port, "x.b.test");
    drop(other);
    assert_eq!(requests.try_iter().count(), 1);
    let mismatch = "denied host_mismatch -".to_owned();
    let mut expected = vec![mismatch; 4];
    expected.push("allowed - 0".to_owned());
    assert_eq!(scene.verdicts(), expected);
}

#[test]
fn a_tunnel_whose_tls_names_another_host_ends_and_is_recorded() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let both = json!({"rules": {format!("a.test:{port}"): [{}], format!("b.test:{port}"): [{}]}});
    let mut scene = RuledScene::new(&authority, both);
    let mut stream = scene.open_as("a.test", port, "b.test");
    assert!(stream.write_all(b"GET / HTTP/1.1\r\n\r\n").is_err() || rest(&mut stream).is_empty());
    for first in [
        records(&hello(&[]), 1000),
        b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n".to_vec(),
        format!("CONNECT b.test:{port} HTTP/1.1\r\nhost: b.test:{port}\r\n\r\n").into_bytes(),
    ] {
        let mut client = scene.scene.connect();
        client.tunnel("a.test", port);
        client.send(&first);
        client.rest_bytes();
    }
    // A hello that is never whole says nothing.
    let mut client = scene.scene.connect();
    client.tunnel("a.test", port);
    client.send(&records(&hello(&[name_extension("a.test")]), 1000)[..40]);
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    client.rest_bytes();
    let records = scene.scene.records();
    let reasons: Vec<_> = records.iter().map(|record| record.reason.unwrap()).collect();
    let (mismatch, no_tls) = (EgressReason::HostMismatch, EgressReason::NoTls);
    assert_eq!(reasons, [mismatch, mismatch, no_tls, no_tls, no_tls]);
    assert!(records.iter().all(|record| record.decision == EgressDecision::Denied));
    assert!(records.iter().all(|record| record.method.is_none() && record.host == "a.test"));
    assert!(requests.try_recv().is_err(), "a refused tunnel was sent on");
}

#[test]
fn a_tunnel_within_a_tunnel_and_trace_are_refused() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let rules = json!({"rules": {format!("a.test:{port}"): [{}]}});
    let mut scene = RuledScene::new(&authority, rules);
    for request in [
        format!("CONNECT a.test:{port} HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n"),
        format!("TRACE / HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n"),
        format!("GET http://a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n"),
        format!("OPTIONS * HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n"),
    ] {
        let answer = scene.ask(port, &request);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
    }
    assert!(requests.try_recv().is_err(), "a refused request was sent on");
    assert_eq!(scene.verdicts(), vec!["denied bad_request -"; 4]);
}

#[test]
fn what_is_judged_is_what_is_sent() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let rules = json!({"rules": {format!("a.test:{port}"): [
        {"action": "deny", "path": "/admin/*"}, {"methods": ["GET"], "path": "/v1/*"}
    ]}});
    let scene = RuledScene::new(&authority, rules);
    for (path, status, reason) in [
        ("/v1/../admin/x", 403, "rule_denied"),
        ("/v1/%2e%2e/admin/x", 403, "rule_denied"),
        ("//admin//x", 403, "rule_denied"),
        ("/ADMIN/x", 403, "rule_denied"),
        ("/admin;a/x", 403, "rule_denied"),
        ("/v2", 403, "no_rule"),
        ("/v1/a%2fb", 400, "bad_request"),
        ("/v1/a%5cb", 400, "bad_request"),
        ("/v1/a%00", 400, "bad_request"),
    ] {
        let answer = scene.get(port, path, "");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert!(answer.contains(&format!("egress.{reason}")), "{path}: {answer}");
        assert!(requests.try_recv().is_err(), "{path}");
    }
    let answer = scene.get(port, "/v1/./a/../%41%7e?q=%2f..", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(requests.recv().unwrap().starts_with("GET /v1/A~?q=%2f.. HTTP/1.1\r\n"));
}
