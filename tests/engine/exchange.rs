//! Requests with any bytes, each on a connection of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cofferdam_test_server::service::{Service, Setup, cofferdam};
use serde_json::Value;

/// The timeout of a read, longer than any answer takes on a loaded machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The tokens of a service with tokens.
pub const TOKENS: [(&str, &str); 2] =
    [("one", "the-token-of-client-one"), ("two", "the-token-of-client-two")];

/// An answer whose body can have any bytes.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    head: String,
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

/// A service whose engine keeps things in `directory`.
pub fn engine_server(directory: &Path) -> Setup {
    Setup::shell().env("ENGINE_STORE_DIR", directory)
}

/// Sends a request with a body. `headers` are whole lines.
#[track_caller]
pub fn ask(service: &Service, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
    try_ask(service.address, method, target, headers, body).unwrap()
}

/// As [`ask`], but returns `None` if the service ends before it has answered.
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

/// Runs `cofferdam` with these words and this stdin.
pub fn command_line(words: &[&str], stdin: &[u8], variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(cofferdam())
        .args(words)
        .env_remove("COFFERDAM_SERVER")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read it.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

/// A file with `token`, which only its owner can read.
pub fn token_file(directory: &Path, token: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join(format!("token-{}", token.len()));
    std::fs::write(&path, token).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}
