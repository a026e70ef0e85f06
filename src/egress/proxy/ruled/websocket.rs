//! A request that has become a WebSocket: its bytes pass in both directions, uncut and unread.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes};
use tokio::sync::OwnedSemaphorePermit;

use super::meter::ByteMeter;
use super::pool::UsedConnection;

/// The buffer of each direction.
const COPY_BYTES: usize = 16 * 1024;

/// A WebSocket that a host has agreed to.
#[derive(Debug)]
pub struct RuledWebSocket {
    pub upgraded: OnUpgrade,
    pub sent: ByteMeter,
    pub received: ByteMeter,
    pub connection: UsedConnection,
    pub permit: OwnedSemaphorePermit,
}

impl RuledWebSocket {
    /// Carries bytes between `client`, of which `first` are read already, and the host until both are done.
    pub async fn run<S>(self, client: &mut S, first: &[u8]) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { upgraded, sent, received, connection, permit } = self;
        let upgraded = upgraded.await.map_err(io::Error::other)?;
        let mut host = MeteredUpgrade { stream: TokioIo::new(upgraded), sent, received };
        host.write_all(first).await?;
        let copied = copy_bidirectional_with_sizes(client, &mut host, COPY_BYTES, COPY_BYTES).await;
        drop((connection, permit));
        copied.map(drop)
    }
}

/// Counts what passes.
#[derive(Debug)]
struct MeteredUpgrade {
    stream: TokioIo<Upgraded>,
    sent: ByteMeter,
    received: ByteMeter,
}

impl AsyncRead for MeteredUpgrade {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let metered = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut metered.stream).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        Poll::Ready(metered.received.pass_all(read).map_err(io::Error::other))
    }
}

impl AsyncWrite for MeteredUpgrade {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let metered = self.get_mut();
        let written = ready!(Pin::new(&mut metered.stream).poll_write(cx, bytes))?;
        Poll::Ready(metered.sent.pass_all(written).map(|()| written).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
