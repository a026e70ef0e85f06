//! Opens the WebSocket of a session (RFC 6455, section 4.1).

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use tungstenite::WebSocket;
use tungstenite::protocol::{Role, WebSocketConfig};
use uuid::Uuid;

use crate::cli::failure::error_words;
use crate::cli::remote::client::ServerClient;
use crate::cli::remote::fault::ServerFault;

const SESSION_PROTOCOL: &str = "cofferdam.session.v1";
/// Every server of the protocol adds this to the client's key.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const HTTP_PORT: u16 = 80;
/// The longest head of a response, bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The longest error response, bytes.
const ERROR_BYTES_MAX: usize = 1 << 20;
/// The longest message of the service, bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// How much may wait to be sent, bytes: more than one message of ours.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// The time limit of connecting, and then of the response.
const CALL_MAX: Duration = Duration::from_secs(10);

/// The WebSocket of a session.
pub type SessionSocket = WebSocket<TcpStream>;

/// The head of a response.
#[derive(Debug)]
struct ResponseHead {
    status: u16,
    /// Names in lower case, and values.
    headers: Vec<(String, String)>,
}

/// Opens the WebSocket at `path` of the service.
pub fn connect(client: &ServerClient, path: &str) -> Result<SessionSocket, ServerFault> {
    let gone = |error: io::Error| client.gone(&error_words(&error));
    let (authority, prefix) = client.server().parts();
    let mut stream = dial(authority).map_err(gone)?;
    let key = STANDARD.encode(Uuid::new_v4().as_bytes());
    let authorization = client.authorization().map(|value| format!("Authorization: {value}\r\n"));
    let request = format!(
        "GET {prefix}{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\
         Sec-WebSocket-Protocol: {SESSION_PROTOCOL}\r\n{}\r\n",
        authorization.unwrap_or_default(),
    );
    stream.write_all(request.as_bytes()).map_err(gone)?;
    let deadline = Instant::now() + CALL_MAX;
    let (head, mut rest) = read_head(&mut stream, deadline).map_err(gone)?;
    let Some(head) = ResponseHead::parse(&head) else {
        return Err(client.unexpected("an answer that is not HTTP"));
    };
    if head.status != 101 {
        let length = head.header("content-length").and_then(|length| length.parse().ok());
        let length = length.unwrap_or(ERROR_BYTES_MAX).min(ERROR_BYTES_MAX);
        // An error without its whole body is one all the same.
        let _ = read_to(&mut stream, &mut rest, length, deadline);
        let server = client.server().to_string();
        return Err(ServerFault::Refused { status: head.status, body: rest, server });
    }
    if !head.accepts(&key) {
        return Err(client.unexpected("it does not speak the protocol of sessions"));
    }
    stream.set_read_timeout(None).and_then(|()| stream.set_nonblocking(true)).map_err(gone)?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .max_write_buffer_size(UNSENT_BYTES_MAX);
    Ok(WebSocket::from_partially_read(stream, rest, Role::Client, Some(config)))
}

fn dial(authority: &str) -> io::Result<TcpStream> {
    let has_port = authority.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
    let is_plain_v6 = authority.ends_with(']');
    let named = if has_port && !is_plain_v6 {
        authority.to_owned()
    } else {
        format!("{authority}:{HTTP_PORT}")
    };
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in named.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CALL_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(CALL_MAX))?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The head of the response, and what follows it.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        let before = bytes.len();
        if before >= HEAD_BYTES_MAX {
            return Err(io::Error::other("an answer with a very long head"));
        }
        read_some(stream, &mut bytes, deadline)?;
        if bytes.len() == before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads until `bytes` has `length` bytes or the stream ends.
fn read_to(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    length: usize,
    deadline: Instant,
) -> io::Result<()> {
    while bytes.len() < length {
        let before = bytes.len();
        read_some(stream, bytes, deadline)?;
        if bytes.len() == before {
            break;
        }
    }
    bytes.truncate(length);
    Ok(())
}

fn read_some(stream: &mut TcpStream, bytes: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(count) => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

impl ResponseHead {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
        Some(Self { status, headers: headers.collect() })
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether it accepts the request with `key`.
    fn accepts(&self, key: &str) -> bool {
        let is = |name, wanted: &str| {
            self.header(name).is_some_and(|value| value.eq_ignore_ascii_case(wanted))
        };
        is("upgrade", "websocket")
            && is("connection", "upgrade")
            && self.header("sec-websocket-protocol") == Some(SESSION_PROTOCOL)
            && self.header("sec-websocket-extensions").is_none()
            && self.header("sec-websocket-accept") == Some(accepted(key).as_str())
    }
}

/// What a server of the protocol makes of `key`.
fn accepted(key: &str) -> String {
    STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and its answer in RFC 6455, section 1.3.
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn head(more: &str) -> ResponseHead {
        let text = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{more}\r\n\r\n"
        );
        ResponseHead::parse(&text).unwrap()
    }

    #[test]
    fn only_the_answer_to_the_key_in_the_protocol_is_accepted() {
        let protocol = format!("Sec-WebSocket-Protocol: {SESSION_PROTOCOL}");
        let accept = format!("Sec-WebSocket-Accept: {ACCEPT}");
        assert!(head(&format!("{protocol}\r\n{accept}")).accepts(KEY));
        for wrong in [
            accept.clone(),
            protocol.clone(),
            format!("{protocol}\r\nSec-WebSocket-Accept: {KEY}"),
            format!("Sec-WebSocket-Protocol: chat\r\n{accept}"),
            format!("{protocol}\r\n{accept}\r\nSec-WebSocket-Extensions: permessage-deflate"),
        ] {
            assert!(!head(&wrong).accepts(KEY), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_the_head_of_a_response_is_not_parsed() {
        for text in
            ["", "HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 2", "HTTP/2 200", "SSH-2.0-x", "HTTP/1.1 é"]
        {
            assert!(ResponseHead::parse(text).is_none(), "{text}");
        }
    }
}
