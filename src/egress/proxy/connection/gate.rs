//! Gives hyper the bytes of a program's connection one message at a time and checks each head first.
//!
//! hyper parses the messages, and what it parsed is written anew. But it accepts what two readers can
//! understand differently, and answers some malformed heads in its own words. So a head that is too long or
//! whose body has two lengths is replaced by an empty request, which the service refuses. Behind the head
//! of a CONNECT, and of a request that becomes a WebSocket, nothing is shown: these bytes are the tunnel's.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use cofferdam_core::framing::chunk_scan::ChunkScan;
use cofferdam_core::framing::head::{self, Framing, HEAD_BYTES_MAX};

/// How many bytes are read from the socket at a time.
const GATE_READ_BYTES: usize = 16 * 1024;
/// What hyper sees in place of a head that is refused.
const REFUSED_HEAD: &[u8] = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n";

/// The part of a message that the next buffered byte belongs to.
#[derive(Debug)]
enum RequestPart {
    /// An incomplete head, of which `scanned` bytes are checked.
    Head { scanned: usize },
    /// A complete head, of which `left` bytes are still to be shown, and what comes behind it.
    ShownHead { left: usize, behind: BehindHead },
    /// A body, of which `left` bytes are still to come.
    Length { left: u64 },
    /// A chunked body.
    Chunks(ChunkScan),
    /// What hyper does not see.
    Hidden,
}

#[derive(Debug, Clone, Copy)]
enum BehindHead {
    Body(Framing),
    Nothing,
}

/// What the gate found, for the service.
#[derive(Debug, Clone, Default)]
pub struct GateReport(Arc<Mutex<GateFindings>>);

#[derive(Debug, Default)]
struct GateFindings {
    /// The framing of the head that was shown last; `None` within if it is refused.
    head: Option<Option<Framing>>,
    has_partial_head: bool,
    is_malformed: bool,
    is_last: bool,
}

impl GateReport {
    /// Takes how the body of the request that hyper has parsed is framed. Returns `None` if its head is
    /// refused, or if hyper found a head where the gate found none.
    pub fn take_framing(&self) -> Option<Framing> {
        self.findings().head.take().flatten()
    }

    /// Whether the connection ended within a head.
    pub fn has_partial_head(&self) -> bool {
        self.findings().has_partial_head
    }

    /// Whether the body of a request is malformed.
    pub fn is_malformed(&self) -> bool {
        self.findings().is_malformed
    }

    /// Whether nothing behind the head that was shown last is read as a request.
    pub fn is_last(&self) -> bool {
        self.findings().is_last
    }

    fn findings(&self) -> MutexGuard<'_, GateFindings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads and writes a program's connection for hyper.
#[derive(Debug)]
pub struct RequestGate<S> {
    socket: S,
    activity: Activity,
    report: GateReport,
    buffer: Vec<u8>,
    part: RequestPart,
    /// Whether reading is over.
    ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> RequestGate<S> {
    pub fn new(socket: S, activity: Activity, report: GateReport) -> Self {
        let part = RequestPart::Head { scanned: 0 };
        Self { socket, activity, report, buffer: Vec::new(), part, ended: false }
    }

    /// Returns the socket, and the bytes that hyper has not seen.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.socket, self.buffer)
    }

    /// Returns how many bytes at the buffer's start hyper may see now.
    fn showable(&mut self) -> usize {
        loop {
            let next = match &self.part {
                RequestPart::Head { scanned } => match self.check_head(*scanned) {
                    Some(part) => part,
                    None => return 0,
                },
                RequestPart::ShownHead { left: 0, behind } => match *behind {
                    BehindHead::Body(Framing::Chunked) => RequestPart::Chunks(ChunkScan::default()),
                    BehindHead::Body(Framing::Length(left)) => RequestPart::Length { left },
                    BehindHead::Nothing => RequestPart::Hidden,
                },
                RequestPart::ShownHead { left, .. } => return *left,
                RequestPart::Length { left: 0 } => RequestPart::Head { scanned: 0 },
                RequestPart::Length { left } => {
                    return self.buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                }
                RequestPart::Chunks(scan) if scan.is_over() => RequestPart::Head { scanned: 0 },
                RequestPart::Chunks(_) => return self.buffer.len(),
                RequestPart::Hidden => return 0,
            };
            self.part = next;
        }
    }

    /// Looks for a complete head in the buffer. Returns `None` if more bytes must arrive.
    fn check_head(&mut self, scanned: usize) -> Option<RequestPart> {
        let within = self.buffer.get(..HEAD_BYTES_MAX).unwrap_or(&self.buffer);
        let (checked, found) = (within.len(), head::end(within, scanned));
        let framing = match found.and_then(|length| within.get(..length)) {
            Some(head) => head::framing(head).ok(),
            None if checked == HEAD_BYTES_MAX => None,
            None => {
                self.report.findings().has_partial_head = checked > 0;
                self.part = RequestPart::Head { scanned: checked };
                return None;
            }
        };
        let is_tunnel = within.trim_ascii_start().starts_with(b"CONNECT ")
            || found.and_then(|length| within.get(..length)).is_some_and(head::asks_for_websocket);
        // The body of a CONNECT would be the beginning of a tunnel to one reader, and none to another.
        let framing = framing.filter(|framing| !is_tunnel || *framing == Framing::Length(0));
        let mut findings = self.report.findings();
        (findings.head, findings.has_partial_head) = (Some(framing), false);
        findings.is_last = is_tunnel;
        drop(findings);
        self.activity.touch();
        let Some((framing, left)) = framing.zip(found) else {
            // What follows is read and discarded at the end of the connection.
            self.buffer.clear();
            self.buffer.extend_from_slice(REFUSED_HEAD);
            let behind = BehindHead::Nothing;
            return Some(RequestPart::ShownHead { left: REFUSED_HEAD.len(), behind });
        };
        let behind = if is_tunnel { BehindHead::Nothing } else { BehindHead::Body(framing) };
        Some(RequestPart::ShownHead { left, behind })
    }

    /// Copies up to `showable` bytes to hyper. Returns an error if they end in a malformed chunk line; then
    /// hyper sees none of them.
    fn show(&mut self, showable: usize, out: &mut ReadBufCursor<'_>) -> io::Result<()> {
        let offered = self.buffer.get(..showable.min(out.remaining())).unwrap_or_default();
        let shown = match &mut self.part {
            RequestPart::Chunks(scan) => {
                let shown = scan.advance(offered);
                if scan.is_malformed() {
                    self.report.findings().is_malformed = true;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "malformed chunks"));
                }
                shown
            }
            _ => offered.len(),
        };
        out.put_slice(offered.get(..shown).unwrap_or_default());
        match &mut self.part {
            RequestPart::ShownHead { left, .. } => *left -= shown,
            RequestPart::Length { left } => {
                *left -= shown as u64;
                self.activity.touch();
            }
            RequestPart::Chunks(_) => self.activity.touch(),
            RequestPart::Head { .. } | RequestPart::Hidden => {}
        }
        self.buffer.drain(..shown);
        if self.buffer.is_empty() {
            // An idle connection holds no buffer.
            self.buffer = Vec::new();
        }
        Ok(())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut space = [0; GATE_READ_BYTES];
        let mut read = ReadBuf::new(&mut space);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut read))?;
        self.ended = read.filled().is_empty();
        self.buffer.extend_from_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Read for RequestGate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        loop {
            let showable = gate.showable();
            if showable > 0 {
                return Poll::Ready(gate.show(showable, &mut out));
            }
            if gate.ended {
                return Poll::Ready(Ok(()));
            }
            if matches!(gate.part, RequestPart::Hidden) {
                // Nothing comes any more, and the service's answer wakes the task.
                return Poll::Pending;
            }
            ready!(gate.poll_fill(cx))?;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Write for RequestGate<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let gate = self.get_mut();
        let written = ready!(Pin::new(&mut gate.socket).poll_write(cx, bytes))?;
        gate.activity.touch();
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let gate = self.get_mut();
        let written = ready!(Pin::new(&mut gate.socket).poll_write_vectored(cx, pieces))?;
        gate.activity.touch();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection is closed behind hyper, once what the program still sends is discarded.
        Poll::Ready(Ok(()))
    }
}
