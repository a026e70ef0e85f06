//! Requests for `http://`.

use std::net::Shutdown;

use super::scene::{ProxySetup, http_host};
use cofferdam_core::egress::{EgressDecision, EgressReason};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: x\r\nx-own: 1\r\n\
                  connection: close, x-of-hop\r\nx-of-hop: 1\r\n\r\nhi";

#[test]
fn a_request_is_written_anew_without_the_headers_of_its_connection() {
    let (port, requests) = http_host(OK);
    let mut scene = ProxySetup::allowing(&["a.test:*"]).serve();
    let mut client = scene.connect();
    client.send(format!(
        "POST http://A.test:{port}/x?y=%2f HTTP/1.1\r\nhost: a.TEST:{port}\r\nx-own: 1\r\n\
         connection: keep-alive, X-Of-Hop\r\nx-of-hop: 1\r\nkeep-alive: 5\r\nproxy-connection: x\r\n\
         proxy-authorization: Basic eA==\r\nte: trailers\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n\
         expect: 100-continue\r\ncontent-length: 5\r\n\r\nhello"
    ));
    let mut answer = client.answer();
    if answer.starts_with("HTTP/1.1 100 ") {
        answer = client.answer();
    }
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhi"), "{answer}");
    assert!(answer.contains("x-own: 1"), "{answer}");
    for header in ["keep-alive:", "x-of-hop", "connection:"] {
        assert!(!answer.contains(header), "{header}: {answer}");
    }
    let request = requests.recv().unwrap();
    assert!(request.starts_with("POST /x?y=%2f HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nhello"), "{request}");
    let mut lines: Vec<&str> = request.lines().skip(1).take_while(|l| !l.is_empty()).collect();
    lines.sort_unstable();
    let host = format!("host: a.test:{port}");
    assert_eq!(lines, ["connection: close", "content-length: 5", &host, "x-own: 1"]);
    let record = &scene.records()[0];
    assert_eq!((record.decision, record.reason), (EgressDecision::Allowed, None));
    assert_eq!((record.host.as_str(), record.port), ("a.test", port));
    assert_eq!(record.address.as_deref(), Some("127.0.0.1"));
    assert_eq!(record.step.as_deref(), Some("running_agent"));
    assert_eq!(record.bytes_sent, request.len() as u64);
    assert_eq!(record.bytes_received, OK.len() as u64);
}

#[test]
fn a_chunked_body_and_an_answer_without_a_length_pass() {
    let (port, requests) = http_host("HTTP/1.1 200 OK\r\n\r\nuntil the end");
    let scene = ProxySetup::allowing(&["a.test:*"]).serve();
    let mut client = scene.connect();
    client.send(format!(
        "GET http://a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\ntransfer-encoding: chunked\r\n\r\n\
         3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    ));
    let answer = client.answer();
    assert!(answer.contains("transfer-encoding: chunked"), "{answer}");
    assert!(answer.contains("until the end"), "{answer}");
    let request = requests.recv().unwrap();
    assert!(request.contains("transfer-encoding: chunked"), "{request}");
    assert!(!request.contains("x=y") && request.contains("abc"), "{request}");
}

#[test]
fn each_request_on_a_kept_connection_is_resolved_and_judged_anew() {
    let (port, requests) = http_host(OK);
    let mut scene = ProxySetup::allowing(&["a.test:*", "b.test:*"]).serve();
    scene.names.set("b.test", &[&["127.0.0.1"], &["127.0.0.1"], &["10.0.0.1"]]);
    let get =
        |host: &str| format!("GET http://{host}:{port}/ HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n");
    let mut client = scene.connect();
    for host in ["a.test", "b.test", "b.test"] {
        client.send(get(host));
        let answer = client.answer();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(requests.recv().unwrap().contains(host));
    }
    // The name has another address now.
    client.send(get("b.test"));
    assert!(client.rest().contains("egress.private_address"));
    let mut client = scene.connect();
    client.send(get("a.test") + &get("c.test"));
    assert!(client.answer().starts_with("HTTP/1.1 200 "));
    assert!(client.rest().contains("egress.not_listed"));
    let reasons: Vec<_> = scene.records().iter().map(|record| record.reason).collect();
    let private = Some(EgressReason::PrivateAddress);
    assert_eq!(reasons, [None, None, None, private, None, Some(EgressReason::NotListed)]);
    assert!(requests.recv().unwrap().contains("a.test"));
    assert!(requests.try_recv().is_err(), "a refused request was sent on");
}

#[test]
fn the_answer_to_head_keeps_its_length_and_has_no_body() {
    let (port, _requests) = http_host("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
    let scene = ProxySetup::allowing(&["a.test:*"]).serve();
    let head = format!(
        "HEAD http://a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\nconnection: close\r\n\r\n"
    );
    let answer = scene.ask(head);
    assert!(answer.contains("content-length: 2\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn a_program_that_has_closed_its_side_reads_the_answer() {
    let (port, _requests) = http_host(OK);
    let scene = ProxySetup::allowing(&["a.test:*"]).serve();
    let mut client = scene.connect();
    client.send(format!("GET http://a.test:{port}/ HTTP/1.0\r\n\r\n"));
    client.0.shutdown(Shutdown::Write).unwrap();
    let answer = client.rest();
    assert!(answer.starts_with("HTTP/1.0 200 ") && answer.ends_with("hi"), "{answer}");
}

#[test]
fn an_answer_that_ends_early_is_cut_for_the_program_too() {
    let (port, _requests) = http_host("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort");
    let mut scene = ProxySetup::allowing(&["a.test:*"]).serve();
    let answer =
        scene.ask(format!("GET http://a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n"));
    assert!(answer.contains("content-length: 100") && answer.ends_with("short"), "{answer}");
    let record = &scene.records()[0];
    assert_eq!(record.decision, EgressDecision::Cut);
    assert_eq!(record.reason, Some(EgressReason::Connect));
}
