//! Requests with any bytes, each on a connection of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The timeout of a read, longer than any answer takes on a loaded machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer whose body can have any bytes.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {} {text}", self.head))
    }

    /// Asserts that it is an error object with this code.
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) -> Value {
        let error = self.json();
        assert_eq!((self.status, error["code"].as_str()), (status, Some(code)), "{error}");
        assert!(error["message"].is_string() && error["details"].is_object(), "{error}");
        error
    }
}

/// Sends a request with a body. `headers` are whole lines. Returns `None` if the service ends before it
/// has answered.
pub fn try_ask(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &str,
    body: &[u8],
) -> Option<Reply> {
    // A killed service resets connections, also those that are not accepted yet.
    let mut socket = TcpStream::connect(address).ok()?;
    socket.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\
         {headers}\r\n"
    );
    // A service may refuse a body without reading it.
    let _ = socket.write_all(&[head.as_bytes(), body].concat());
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("no answer: {error}"),
        _ => reply(&bytes, method),
    }
}

/// Parses all that came over a connection.
pub fn reply(bytes: &[u8], method: &str) -> Option<Reply> {
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    let mut reply = Reply { status, head, body: bytes[at + 4..].to_vec() };
    if reply.header("transfer-encoding") == Some("chunked") {
        reply.body = joined(&reply.body)?;
        return Some(reply);
    }
    let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
    (method == "HEAD" || reply.body.len() == length).then_some(reply)
}

/// Joins the chunks of a body; none if the last one is missing.
fn joined(mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let at = chunks.windows(2).position(|window| window == b"\r\n")?;
        let length = std::str::from_utf8(&chunks[..at]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunks.get(at + 2..at + 2 + length)?);
        chunks = &chunks[at + length + 4..];
    }
}
