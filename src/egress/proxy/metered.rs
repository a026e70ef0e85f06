//! The connection to a host: counts its bytes and ends at the limit of bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connection::activity::Activity;
use crate::egress::log::OpenRecord;
use cofferdam_core::egress::{EgressDecision, EgressReason};

/// A connection to a host.
#[derive(Debug)]
pub struct MeteredStream {
    socket: TcpStream,
    record: Arc<OpenRecord>,
    activity: Activity,
    bytes_max: u64,
}

impl MeteredStream {
    pub fn new(
        socket: TcpStream,
        record: Arc<OpenRecord>,
        activity: Activity,
        bytes_max: u64,
    ) -> Self {
        Self { socket, record, activity, bytes_max }
    }

    pub fn record(&self) -> &Arc<OpenRecord> {
        &self.record
    }

    fn take(&self, bytes: usize) -> usize {
        let taken = self.record.log().take_bytes(bytes as u64, self.bytes_max);
        usize::try_from(taken).unwrap_or(bytes)
    }

    fn cut(&self) -> io::Error {
        self.record.refused(EgressDecision::Cut, EgressReason::Bytes);
        io::Error::new(io::ErrorKind::QuotaExceeded, "the limit of bytes is reached")
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut stream.socket).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        let passed = stream.take(read);
        if passed < read {
            buffer.set_filled(before + passed);
        }
        if passed == 0 && read > 0 {
            return Poll::Ready(Err(stream.cut()));
        }
        if passed > 0 {
            stream.activity.touch();
            stream.record.traffic().add_received(passed as u64);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        let taken = stream.take(bytes.len());
        if taken == 0 && !bytes.is_empty() {
            return Poll::Ready(Err(stream.cut()));
        }
        let offered = bytes.get(..taken).unwrap_or(bytes);
        let written = Pin::new(&mut stream.socket).poll_write(cx, offered);
        let passed = match &written {
            Poll::Ready(Ok(passed)) => *passed,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        stream.record.log().return_bytes((taken - passed.min(taken)) as u64);
        if passed > 0 {
            stream.activity.touch();
            stream.record.traffic().add_sent(passed as u64);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
