//! One viewer of a session: output as it comes, input as the client sends it.
//!
//! A viewer reads the session's log at its own pace and holds nothing of it, so it slows neither the
//! program nor other viewers.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tungstenite::Message;

use super::socket::{ClientMessage, ClientWebSocket, SocketEnd};
use crate::workspace::sessions::{OutputChunk, Session, SessionEnd, SessionState};
use crate::workspace::{EngineCode, EngineError};
use cofferdam_core::Stream;
use cofferdam_core::weakened::{self, Wall};

/// Output that may arrive while a client takes nothing, bytes. A client that takes something, too
/// slowly, loses the oldest output.
const UNREAD_BYTES_MAX: u64 = 1 << 20;
/// Output bytes in one message.
const CHUNK_BYTES_MAX: usize = 16 << 10;
/// How often input that the program has no room for is tried again.
const INPUT_RETRY: Duration = Duration::from_millis(20);
/// How long a client that stays silent is believed to be there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long a client may take nothing of what waits for it.
const BLOCKED_MAX: Duration = Duration::from_secs(60);
/// How long the last messages may take.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// What a viewer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachQuery {
    /// The first byte to show; nothing for the end.
    pub offset: Option<u64>,
    /// Whether the client may send no input.
    pub read_only: bool,
}

/// Why a viewer is sent away: the code and reason of the closing message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseReason {
    Ended,
    Protocol,
    BadMessage,
    ReadOnly,
    TooLong,
    TooManyViewers,
    Unread,
}

impl CloseReason {
    fn code(self) -> (u16, &'static str) {
        match self {
            Self::Ended => (1000, "the program has ended"),
            Self::Protocol => (1002, "not the WebSocket protocol"),
            Self::BadMessage => (1008, "want a resize, signal or eof message"),
            Self::ReadOnly => (1008, "attached read-only"),
            Self::TooLong => (1009, "message too long"),
            Self::TooManyViewers => (1013, "too many viewers"),
            Self::Unread => (1013, "too much output is unread"),
        }
    }
}

/// Why serving a viewer ends.
enum ViewEnd {
    Close(CloseReason),
    Gone,
}

impl From<SocketEnd> for ViewEnd {
    fn from(end: SocketEnd) -> Self {
        match end {
            SocketEnd::Gone => Self::Gone,
            SocketEnd::Protocol => Self::Close(CloseReason::Protocol),
            SocketEnd::TooLong => Self::Close(CloseReason::TooLong),
        }
    }
}

/// A text message to a client, keys in the order of the contract.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ViewerNotice {
    Attached {
        offset: u64,
        #[serde(flatten)]
        state: SessionState,
    },
    Truncated {
        from: u64,
        to: u64,
    },
    Exit {
        exit_code: i32,
        signal: Option<i32>,
        timed_out: bool,
    },
}

impl ViewerNotice {
    fn message(&self) -> Message {
        // All of our types serialize.
        Message::Text(serde_json::to_string(self).unwrap_or_default().into())
    }
}

/// A text message of a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum ViewerCommand {
    Resize { cols: u16, rows: u16 },
    Signal { signal: String },
    Eof {},
}

/// Shows `session` to the client behind `socket` until the program ends or the client leaves.
pub async fn follow(session: Arc<Session>, query: AttachQuery, socket: Arc<TcpStream>) {
    let mut socket = ClientWebSocket::new(socket);
    let viewer = match session.attach() {
        Ok(viewer) => viewer,
        Err(_) => return close(&mut socket, CloseReason::TooManyViewers).await,
    };
    let mut view = ViewerPosition::new(&session, query);
    let end = view.run(&mut socket).await;
    drop(viewer);
    if let Err(ViewEnd::Close(reason)) = end {
        close(&mut socket, reason).await;
    }
}

/// Sends the closing message, and waits a while for the client's.
async fn close(socket: &mut ClientWebSocket, reason: CloseReason) {
    let (code, words) = reason.code();
    let closing = async {
        while !socket.has_room() {
            socket.writable().await?;
            socket.flush()?;
        }
        socket.close(code, words)?;
        // What the client still sends is dropped, up to its own closing message.
        loop {
            socket.ready().await?;
            socket.flush()?;
            while socket.read()?.is_some() {}
        }
        #[allow(unreachable_code, reason = "names the type of the error")]
        Ok::<(), SocketEnd>(())
    };
    let _ = timeout(CLOSE_WAIT, closing).await;
}

/// How far a client has come.
struct ViewerPosition<'a> {
    session: &'a Arc<Session>,
    query: AttachQuery,
    /// The next byte to send.
    next: u64,
    /// How much had been printed when the client last took something.
    printed_then: u64,
    /// Input that the program has no room for.
    input: Option<axum::body::Bytes>,
    silent_since: Instant,
    /// When the socket last had room.
    had_room_at: Instant,
}

impl<'a> ViewerPosition<'a> {
    fn new(session: &'a Arc<Session>, query: AttachQuery) -> Self {
        let total = session.window().bytes;
        let next = query.offset.map_or(total, |offset| offset.min(total));
        let now = Instant::now();
        Self {
            session,
            query,
            next,
            printed_then: total,
            input: None,
            silent_since: now,
            had_room_at: now,
        }
    }

    async fn run(&mut self, socket: &mut ClientWebSocket) -> Result<(), ViewEnd> {
        let mut progress = self.session.progress();
        self.send_attached(socket)?;
        loop {
            progress.mark_unchanged();
            self.send_output(socket)?;
            self.take_input(socket).await?;
            let wake = async {
                match self.input {
                    // The socket is not read until the program has taken what it sent before.
                    Some(_) => sleep(INPUT_RETRY).await,
                    None => sleep(PING_EVERY).await,
                }
            };
            let readable = async {
                match (&self.input, socket.has_room()) {
                    (Some(_), true) => std::future::pending().await,
                    (Some(_), false) => socket.writable().await,
                    (None, _) => socket.ready().await,
                }
            };
            let changed = async { drop(progress.changed().await) };
            first_of(wake, readable, changed).await?;
            socket.flush()?;
            if self.silent_since.elapsed() >= PING_EVERY && socket.has_room() {
                self.silent_since = Instant::now();
                socket.send(Message::Ping(Vec::new().into()))?;
            }
        }
    }

    fn send_attached(&mut self, socket: &mut ClientWebSocket) -> Result<(), ViewEnd> {
        let state = self.session.state();
        Ok(socket.send(ViewerNotice::Attached { offset: self.next, state }.message())?)
    }

    /// Sends output while the socket takes it, and the end behind it.
    fn send_output(&mut self, socket: &mut ClientWebSocket) -> Result<(), ViewEnd> {
        while socket.has_room() {
            self.had_room_at = Instant::now();
            // Asked before the output: whatever came before the end is then in the log.
            let end = self.session.end();
            match self.session.bytes_from(self.next, CHUNK_BYTES_MAX) {
                Some(chunk) => {
                    if chunk.offset > self.next {
                        let gap = ViewerNotice::Truncated { from: self.next, to: chunk.offset };
                        socket.send(gap.message())?;
                    }
                    self.next = chunk.offset + chunk.bytes.len() as u64;
                    socket.send(Message::Binary(frame(&chunk).into()))?;
                    self.silent_since = Instant::now();
                    if socket.has_room() {
                        self.printed_then = self.session.window().bytes;
                    }
                }
                None => {
                    self.printed_then = self.next;
                    let Some(end) = end else { return Ok(()) };
                    let SessionEnd { exit_code, signal, timed_out, .. } = end;
                    let exit = ViewerNotice::Exit { exit_code, signal, timed_out };
                    socket.send(exit.message())?;
                    return Err(ViewEnd::Close(CloseReason::Ended));
                }
            }
        }
        let unread = self.session.window().bytes.saturating_sub(self.printed_then);
        let is_behind = unread > UNREAD_BYTES_MAX || self.had_room_at.elapsed() > BLOCKED_MAX;
        if is_behind && !weakened::lacks(Wall::Viewers) {
            return Err(ViewEnd::Close(CloseReason::Unread));
        }
        Ok(())
    }

    /// Takes what the client has sent. Input that does not fit waits.
    async fn take_input(&mut self, socket: &mut ClientWebSocket) -> Result<(), ViewEnd> {
        loop {
            if let Some(bytes) = self.input.take() {
                match self.session.write(&bytes) {
                    Err(error) if error.code == EngineCode::SessionInputFull => {
                        self.input = Some(bytes);
                        return Ok(());
                    }
                    // A program that reads no more loses what is typed, as on a terminal.
                    _ => {}
                }
            }
            match socket.read()? {
                None => return Ok(()),
                Some(_) if self.query.read_only => {
                    return Err(ViewEnd::Close(CloseReason::ReadOnly));
                }
                Some(ClientMessage::Binary(bytes)) => self.input = Some(bytes),
                Some(ClientMessage::Text(text)) => self.obey(&text).await?,
            }
        }
    }

    async fn obey(&self, text: &str) -> Result<(), ViewEnd> {
        let bad = || ViewEnd::Close(CloseReason::BadMessage);
        let command: ViewerCommand = serde_json::from_str(text).map_err(|_| bad())?;
        let session = Arc::clone(self.session);
        // The order waits for the thread that supervises the program.
        let obeyed = spawn_blocking(move || match command {
            ViewerCommand::Resize { cols, rows } => session.resize(cols, rows).map(drop),
            ViewerCommand::Signal { signal } => session.signal(&signal).map(drop),
            ViewerCommand::Eof {} => session.close_stdin().map(drop),
        });
        match obeyed.await {
            Ok(Err(EngineError { code: EngineCode::InvalidRequest, .. })) => Err(bad()),
            // A program that has just ended, or has no terminal, ends no viewer.
            _ => Ok(()),
        }
    }
}

/// The message of a chunk: the stream, the offset, the bytes.
fn frame(chunk: &OutputChunk) -> Vec<u8> {
    let stream = match chunk.stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    };
    let mut frame = Vec::with_capacity(9 + chunk.bytes.len());
    frame.push(stream);
    frame.extend_from_slice(&chunk.offset.to_be_bytes());
    frame.extend_from_slice(&chunk.bytes);
    frame
}

/// Waits for the first of three events. Only the socket can fail.
async fn first_of(
    wake: impl Future<Output = ()>,
    socket: impl Future<Output = Result<(), SocketEnd>>,
    changed: impl Future<Output = ()>,
) -> Result<(), SocketEnd> {
    let (mut wake, mut socket, mut changed) = (pin!(wake), pin!(socket), pin!(changed));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(result) = socket.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        let events: [Pin<&mut dyn Future<Output = ()>>; 2] = [wake.as_mut(), changed.as_mut()];
        let happened = events.into_iter().any(|event| event.poll(cx).is_ready());
        if happened { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_stream_the_offset_and_the_bytes() {
        let chunk = OutputChunk { stream: Stream::Stderr, offset: 258, bytes: b"ab".to_vec() };
        assert_eq!(frame(&chunk), [2, 0, 0, 0, 0, 0, 0, 1, 2, b'a', b'b']);
    }

    #[test]
    fn a_notice_has_its_type_first() {
        let exit = ViewerNotice::Exit { exit_code: -1, signal: Some(9), timed_out: false };
        for (notice, text) in [
            (ViewerNotice::Truncated { from: 1, to: 2 }, r#"{"type":"truncated","from":1,"to":2}"#),
            (exit, r#"{"type":"exit","exit_code":-1,"signal":9,"timed_out":false}"#),
        ] {
            assert_eq!(notice.message(), Message::Text(text.into()));
        }
    }

    #[test]
    fn commands_have_known_types_and_keys_only() {
        let parse = |text| serde_json::from_str::<ViewerCommand>(text).is_ok();
        for (text, known) in [
            (r#"{"type":"resize","cols":80,"rows":24}"#, true),
            (r#"{"type":"signal","signal":"INT"}"#, true),
            (r#"{"type":"eof"}"#, true),
            (r#"{"type":"eof","x":1}"#, false),
            (r#"{"type":"resize","cols":80}"#, false),
            (r#"{"type":"resize","cols":-1,"rows":1}"#, false),
            (r#"{"type":"stop"}"#, false),
            ("[]", false),
            ("", false),
        ] {
            assert_eq!(parse(text), known, "{text}");
        }
    }
}
