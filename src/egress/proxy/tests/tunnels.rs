//! Tunnels, and the ClientHello that they begin with.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};

use super::scene::{ProxySetup, host};
use crate::egress::client_hello::tests::{hello, name_extension, records};
use cofferdam_core::egress::{EgressDecision, EgressReason};

/// A host that answers what it gets with the same.
fn echo() -> (u16, Receiver<usize>) {
    let (sender, received) = channel();
    let port = host(move |mut socket: TcpStream| {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = socket.read(&mut bytes) {
            let _ = sender.send(count);
            socket.write_all(&bytes[..count]).unwrap();
        }
    });
    (port, received)
}

fn hello_for(name: &str) -> Vec<u8> {
    records(&hello(&[name_extension(name)]), 1000)
}

#[test]
fn a_tunnel_carries_bytes_once_its_hello_is_whole() {
    let (port, received) = echo();
    let hello = [records(&hello(&[name_extension("A.test")]), 7), b"behind".to_vec()].concat();
    // In one segment with what follows, and byte by byte.
    for piece in [hello.len(), 1] {
        let mut scene = ProxySetup::allowing(&["a.test:*"]).serve();
        let mut client = scene.connect();
        client.0.set_nodelay(true).unwrap();
        client.tunnel("a.test", port);
        // The last byte of the hello stands before these.
        let (most, rest) = hello.split_at(hello.len() - 7);
        for piece in most.chunks(piece) {
            client.send(piece);
        }
        if piece == 1 {
            assert!(received.try_recv().is_err(), "part of a hello was sent on");
        }
        client.send(rest);
        let mut back = vec![0; hello.len()];
        client.0.read_exact(&mut back).unwrap();
        assert_eq!(back, hello);
        while received.try_recv().is_ok() {}
        drop(client);
        let record = &scene.await_records(1)[0];
        assert_eq!((record.decision, record.host.as_str()), (EgressDecision::Allowed, "a.test"));
        let record = &scene.records()[0];
        let length = hello.len() as u64;
        assert_eq!((record.bytes_sent, record.bytes_received), (length, length));
    }
}

#[test]
fn a_tunnel_for_another_host_ends_before_a_byte_is_sent_on() {
    let (port, received) = echo();
    let literal = format!("127.0.0.1:{port}");
    let without = records(&hello(&[]), 1000);
    for (host, first, reason) in [
        ("a.test", hello_for("b.test"), EgressReason::Sni),
        ("a.test", hello_for("xa.test"), EgressReason::Sni),
        ("a.test", without.clone(), EgressReason::Sni),
        ("127.0.0.1", hello_for("a.test"), EgressReason::Sni),
        ("127.0.0.1", hello_for("127.0.0.1"), EgressReason::Sni),
        ("a.test", b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n".to_vec(), EgressReason::NoTls),
        ("a.test", b"SSH-2.0-x\r\n".to_vec(), EgressReason::NoTls),
        ("a.test", records(&[1, 0, 0, 1, 3], 10), EgressReason::NoTls),
    ] {
        let mut scene = ProxySetup::allowing(&["a.test:*", &literal]).serve();
        let mut client = scene.connect();
        client.tunnel(host, port);
        client.send(&first);
        let alert = client.rest_bytes();
        assert_eq!(alert.len(), if reason == EgressReason::Sni { 7 } else { 0 }, "{alert:?}");
        let record = &scene.records()[0];
        assert_eq!((record.decision, record.reason), (EgressDecision::Denied, Some(reason)));
        assert_eq!((record.bytes_sent, record.bytes_received), (0, 0));
    }
    assert!(received.try_recv().is_err(), "a refused tunnel was sent on");
    let mut scene = ProxySetup::allowing(&[&literal]).serve();
    let mut client = scene.connect();
    client.tunnel("0x7f000001", port);
    client.send(&without);
    let mut back = vec![0; without.len()];
    client.0.read_exact(&mut back).unwrap();
    drop(client);
    assert_eq!(scene.records()[0].decision, EgressDecision::Allowed);
}
