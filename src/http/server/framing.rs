//! Gives hyper the socket's bytes one message at a time and checks each head first.
//!
//! hyper has no hook between reading bytes and parsing them, so this is where the deadline of a
//! head starts, a head's length is limited exactly, and `head` and `chunk_scan` refuse what hyper
//! accepts.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hyper::rt::{Read, ReadBufCursor, Write};
use nix::sys::socket::{Shutdown, shutdown};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::connection_state::ConnectionState;
use crate::http::request::wiped;
use cofferdam_core::framing::chunk_scan::ChunkScan;
use cofferdam_core::framing::head::{self, Framing, HEAD_BYTES_MAX};

/// How many bytes are read from the socket at a time.
const READ_BYTES: usize = HEAD_BYTES_MAX;

/// The part of a message that the next buffered byte belongs to.
#[derive(Debug)]
enum MessagePart {
    /// An incomplete head, of which `scanned` bytes are checked.
    Head { scanned: usize },
    /// A complete head, of which `left` bytes are still to be shown, and the body after it.
    ShownHead { left: usize, body: Framing },
    /// A body, of which `left` bytes are still to come.
    Length { left: u64 },
    /// A chunked body.
    Chunks(ChunkScan),
    /// A head that is too long or truncated, shown to hyper only to be refused.
    Refused,
}

/// Reads and writes a connection for hyper.
#[derive(Debug)]
pub struct FramedSocket {
    socket: Arc<TcpStream>,
    state: ConnectionState,
    /// Bodies may have secrets in them.
    buffer: Zeroizing<Vec<u8>>,
    part: MessagePart,
    /// Whether reading is over: the client has closed its side, or a refused head ends the
    /// connection.
    ended: bool,
}

impl FramedSocket {
    /// Wraps the socket of a new connection.
    pub fn new(socket: Arc<TcpStream>, state: ConnectionState) -> Self {
        let part = MessagePart::Head { scanned: 0 };
        Self { socket, state, buffer: Zeroizing::default(), part, ended: false }
    }

    /// Returns how many bytes at the buffer's start hyper may see now, after moving to the next
    /// part if one is complete.
    fn showable(&mut self) -> usize {
        loop {
            let next = match &mut self.part {
                MessagePart::Head { scanned } => {
                    let scanned = *scanned;
                    match self.check_head(scanned) {
                        Some(part) => part,
                        None => return 0,
                    }
                }
                MessagePart::ShownHead { left: 0, body: Framing::Chunked } => {
                    MessagePart::Chunks(ChunkScan::default())
                }
                MessagePart::ShownHead { left: 0, body: Framing::Length(left) } => {
                    MessagePart::Length { left: *left }
                }
                MessagePart::ShownHead { left, .. } => return *left,
                MessagePart::Length { left: 0 } => MessagePart::Head { scanned: 0 },
                MessagePart::Length { left } => {
                    return self.buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                }
                MessagePart::Chunks(scan) if scan.is_over() => MessagePart::Head { scanned: 0 },
                MessagePart::Chunks(_) | MessagePart::Refused => return self.buffer.len(),
            };
            self.part = next;
        }
    }

    /// Looks for a complete head in the buffer. Returns `None` if more bytes must arrive.
    fn check_head(&mut self, scanned: usize) -> Option<MessagePart> {
        if self.buffer.is_empty() {
            // An idle connection holds no buffer.
            self.buffer = Zeroizing::default();
        } else {
            self.state.head_began(Instant::now());
        }
        let within = self.buffer.get(..HEAD_BYTES_MAX).unwrap_or(&self.buffer);
        if let Some(length) = head::end(within, scanned) {
            let framing = head::framing(within.get(..length)?);
            self.state.head_shown(framing.map(drop));
            // A refused head is shown too, because hyper writes the response.
            let body = framing.unwrap_or(Framing::Length(0));
            if framing.is_err() {
                self.buffer.truncate(length);
                self.ended = true;
            }
            return Some(MessagePart::ShownHead { left: length, body });
        }
        if within.len() == HEAD_BYTES_MAX || self.ended {
            return Some(MessagePart::Refused);
        }
        self.part = MessagePart::Head { scanned: within.len() };
        None
    }

    /// Copies up to `showable` bytes to hyper. Returns an error, which hyper answers with 400, if
    /// they end in a malformed chunk line; then hyper sees none of them.
    fn show(&mut self, showable: usize, out: &mut ReadBufCursor<'_>) -> io::Result<()> {
        let offered = self.buffer.get(..showable.min(out.remaining())).unwrap_or_default();
        let shown = match &mut self.part {
            MessagePart::Chunks(scan) => {
                let shown = scan.advance(offered);
                if scan.is_malformed() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "malformed chunks"));
                }
                shown
            }
            _ => offered.len(),
        };
        out.put_slice(offered.get(..shown).unwrap_or_default());
        match &mut self.part {
            MessagePart::ShownHead { left, .. } => *left -= shown,
            MessagePart::Length { left } => *left -= shown as u64,
            MessagePart::Head { .. } | MessagePart::Chunks(_) | MessagePart::Refused => {}
        }
        self.buffer.drain(..shown);
        Ok(())
    }

    /// Reads up to [`READ_BYTES`] from the socket.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            if self.buffer.capacity() - self.buffer.len() < READ_BYTES {
                let capacity = self.buffer.len() + READ_BYTES;
                wiped::grow(&mut self.buffer, capacity);
            }
            match self.socket.try_read_buf(&mut *self.buffer) {
                Ok(bytes) => {
                    self.ended = bytes == 0;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Runs `write` once the socket has room, and records the outcome.
    fn poll_socket_write(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let Poll::Ready(room) = self.socket.poll_write_ready(cx) else {
                self.state.blocked(Instant::now());
                return Poll::Pending;
            };
            room?;
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.state.wrote();
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl Read for FramedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        loop {
            let showable = socket.showable();
            if showable > 0 {
                return Poll::Ready(socket.show(showable, &mut out));
            }
            if socket.ended {
                return Poll::Ready(Ok(()));
            }
            ready!(socket.poll_fill(cx))?;
        }
    }
}

impl Write for FramedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_socket_write(cx, |socket| socket.try_write(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_socket_write(cx, |socket| socket.try_write_vectored(pieces))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.flushed(Instant::now());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It is no error if the client has already left.
        let _ = shutdown_write(&self.socket);
        Poll::Ready(Ok(()))
    }
}

/// Closes our side of the connection.
pub fn shutdown_write(socket: &TcpStream) -> nix::Result<()> {
    shutdown(socket.as_raw_fd(), Shutdown::Write)
}
