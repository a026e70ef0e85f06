//! A service for one viewer of a session, with a script.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use tungstenite::protocol::frame::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{Message, Role, WebSocket};

use super::recording_server::read_head;
use crate::support::{Call, cofferdam};

const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A service whose script runs for its one viewer.
pub struct WebSocketServer {
    pub url: String,
    served: JoinHandle<()>,
}

/// The viewer, as the service sees it.
pub struct Viewer {
    /// Method and path of its request.
    pub line: String,
    pub headers: Vec<(String, String)>,
    socket: WebSocket<TcpStream>,
}

impl WebSocketServer {
    /// Serves by `script`.
    pub fn new(script: impl FnOnce(&mut Viewer) + Send + 'static) -> Self {
        Self::accepting(
            |key| STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}"))),
            script,
        )
    }

    /// Answers the viewer's key with `accept`.
    pub fn accepting(
        accept: impl FnOnce(&str) -> String + Send + 'static,
        script: impl FnOnce(&mut Viewer) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let (line, headers) = read_head(&mut BufReader::new(&socket)).unwrap();
            let header = |name: &str| {
                let found = headers.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone()).unwrap_or_default()
            };
            assert_eq!(header("sec-websocket-version"), "13");
            assert_eq!(header("upgrade"), "websocket");
            let (key, protocol) = (header("sec-websocket-key"), header("sec-websocket-protocol"));
            assert_eq!(STANDARD.decode(&key).unwrap().len(), 16);
            let accept = accept(&key);
            let answer = format!(
                "HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-protocol: {protocol}\r\nsec-websocket-accept: {accept}\r\n\r\n"
            );
            socket.write_all(answer.as_bytes()).unwrap();
            let socket = WebSocket::from_raw_socket(socket, Role::Server, None);
            script(&mut Viewer { line, headers, socket });
        });
        Self { url, served }
    }

    pub fn attach(&self, words: &str) -> Call {
        cofferdam("workspace attach").words(words).env("COFFERDAM_SERVER", &self.url)
    }

    /// Panics if the script has.
    pub fn finish(self) {
        self.served.join().unwrap();
    }
}

impl Viewer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn tell(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).unwrap();
    }

    pub fn attached(&mut self, tty: bool) {
        self.tell(&json!({"type": "attached", "offset": 0, "tty": tty, "status": "running"}));
    }

    pub fn output(&mut self, stream: u8, bytes: &[u8]) {
        let message = [&[stream, 0, 0, 0, 0, 0, 0, 0, 0], bytes].concat();
        self.socket.send(Message::binary(message)).unwrap();
    }

    /// Says that the program has exited, and closes.
    pub fn exit(&mut self, exit_code: i32, signal: Option<i32>, timed_out: bool) {
        let end = json!({
            "type": "exit", "exit_code": exit_code, "signal": signal, "timed_out": timed_out,
        });
        self.tell(&end);
        self.close(1000, "the program has ended");
    }

    pub fn close(&mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
        let _ = self.socket.close(Some(frame));
        let _ = self.socket.flush();
    }

    /// The next message of the viewer, pings left out; `None` if it has gone.
    pub fn next(&mut self) -> Option<Message> {
        loop {
            match self.socket.read().ok()? {
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(_) => return None,
                message => return Some(message),
            }
        }
    }

    /// The next message, which is input.
    #[track_caller]
    pub fn input(&mut self) -> Vec<u8> {
        match self.next() {
            Some(Message::Binary(bytes)) => bytes.to_vec(),
            other => panic!("not input: {other:?}"),
        }
    }

    /// The next message, which is text.
    #[track_caller]
    pub fn text(&mut self) -> Value {
        match self.next() {
            Some(Message::Text(text)) => serde_json::from_str(&text).unwrap(),
            other => panic!("not text: {other:?}"),
        }
    }
}
