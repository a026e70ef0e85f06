//! A client of Firecracker's API: HTTP/1.1 over a Unix socket, one connection per request.
//!
//! Answers have limits in bytes and time. A malformed answer is an error.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::session::messages::shown;
use crate::socket::{connect, read_by, write_by};
use cofferdam_core::values::deadline::Deadline;

/// The most bytes of an answer's head and body together.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long to wait before the next connection attempt.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Why an API request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The socket cannot be connected to, read or written.
    #[error("no socket: {0}")]
    Socket(String),
    /// There was no answer in time.
    #[error("no answer in time")]
    Timeout,
    /// Firecracker refused the request.
    #[error("{status}: {fault_message}")]
    Refused {
        /// The status of its answer.
        status: u16,
        /// Its `fault_message`.
        fault_message: String,
    },
    /// The answer is malformed.
    #[error("malformed answer of the API: {0}")]
    Malformed(&'static str),
}

/// A client of one Firecracker process.
#[derive(Debug)]
pub struct ApiClient {
    socket: PathBuf,
}

#[derive(Deserialize)]
struct FaultBody {
    fault_message: String,
}

impl ApiClient {
    /// A client for the socket at `socket`.
    pub fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Waits until the socket accepts connections, as long as `goes_on` returns true.
    pub fn wait(
        &self,
        deadline: Deadline,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<(), ApiError> {
        loop {
            match connect(&self.socket) {
                Ok(_) => return Ok(()),
                Err(error) if deadline.passed() || !goes_on() => {
                    return Err(ApiError::Socket(error.to_string()));
                }
                Err(_) => thread::sleep(RETRY_AFTER.min(deadline.remaining())),
            }
        }
    }

    /// Sends `PUT path` with `body`, and waits until it has taken effect.
    pub fn put(&self, path: &str, body: &Value, deadline: Deadline) -> Result<(), ApiError> {
        let body = body.to_string();
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream =
            connect(&self.socket).map_err(|error| ApiError::Socket(error.to_string()))?;
        write_by(&mut stream, request.as_bytes(), deadline).map_err(fault_of)?;
        let (status, body) = read_answer(&mut stream, deadline)?;
        if (200..300).contains(&status) {
            return Ok(());
        }
        let fault: FaultBody =
            serde_json::from_slice(&body).map_err(|_| ApiError::Malformed("no fault_message"))?;
        Err(ApiError::Refused { status, fault_message: shown(&fault.fault_message) })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "what map_err hands on")]
fn fault_of(error: io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::TimedOut => ApiError::Timeout,
        _ => ApiError::Socket(error.to_string()),
    }
}

fn read_answer(stream: &mut UnixStream, deadline: Deadline) -> Result<(u16, Vec<u8>), ApiError> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some((status, body, length)) = head_of(&bytes)?
            && let Some(body) = bytes.get(body..body + length)
        {
            return Ok((status, body.to_vec()));
        }
        if bytes.len() >= ANSWER_BYTES_MAX {
            return Err(ApiError::Malformed("too long"));
        }
        match read_by(stream, &mut buffer, deadline).map_err(fault_of)? {
            0 => return Err(ApiError::Malformed("cut off")),
            count => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
    }
}

/// Parses the head: status, start and length of the body. Returns `None` until it is complete.
fn head_of(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>, ApiError> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = bytes.get(..end).and_then(|head| std::str::from_utf8(head).ok());
    let mut lines = head.ok_or(ApiError::Malformed("its head"))?.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (version, status) = (words.next(), words.next().and_then(|word| word.parse().ok()));
    let (Some("HTTP/1.1" | "HTTP/1.0"), Some(status @ 100..=599)) = (version, status) else {
        return Err(ApiError::Malformed("its status"));
    };
    let mut length = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(ApiError::Malformed("its framing"));
        }
        if name.eq_ignore_ascii_case("content-length") {
            let told = value.trim().parse().ok().filter(|told| *told <= ANSWER_BYTES_MAX);
            let told = told.ok_or(ApiError::Malformed("its length"))?;
            if length.replace(told).is_some() {
                return Err(ApiError::Malformed("two lengths"));
            }
        }
    }
    Ok(Some((status, end + 4, length.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    /// The result of a request that gets these pieces as its answer.
    fn answered(pieces: &'static [&'static str], keep_open: bool) -> Result<(), ApiError> {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("api.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            for piece in pieces {
                thread::sleep(Duration::from_millis(5));
                stream.write_all(piece.as_bytes()).unwrap();
            }
            // Waits until the client disconnects.
            let _ = keep_open.then(|| stream.read(&mut [0; 1]));
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let deadline = Deadline::after(Duration::from_millis(300));
        let done = ApiClient::at(socket).put("/x", &json!({"a": 1}), deadline);
        let request = server.join().unwrap();
        assert!(
            request.starts_with("PUT /x HTTP/1.1\r\n") && request.ends_with("\r\n\r\n{\"a\":1}")
        );
        done
    }

    #[test]
    fn an_answer_counts_when_it_is_complete() {
        let refused = ApiError::Refused { status: 400, fault_message: "no such file".to_owned() };
        let fault = &[
            "HTTP/1.1 400 \r\nServer: Firecracker API\r\nContent-Len",
            "gth: 32\r\n\r\n{\"fault_message\":",
            "\"no such file\"}",
        ];
        assert_eq!(answered(&["HTTP/1.1 204 No Content\r\n\r\n"], true), Ok(()));
        assert_eq!(answered(&["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "{}"], true), Ok(()));
        assert_eq!(answered(fault, true), Err(refused));
    }

    #[test]
    fn a_malformed_answer_is_refused_with_a_reason() {
        let malformed = |reason| Err(ApiError::Malformed(reason));
        assert_eq!(answered(&[], true), Err(ApiError::Timeout));
        assert_eq!(answered(&["HTTP/1.1 204"], true), Err(ApiError::Timeout));
        assert_eq!(answered(&["HTTP/1.1 204"], false), malformed("cut off"));
        assert_eq!(answered(&["SSH-2.0\r\n\r\n"], true), malformed("its status"));
        assert_eq!(answered(&["HTTP/1.1 999 \r\n\r\n"], true), malformed("its status"));
        assert_eq!(
            answered(&["HTTP/1.1 400 \r\nContent-Length: 2\r\n\r\n{}"], true),
            malformed("no fault_message")
        );
        assert_eq!(
            answered(&["HTTP/1.1 200 \r\nContent-Length: 99999999\r\n\r\n"], true),
            malformed("its length")
        );
        assert_eq!(
            answered(&["HTTP/1.1 200 \r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n"], true),
            malformed("two lengths")
        );
        assert_eq!(
            answered(&["HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"], true),
            malformed("its framing")
        );
    }

    #[test]
    fn an_endless_answer_is_refused() {
        let endless = Box::leak("x".repeat(ANSWER_BYTES_MAX + 1).into_boxed_str());
        let pieces: &'static [&'static str] = Box::leak(Box::new([&*endless]));
        assert_eq!(answered(pieces, false), Err(ApiError::Malformed("too long")));
    }

    #[test]
    fn a_socket_with_a_long_path_is_found() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        std::os::unix::fs::symlink(&deep, place.path().join("s")).unwrap();
        let _listener = UnixListener::bind(place.path().join("s/sock")).unwrap();
        assert!(connect(&deep.join("sock")).is_ok());
        let gone = ApiClient::at(deep.join("other"));
        let waited = gone.wait(Deadline::after(Duration::from_millis(30)), || true);
        assert!(matches!(waited, Err(ApiError::Socket(_))));
    }
}
