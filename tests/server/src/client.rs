//! A raw HTTP client, which sends bytes and reads one answer at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};

/// The timeout of a read, longer than any answer takes on a loaded machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// One answer as received.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Checks status, content type and exact body.
    #[track_caller]
    pub fn assert_json(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, body), "{}", self.head);
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.head);
    }

    /// Status, type and body to the byte.
    #[track_caller]
    pub fn assert_text(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, body), "{}", self.head);
        assert_eq!(self.header("content-type"), Some("text/plain"), "{}", self.head);
    }

    /// Checks for a body with the single key `error`, whose text contains `what`.
    #[track_caller]
    pub fn assert_error_naming(&self, status: u16, what: &str) {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let words = body["error"].as_str().unwrap_or_default();
        assert!(words.contains(what), "{what:?} is missing: {self:?}");
        self.assert_json(status, &json!({ "error": words }).to_string());
    }

    /// Parses the three keys of a finished run. Other keys are an error.
    #[track_caller]
    pub fn finished(&self) -> Finished {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.head);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The output of a run that succeeded.
    #[track_caller]
    pub fn stdout(&self) -> String {
        let finished = self.finished();
        assert_eq!((finished.exit_code, finished.stderr.as_str()), (Some(0), ""), "{self:?}");
        finished.stdout
    }

    /// One metric of `Server-Timing`, in milliseconds.
    pub fn timing_ms(&self, name: &str) -> f64 {
        let timing = self.header("server-timing").unwrap_or_default();
        let mut metrics = timing.split(", ").filter_map(|metric| metric.split_once(";dur="));
        let found = metrics.find(|(metric, _)| *metric == name);
        found.and_then(|(_, figure)| figure.parse().ok()).unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// The body as a strict client parses it.
#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    pub exit_code: Option<u8>,
    pub stdout: String,
    pub stderr: String,
}

/// A connection whose reads have a timeout.
#[derive(Debug)]
pub struct Client {
    pub socket: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).unwrap())
    }

    /// Returns `None` if the connection is refused.
    pub fn try_connect(address: SocketAddr) -> Option<Self> {
        match TcpStream::connect(address) {
            Ok(socket) => Some(Self::of(socket)),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => None,
            Err(error) => panic!("no connection, and not refused: {error}"),
        }
    }

    /// A client on a connection.
    pub fn of(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, unread: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends `bytes`. Returns false if the other side has closed the connection.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(bytes.as_ref()).is_ok()
    }

    /// Closes the sending side. The client can still read.
    pub fn stop_sending(&self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Closes the connection with a reset.
    pub fn abort(self) {
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(&self.socket, sockopt::Linger, &at_once).unwrap();
    }

    /// Sends `bytes` and reads the next answer.
    pub fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.send(bytes);
        self.answer()
    }

    /// As [`Client::ask`], but returns `None` if the connection closes before the answer.
    pub fn try_ask(&mut self, bytes: impl AsRef<[u8]>) -> Option<Answer> {
        if !self.try_send(bytes) {
            return None;
        }
        while !self.has_whole_answer() {
            if self.fill() == 0 {
                return None;
            }
        }
        Some(self.answer())
    }

    fn has_whole_answer(&self) -> bool {
        let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") else {
            return false;
        };
        let head = String::from_utf8_lossy(&self.unread[..at]).into_owned();
        let answer = Answer { status: 0, head, body: String::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        self.unread.len() >= at + 4 + length
    }

    /// Reads the next answer, with as much body as `content-length` says.
    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        while self.unread.len() < length {
            assert!(self.fill() > 0, "the body was cut short: {answer:?}");
        }
        let body = self.unread.drain(..length).collect();
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    /// Reads the head of the next answer and leaves its body unread.
    pub fn head(&mut self) -> Answer {
        loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8(self.unread.drain(..at + 4).collect()).unwrap();
                let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
                return Answer { status: status.unwrap(), head, body: String::new() };
            }
            let bytes = self.fill();
            assert!(bytes > 0, "closed before an answer: {:?}", self.unread.escape_ascii());
        }
    }

    /// Reads until the unread bytes contain `text`, and keeps them unread.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_for_times(text, 1);
    }

    /// As [`Client::wait_for`], until they contain `text` `times` times.
    pub fn wait_for_times(&mut self, text: &str, times: usize) {
        while String::from_utf8_lossy(&self.unread).matches(text).count() < times {
            assert!(self.fill() > 0, "closed before {text:?}: {}", self.unread.escape_ascii());
        }
    }

    /// Reads until the connection is closed.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() > 0 {}
        std::mem::take(&mut self.unread)
    }

    /// As [`Client::rest`], as text.
    pub fn rest_text(&mut self) -> String {
        String::from_utf8(self.rest()).unwrap()
    }

    /// Waits until the server closes; returns how long that took and the text it sent.
    pub fn closed_after(&mut self) -> (Duration, String) {
        let start = Instant::now();
        let rest = self.rest_text();
        (start.elapsed(), rest)
    }

    fn fill(&mut self) -> usize {
        let mut piece = [0; 16 * 1024];
        loop {
            match self.socket.read(&mut piece) {
                Ok(bytes) => {
                    self.unread.extend_from_slice(&piece[..bytes]);
                    return bytes;
                }
                // A read with a time limit is not begun again after a stop or a freeze of the process.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return 0,
                Err(error) => panic!("no answer: {error}; so far {:?}", self.unread.escape_ascii()),
            }
        }
    }
}

/// A request without a body.
pub fn request(method: &str, target: &str, headers: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")
}

/// A `POST /run` with `body` and `headers`, which are whole lines.
pub fn post(headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head =
        format!("POST /run HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A body with `solution`, which the shell workspace runs.
pub fn solution(solution: &str) -> Value {
    json!({ "lang_slug": "python", "solution_text": solution })
}

/// As [`solution`], with a timeout.
pub fn solution_within(timeout: &str, solution: &str) -> Value {
    json!({ "lang_slug": "python", "solution_text": solution, "timeout": timeout })
}
