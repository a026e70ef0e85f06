//! What a rule limits, and what the proxy itself does.

use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};

use super::scene::{HostAuthority, RuledScene, rest};
use crate::egress::proxy::tests::scene::read_message;
use cofferdam_core::egress::{EgressDecision, EgressReason};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

fn rule(port: u16, rule: &Value) -> Value {
    json!({"rules": {format!("a.test:{port}"): [rule]}})
}

#[test]
fn a_rule_allows_so_many_requests_and_no_more_however_they_come() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let scene = RuledScene::new(&authority, rule(port, &json!({"requests_max": 5})));
    let statuses: Vec<String> = std::thread::scope(|scope| {
        let ask = || scene.get(port, "/", "");
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let with = |text: &str| statuses.iter().filter(|answer| answer.contains(text)).count();
    assert_eq!((with("HTTP/1.1 200 "), with("egress.requests_max")), (5, 11), "{statuses:?}");
    assert_eq!(with("HTTP/1.1 429 "), 11);
    assert_eq!(requests.try_iter().count(), 5);
}

#[test]
fn bodies_end_at_the_limits_of_their_rule() {
    let authority = HostAuthority::new();
    let (port, _requests) = authority.answering(OK);
    let limits = json!({"request_bytes_max": 4, "response_bytes_max": 5});
    let scene = RuledScene::new(&authority, rule(port, &limits));
    assert!(scene.get(port, "/", "").ends_with("hello"));
    let post = |headers: &str, body: &str| {
        let head = format!("POST / HTTP/1.1\r\nhost: a.test:{port}\r\nconnection: close\r\n");
        scene.ask(port, format!("{head}{headers}\r\n{body}"))
    };
    let fits = post("content-length: 4\r\n", "four");
    assert!(fits.starts_with("HTTP/1.1 200 "), "{fits}");
    for answer in [
        post("content-length: 5\r\n", "fiver"),
        post("transfer-encoding: chunked\r\n", "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"),
    ] {
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
        assert!(answer.contains("egress.bytes_max"), "{answer}");
    }
    let (port, _requests) = authority.answering(OK);
    let scene = RuledScene::new(&authority, rule(port, &json!({"response_bytes_max": 4})));
    let answer = scene.get(port, "/", "");
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\n4\r\nfour\r\n0\r\n\r\n";
    let (port, _requests) = authority.answering(chunked);
    let mut scene = RuledScene::new(&authority, rule(port, &json!({"response_bytes_max": 4})));
    let answer = scene.get(port, "/", "");
    assert!(answer.contains("four") && !answer.ends_with("0\r\n\r\n"), "{answer}");
    let record = &scene.scene.records()[0];
    assert_eq!(record.reason, Some(EgressReason::BytesMax));
    assert_eq!((record.decision, record.status), (EgressDecision::Cut, Some(200)));
}

#[test]
fn a_head_of_an_answer_is_waited_for_as_long_as_the_rule_says() {
    let authority = HostAuthority::new();
    let port = authority.host(|mut stream| {
        read_message(&mut stream);
        rest(&mut stream);
    });
    let mut scene = RuledScene::new(&authority, rule(port, &json!({"wait_ms": 50})));
    let answer = scene.get(port, "/", "");
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("egress.connect"), "{answer}");
    assert_eq!(scene.verdicts(), ["failed connect 0"]);
    // Silence before the head is no idleness.
    let port = authority.host(|mut stream| {
        read_message(&mut stream);
        std::thread::sleep(Duration::from_millis(2500));
        let _ = stream.write_all(OK.as_bytes());
        let _ = stream.flush();
        rest(&mut stream);
    });
    let scene = RuledScene::with(&authority, rule(port, &json!({})), |setup| {
        setup.limits.idle_max = Duration::from_secs(1);
    });
    let answer = scene.get(port, "/", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_host_that_cannot_prove_who_it_is_gets_nothing() {
    let authority = HostAuthority::new();
    let other = HostAuthority::new();
    let (port, requests) = other.answering(OK);
    let mut scene = RuledScene::new(&authority, rule(port, &json!({})));
    let answer = scene.get(port, "/", "");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("egress.upstream_tls") && answer.contains("certificate"), "{answer}");
    assert!(requests.try_recv().is_err());
    assert_eq!(scene.verdicts(), ["failed upstream_tls 0"]);
    // A right authority, and another name.
    let config = authority.config(&["b.test"], &[]);
    let port = crate::egress::proxy::tests::scene::host(move |socket| {
        let connection = rustls::ServerConnection::new(config.clone()).unwrap();
        rest(&mut rustls::StreamOwned::new(connection, socket));
    });
    let scene = RuledScene::new(&authority, rule(port, &json!({})));
    assert!(scene.get(port, "/", "").contains("egress.upstream_tls"));
}

#[test]
fn a_host_is_resolved_and_judged_as_without_rules() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let mut scene = RuledScene::new(&authority, rule(port, &json!({})));
    scene.scene.names.set("a.test", &[&["10.0.0.1"], &["169.254.169.254"], &["127.0.0.1"]]);
    for _ in 0..2 {
        let answer = scene.get(port, "/", "");
        assert!(answer.contains("egress.private_address"), "{answer}");
    }
    assert!(requests.try_recv().is_err());
    assert!(scene.get(port, "/", "").ends_with("hello"));
    let (denied, allowed) = ("denied private_address 0", "allowed - 0");
    assert_eq!(scene.verdicts(), [denied, denied, allowed]);
}

#[test]
fn requests_beyond_the_limit_wait_for_others() {
    let authority = HostAuthority::new();
    let (release, released) = channel::<()>();
    let released = std::sync::Mutex::new(released);
    let port = authority.host(move |mut stream| {
        read_message(&mut stream);
        let _ = released.lock().unwrap().recv();
        let _ = stream.write_all(OK.as_bytes());
        let _ = stream.flush();
        rest(&mut stream);
    });
    let scene = RuledScene::with(&authority, rule(port, &json!({})), |setup| {
        setup.limits.requests_max = 1;
    });
    std::thread::scope(|scope| {
        let ask = || scene.get(port, "/", "");
        let both = [scope.spawn(ask), scope.spawn(ask)];
        scene.scene.await_records(2);
        release.send(()).unwrap();
        release.send(()).unwrap();
        for answer in both {
            assert!(answer.join().unwrap().ends_with("hello"));
        }
    });
}

#[test]
fn bytes_end_at_the_limit_of_all_connections() {
    let authority = HostAuthority::new();
    let port = authority.host(|mut stream| {
        read_message(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let mut scene = RuledScene::with(&authority, rule(port, &json!({})), |setup| {
        setup.policy.bytes_max = 100_000;
    });
    let mut stream = scene.open(port);
    let head = format!("GET / HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert!((50_000..=110_000).contains(&bytes.len()), "{}", bytes.len());
    assert!(scene.get(port, "/", "").contains("egress.bytes"));
    assert_eq!(scene.verdicts(), ["cut bytes 0", "denied bytes 0"]);
}
