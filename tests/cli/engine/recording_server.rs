//! A server that records requests and gives one answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::support::{Call, cofferdam};

/// A request as it arrived.
pub struct RecordedRequest {
    /// Method and path.
    pub line: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A server that gives the same answer to every request.
pub struct RecordingServer {
    pub url: String,
    requests: Receiver<RecordedRequest>,
}

impl RecordingServer {
    /// Answers `status` with `body`.
    pub fn answering(status: u16, media_type: &str, body: &str) -> Self {
        let length = body.len();
        Self::sending(format!(
            "HTTP/1.1 {status} x\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        ))
    }

    /// Answers with JSON.
    pub fn json(status: u16, body: &str) -> Self {
        Self::answering(status, "application/json", body)
    }

    /// Answers with these events.
    pub fn events(events: &[(&str, &str)]) -> Self {
        let events = events.iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n"));
        Self::answering(200, "text/event-stream", &events.collect::<String>())
    }

    /// Answers with these events, and then is silent.
    pub fn hanging(events: &str) -> Self {
        let head = "HTTP/1.1 200 x\r\nContent-Type: text/event-stream\r\nContent-Length: 1000000";
        Self::sending(format!("{head}\r\n\r\n{events}"))
    }

    fn sending(answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let is_whole = answer.contains("Connection: close");
                // The client may break off.
                let Some(request) = read_request(&socket) else { continue };
                if sender.send(request).is_err() {
                    return;
                }
                let _ = socket.write_all(answer.as_bytes());
                if !is_whole {
                    // Until the client has gone.
                    let _ = socket.read(&mut [0]);
                }
            }
        });
        Self { url, requests }
    }

    /// `cofferdam workspace` with `words` split at spaces.
    pub fn workspace(&self, words: &str) -> Call {
        cofferdam("workspace").words(words).env("COFFERDAM_SERVER", &self.url)
    }

    /// The next request that arrived.
    pub fn next(&self) -> RecordedRequest {
        self.requests.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// Whether no request has arrived.
    pub fn is_unused(&self) -> bool {
        self.requests.try_recv().is_err()
    }
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads the head of a request: the first line, and the headers.
pub fn read_head(reader: &mut impl BufRead) -> Option<(String, Vec<(String, String)>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_owned());
    }
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Some((lines.first()?.trim_end_matches(" HTTP/1.1").to_owned(), headers))
}

fn read_request(socket: &TcpStream) -> Option<RecordedRequest> {
    let mut reader = BufReader::new(socket);
    let (line, headers) = read_head(&mut reader)?;
    let header = |name: &str| {
        let found = headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    };
    let body = match (header("transfer-encoding"), header("content-length")) {
        (Some(_), _) => read_chunks(&mut reader)?,
        (None, Some(length)) => {
            let mut body = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut body).ok()?;
            body
        }
        (None, None) => Vec::new(),
    };
    Some(RecordedRequest { line, headers, body })
}

/// Reads a chunked body; `None` if it breaks off.
fn read_chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let count = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut chunk = vec![0; count + 2];
        reader.read_exact(&mut chunk).ok()?;
        if count == 0 {
            return Some(body);
        }
        body.extend_from_slice(&chunk[..count]);
    }
}
