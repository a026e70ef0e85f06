//! `GET S/attach`: viewers of a session over a WebSocket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cofferdam_test_server::service::{Service, wait_until};
use serde_json::{Value, json};
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tungstenite::{Message, WebSocket};

use crate::exchange::{TOKENS, ask, engine_server};
use crate::sessions::TestWorkspace;

const SOON: Duration = Duration::from_secs(20);
const PROTOCOL: &str = "cofferdam.session.v1";

/// The head of the response to an attach, and the socket behind it.
fn handshake(
    service: &Service,
    target: &str,
    protocols: &str,
    headers: &str,
) -> (String, TcpStream) {
    let mut socket = TcpStream::connect(service.address).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let request = format!(
        "GET {target} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: {protocols}\r\n{headers}\r\n"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (String::from_utf8(head).unwrap(), socket)
}

/// An attached client.
struct Attached {
    socket: WebSocket<TcpStream>,
    state: Value,
}

impl Attached {
    fn to(workspace: &TestWorkspace, session: &str, query: &str) -> Self {
        let target = format!("{}/{session}/attach{query}", workspace.path);
        let (head, socket) = handshake(&workspace.service, &target, PROTOCOL, "");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let mut attached = Self::over(socket);
        attached.state = attached.text();
        assert_eq!(attached.state["type"], "attached");
        attached
    }

    fn over(socket: TcpStream) -> Self {
        let config = WebSocketConfig::default().max_message_size(Some(4 << 20));
        let socket = WebSocket::from_raw_socket(socket, Role::Client, Some(config));
        Self { socket, state: Value::Null }
    }

    fn next(&mut self) -> Message {
        loop {
            match self.socket.read().unwrap() {
                Message::Ping(_) | Message::Pong(_) => {}
                message => return message,
            }
        }
    }

    fn text(&mut self) -> Value {
        match self.next() {
            Message::Text(text) => serde_json::from_str(text.as_str()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The next piece of output: stream, offset, bytes.
    fn output(&mut self) -> (u8, u64, Vec<u8>) {
        match self.next() {
            Message::Binary(bytes) => {
                let offset = u64::from_be_bytes(bytes[1..9].try_into().unwrap());
                (bytes[0], offset, bytes[9..].to_vec())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reads output until it ends with `text`; returns all of it.
    fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.ends_with(text) {
            seen.push_str(std::str::from_utf8(&self.output().2).unwrap());
        }
        seen
    }

    fn close_code(&mut self) -> u16 {
        loop {
            match self.socket.read() {
                Ok(Message::Close(Some(CloseFrame { code, .. }))) => return code.into(),
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn send(&mut self, message: impl Into<Message>) {
        self.socket.send(message.into()).unwrap();
    }
}

#[test]
fn a_viewer_sees_output_sends_input_and_learns_the_end() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("echo err >&2; read line; echo out $line; exit 3");
    let mut viewer = Attached::to(&workspace, &session, "");
    assert_eq!((&viewer.state["offset"], &viewer.state["status"]), (&json!(0), &json!("running")));
    assert_eq!((&viewer.state["viewers"], &viewer.state["tty"]), (&json!(1), &json!(false)));
    assert_eq!(viewer.output(), (2, 0, b"err\n".to_vec()));
    viewer.send(b"typed\n".to_vec());
    assert_eq!(viewer.output(), (1, 4, b"out typed\n".to_vec()));
    let end = json!({"type": "exit", "exit_code": 3, "signal": null, "timed_out": false});
    assert_eq!(viewer.text(), end);
    assert_eq!(viewer.close_code(), 1000);
    // A viewer that comes later sees all of it.
    let mut late = Attached::to(&workspace, &session, "?offset=2");
    assert_eq!(late.output(), (2, 2, b"r\n".to_vec()));
    assert_eq!(late.output(), (1, 4, b"out typed\n".to_vec()));
    assert_eq!((late.text(), late.close_code()), (end, 1000));
}

#[test]
fn several_viewers_see_the_same_from_where_they_ask() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("while read line; do echo $line; done");
    let mut first = Attached::to(&workspace, &session, "");
    first.send(b"one\n".to_vec());
    assert_eq!(first.until("one\n"), "one\n");
    let mut second = Attached::to(&workspace, &session, "?offset=end&readonly=1");
    assert_eq!(second.state["offset"], 4);
    second.send(Message::Ping(Vec::new().into()));
    first.send(b"two\n".to_vec());
    assert_eq!((first.until("two\n"), second.until("two\n")), ("two\n".into(), "two\n".into()));
    assert_eq!(workspace.get(&session).json()["viewers"], 2);
    second.send(b"x".to_vec());
    assert_eq!(second.close_code(), 1008);
    drop(second);
    let gone = || workspace.get(&session).json()["viewers"] == 1;
    wait_until("the viewer is gone", SOON, gone);
    first.send(Message::text(r#"{"type":"eof"}"#));
    assert_eq!(first.text()["exit_code"], 0);
}

#[test]
fn commands_signal_the_program_and_bad_ones_close_the_viewer() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("trap 'echo got' USR1; echo up; while :; do sleep 0.01; done");
    let mut viewer = Attached::to(&workspace, &session, "");
    viewer.until("up\n");
    viewer.send(Message::text(r#"{"type":"signal","signal":"USR1"}"#));
    viewer.until("got\n");
    // Without a terminal a size means nothing, and harms nothing.
    viewer.send(Message::text(r#"{"type":"resize","cols":10,"rows":10}"#));
    viewer.send(Message::text(r#"{"type":"signal","signal":"NOPE"}"#));
    assert_eq!(viewer.close_code(), 1008);
    for bad in ["{}", "[", r#"{"type":"eof","more":1}"#] {
        let mut viewer = Attached::to(&workspace, &session, "?offset=end");
        viewer.send(Message::text(bad));
        assert_eq!(viewer.close_code(), 1008, "{bad}");
    }
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_so() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("sleep 1000");
    // A frame without a mask.
    let mut viewer = Attached::to(&workspace, &session, "");
    viewer.socket.get_mut().write_all(&[0x82, 1, b'x']).unwrap();
    assert_eq!(viewer.close_code(), 1002);
    let mut viewer = Attached::to(&workspace, &session, "");
    // More than is read of it may be left when the connection closes.
    let _ = viewer.socket.send(Message::binary(vec![0; (1 << 20) + 1]));
    assert_eq!(viewer.close_code(), 1009);
    assert_eq!(workspace.get(&session).json()["status"], "running");
}

#[test]
fn the_seventeenth_viewer_is_sent_away() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("sleep 1000");
    let viewers: Vec<Attached> = (0..16).map(|_| Attached::to(&workspace, &session, "")).collect();
    let target = format!("{}/{session}/attach", workspace.path);
    let (head, socket) = handshake(&workspace.service, &target, PROTOCOL, "");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(Attached::over(socket).close_code(), 1013);
    drop(viewers);
    let gone = || workspace.get(&session).json()["viewers"] == 0;
    wait_until("the viewers are gone", SOON, gone);
    Attached::to(&workspace, &session, "");
}

#[test]
fn a_viewer_that_never_reads_ends_no_program_and_is_sent_away() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("read go; seq 1 4000000; echo done");
    let idle = Attached::to(&workspace, &session, "");
    let mut other = Attached::to(&workspace, &session, "?offset=end");
    other.send(b"\n".to_vec());
    // The other one may have lost old output, and sees the end.
    let end = loop {
        if let Message::Text(text) = other.next() {
            let text: Value = serde_json::from_str(text.as_str()).unwrap();
            if text["type"] == "exit" {
                break text;
            }
            assert_eq!(text["type"], "truncated", "{text}");
            assert!(text["from"].as_u64() < text["to"].as_u64(), "{text}");
        }
    };
    assert_eq!(end["exit_code"], 0);
    assert_eq!(workspace.result(&session)["exit_code"], 0);
    let gone = || workspace.get(&session).json()["viewers"] == 0;
    wait_until("the viewer is sent away", SOON, gone);
    drop(idle);
}

#[test]
fn only_a_websocket_of_the_protocol_is_accepted() {
    let workspace = TestWorkspace::new();
    let session = workspace.start("sleep 1000");
    let target = format!("{}/{session}/attach", workspace.path);
    workspace.get(&format!("{session}/attach")).assert_error(422, "validation.invalid_request");
    let (head, _) = handshake(&workspace.service, &target, "chat", "");
    assert!(head.starts_with("HTTP/1.1 422 "), "{head}");
    let (head, _) = handshake(&workspace.service, &format!("{target}?offset=x"), PROTOCOL, "");
    assert!(head.starts_with("HTTP/1.1 422 "), "{head}");
    for (origin, status) in
        [("http://localhost:3000", 101), ("http://127.0.0.1", 101), ("https://evil.example", 403)]
    {
        let header = format!("origin: {origin}\r\n");
        let (head, _) = handshake(&workspace.service, &target, PROTOCOL, &header);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{origin}: {head}");
    }
}

#[test]
fn a_page_proves_itself_by_a_token_among_its_subprotocols() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, TOKENS.map(|(name, token)| format!("{name} {token}\n")).concat())
        .unwrap();
    let service =
        engine_server(&directory.path().join("engine")).env("AUTH_TOKENS_FILE", &file).start();
    let one = format!("authorization: Bearer {}\r\n", TOKENS[0].1);
    let made = ask(&service, "POST", "/v1/workspaces", &one, b"{}").json();
    let path = format!("/v1/workspaces/{}/sessions", made["workspace_id"].as_str().unwrap());
    let started = ask(&service, "POST", &path, &one, br#"{"cmd":"cat"}"#).json();
    let target = format!("{path}/{}/attach", started["session_id"].as_str().unwrap());
    let offer = |token: &str| format!("{PROTOCOL}, bearer.{}", URL_SAFE_NO_PAD.encode(token));
    for (protocols, status) in [
        (PROTOCOL.to_owned(), 401),
        (offer("wrong"), 401),
        (offer(TOKENS[1].1), 404),
        (offer(TOKENS[0].1), 101),
    ] {
        let (head, _) = handshake(&service, &target, &protocols, "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{protocols}: {head}");
        assert!(!head.contains("bearer"), "{head}");
    }
    assert!(!service.log.text().contains("bearer."));
}

/// The socket of a client that must not wait for ever.
impl Drop for Attached {
    fn drop(&mut self) {
        let closed: io::Result<()> = self.socket.get_ref().shutdown(std::net::Shutdown::Both);
        // The service may have closed it before.
        let _ = closed;
    }
}
