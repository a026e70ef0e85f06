//! Bounds of time, bytes and connections, and the end of a proxy.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{Backlog, listen};

use super::scene::{ProxyClient, ProxySetup, host, http_host, list, wait_until};
use crate::egress::client_hello::tests::{hello, name_extension, records};
use crate::egress::proxy::context::ProxyLimits;
use cofferdam_core::egress::{EgressDecision, EgressReason};

const FLOOD_BYTES: usize = 64 << 20;

/// A host that reads and says nothing.
fn silent_host() -> u16 {
    host(|mut socket: TcpStream| while matches!(socket.read(&mut [0; 4096]), Ok(1..)) {})
}

/// A host that sends far more than a client has to take.
fn flood() -> u16 {
    host(|mut socket: TcpStream| {
        let _ = socket.read(&mut [0; 4096]);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        for _ in 0..FLOOD_BYTES / 4096 {
            if socket.write_all(&[b'x'; 4096]).is_err() {
                break;
            }
        }
    })
}

fn get(port: u16) -> String {
    format!("GET http://a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n")
}

fn impatient() -> ProxySetup {
    let limits = ProxyLimits { idle_max: Duration::from_millis(300), ..ProxyLimits::default() };
    ProxySetup { limits, ..ProxySetup::allowing(&["a.test:*"]) }
}

fn hello_for(name: &str) -> Vec<u8> {
    records(&hello(&[name_extension(name)]), 1000)
}

#[test]
fn a_head_has_16_kib_and_no_more() {
    let (port, _requests) = http_host("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let scene = ProxySetup::allowing(&["a.test:*"]).serve();
    let head = |bytes: usize| {
        let empty =
            format!("{}x: \r\n\r\n", get(port).trim_end_matches("\r\n").to_owned() + "\r\n");
        empty.replace("x: ", &format!("x: {}", "y".repeat(bytes - empty.len())))
    };
    assert_eq!(head(16 * 1024).len(), 16 * 1024);
    let mut client = scene.connect();
    client.send(head(16 * 1024));
    assert!(client.answer().starts_with("HTTP/1.1 200 "));
    client.send(head(16 * 1024 + 1));
    let answer = client.rest();
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("egress.bad_request"),
        "{answer}"
    );
    let short_lines = "a:\r\n".repeat(4000);
    let many = get(port).replace("\r\n\r\n", &format!("\r\n{short_lines}\r\n"));
    let mut client = scene.connect();
    client.send(many);
    assert!(client.answer().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_head_that_trickles_is_refused_in_time() {
    let mut scene = impatient().serve();
    let mut slow = scene.connect();
    let mut writer = slow.0.try_clone().unwrap();
    let trickle = std::thread::spawn(move || {
        while writer.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let answer = slow.answer();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    trickle.join().unwrap();
    // One that says nothing has no record.
    assert_eq!(scene.connect().rest(), "");
    let records = scene.records();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].reason, Some(EgressReason::BadRequest));
}

#[test]
fn a_host_that_is_silent_is_given_up() {
    let port = silent_host();
    let mut scene = impatient().serve();
    let answer = scene.ask(get(port));
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("egress.connect"), "{answer}");
    // So is a tunnel over which nothing passes, and one that says nothing.
    let mut quiet = scene.connect();
    quiet.tunnel("a.test", port);
    assert_eq!(quiet.rest(), "");
    let mut tunnel = scene.connect();
    tunnel.tunnel("a.test", port);
    tunnel.send(hello_for("a.test"));
    assert_eq!(tunnel.rest(), "");
    let records = scene.records();
    let decisions: Vec<_> = records.iter().map(|record| record.decision).collect();
    assert_eq!(
        decisions,
        [EgressDecision::Failed, EgressDecision::Allowed, EgressDecision::Allowed]
    );
}

#[test]
fn a_host_that_accepts_nothing_leaves_time_for_its_next_address() {
    let (port, _requests) = http_host("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    // With its queue full, the kernel drops what opens a connection.
    let deaf = TcpListener::bind(("127.0.0.2", port)).unwrap();
    listen(&deaf, Backlog::new(0).unwrap()).unwrap();
    let _queued = TcpStream::connect(("127.0.0.2", port)).unwrap();
    let limits = ProxyLimits { connect_within: Duration::from_secs(2), ..ProxyLimits::default() };
    let mut setup = ProxySetup { limits, ..ProxySetup::allowing(&["a.test:*"]) };
    setup.policy.private_hosts = list(&["127.0.0.0/8"]);
    let mut scene = setup.serve();
    scene.names.set("a.test", &[&["127.0.0.2", "127.0.0.1"], &["127.0.0.2"]]);
    let mut client = scene.connect();
    client.send(get(port));
    assert!(client.answer().starts_with("HTTP/1.1 200 "));
    let answer = scene.ask(get(port));
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("egress.connect"), "{answer}");
    let addresses: Vec<_> = scene.records().into_iter().map(|one| one.address.unwrap()).collect();
    assert_eq!(addresses, ["127.0.0.1", "127.0.0.2"]);
}

#[test]
fn an_upload_that_takes_longer_than_the_idle_time_passes() {
    let (port, _requests) = http_host("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let scene = impatient().serve();
    let mut client = scene.connect();
    let head =
        get(port).replace("GET", "POST").replace("\r\n\r\n", "\r\ncontent-length: 20\r\n\r\n");
    client.send(head);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(30));
        client.send("x");
    }
    assert!(client.answer().starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_65th_connection_is_refused_until_another_ends() {
    let scene = ProxySetup::allowing(&[]).serve();
    let mut idle: Vec<ProxyClient> = (0..64).map(|_| scene.connect()).collect();
    let reason = || {
        let answer = scene.ask(get(1));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        ["connections", "not_listed"].into_iter().find(|reason| answer.contains(reason)).unwrap()
    };
    // The kernel hands over connections in their order.
    assert_eq!(reason(), "connections");
    drop(idle.pop());
    wait_until(|| reason() == "not_listed");
    let records = scene.log.snapshot();
    assert_eq!(records[0].reason, Some(EgressReason::Connections));
    assert_eq!((records[0].host.as_str(), records[0].decision), ("a.test", EgressDecision::Denied));
}

#[test]
fn bytes_end_at_their_limit_over_all_connections() {
    let (flood, silent) = (flood(), silent_host());
    let mut setup = ProxySetup::allowing(&["a.test:*"]);
    setup.policy.bytes_max = 1_000_000;
    let mut scene = setup.serve();
    let mut tunnel = scene.connect();
    tunnel.tunnel("a.test", silent);
    tunnel.send(hello_for("a.test"));
    wait_until(|| scene.log.bytes() > 0);
    let answer = scene.ask(get(flood));
    assert!(answer.len() > 900_000, "{}", answer.len());
    // Behind the limit nothing passes, and nothing begins.
    tunnel.send("x");
    assert_eq!(tunnel.rest(), "");
    assert!(scene.ask(get(flood)).contains("egress.bytes"));
    let records = scene.records();
    let passed: u64 = records.iter().map(|one| one.bytes_sent + one.bytes_received).sum();
    assert_eq!((passed, scene.log.bytes()), (1_000_000, 1_000_000));
    let decisions: Vec<_> = records.iter().map(|one| (one.decision, one.reason)).collect();
    let (cut, bytes) = (EgressDecision::Cut, Some(EgressReason::Bytes));
    assert_eq!(decisions, [(cut, bytes), (cut, bytes), (EgressDecision::Denied, bytes)]);
}

#[test]
fn closing_a_proxy_ends_its_connections_and_leaves_no_task() {
    let (silent, flood) = (silent_host(), flood());
    let mut scene = ProxySetup::allowing(&["a.test:*"]).serve();
    let mut clients = [scene.connect(), scene.connect(), scene.connect(), scene.connect()];
    clients[0].send(get(silent));
    clients[1].send(get(flood));
    clients[2].tunnel("a.test", silent);
    clients[2].send(hello_for("a.test"));
    clients[3].send("GET http://a");
    scene.await_records(3);
    let began = Instant::now();
    let records = scene.records();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(records.len(), 3);
    // Each task holds the log.
    assert_eq!(Arc::strong_count(&scene.log), 1);
    for client in &mut clients {
        client.rest_bytes();
    }
}
