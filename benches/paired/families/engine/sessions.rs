//! What answers at once: a terminal, and a context that is up.

use std::io::{Read, Write};
use std::net::TcpStream;

use cofferdam_test_server::service::Setup;
use serde_json::{Value, json};
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use super::scene::Engine;
use crate::report::Report;
use crate::stats::{Pairs, Spread, median, millis, quantile};

/// For each pair: a percentile needs many.
const KEYS_PER_PAIR: usize = 20;

pub fn measure(report: &mut Report) {
    echo(report);
    context(report);
}

/// Types a key and waits until the terminal shows it.
fn echo(report: &mut Report) {
    let mut engine = Engine::start(Setup::shell());
    let workspace = engine.create(&json!({}));
    let body = json!({"cmd": "cat", "tty": true});
    let session = engine.json("POST", &format!("{workspace}/sessions"), &body);
    let id = session["session_id"].as_str().unwrap();
    let target = format!("{workspace}/sessions/{id}/attach");
    let mut socket = attach(TcpStream::connect(engine.service.address).unwrap(), &target);
    let taken: Vec<f64> = (0..report.pairs * KEYS_PER_PAIR)
        .map(|_| {
            millis(|| {
                socket.send(Message::binary(&b"x"[..])).unwrap();
                while !is_output(&socket.read().unwrap()) {}
            })
        })
        .collect();
    let p99 = quantile(taken.iter().copied(), 0.99);
    let spread = Spread { median: p99, ..Spread::of(taken.iter().copied()) };
    report.row("engine_echo", p99, median(taken.into_iter()), spread);
}

fn attach(mut socket: TcpStream, target: &str) -> WebSocket<TcpStream> {
    socket.set_nodelay(true).unwrap();
    let request = format!(
        "GET {target} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: cofferdam.session.v1\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    let mut socket = WebSocket::from_raw_socket(socket, Role::Client, None);
    // The state of the session.
    assert!(socket.read().unwrap().is_text());
    socket
}

fn is_output(message: &Message) -> bool {
    matches!(message, Message::Binary(bytes) if bytes.ends_with(b"x"))
}

fn context(report: &mut Report) {
    let mut engine = Engine::start(Setup::shell());
    let workspace = engine.create(&json!({}));
    let body = json!({
        "workspace_id": workspace.rsplit('/').next(),
        "stateful": true,
        "code_blocks": [{"language": "python", "code": "1+1"}],
    });
    let mut pairs = Pairs::default();
    for pair in 0..=report.pairs {
        let mut answer = None;
        let body = body.to_string();
        let took = millis(|| answer = Some(engine.ask("POST", "/v1/execute", &body)));
        let asked = millis(|| _ = engine.ask("GET", "/health", ""));
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let value: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(value["blocks"][0]["results"][0]["text"], "2", "{value}");
        // The first call starts the kernel.
        if pair > 0 {
            pairs.push(took, asked);
        }
    }
    report.row("engine_context", pairs.first(), pairs.second(), pairs.firsts());
}
