//! The output of a thread that reads files as the body of a response.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::transfer::PIECES_MAX;
use crate::http::error::HttpError;

/// Bytes that are collected before they are passed on.
const PIECE_BYTES: usize = 64 * 1024;

/// Where the thread writes.
#[derive(Debug)]
pub struct PieceWriter {
    pieces: Sender<Result<Bytes, HttpError>>,
    buffer: Vec<u8>,
}

/// What the connection reads.
#[derive(Debug)]
pub struct PieceBody {
    first: Option<Bytes>,
    pieces: Receiver<Result<Bytes, HttpError>>,
    _permit: OwnedSemaphorePermit,
}

/// Makes both ends.
pub fn piece_writer() -> (PieceWriter, Receiver<Result<Bytes, HttpError>>) {
    let (pieces, receiver) = channel(PIECES_MAX);
    (PieceWriter { pieces, buffer: Vec::new() }, receiver)
}

impl PieceWriter {
    /// Ends the output.
    pub fn finish(mut self, result: Result<(), HttpError>) {
        let last = result.and_then(|()| self.flush().map_err(|_| HttpError::Internal));
        if let Err(error) = last {
            // The client may have left.
            let _ = self.pieces.blocking_send(Err(error));
        }
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.buffer).into();
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl PieceBody {
    /// Waits for the first piece, so that an error before it is an ordinary answer.
    pub async fn begin(
        mut pieces: Receiver<Result<Bytes, HttpError>>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, HttpError> {
        let first = pieces.recv().await.transpose()?;
        Ok(Self { first, pieces, _permit: permit })
    }
}

impl HttpBody for PieceBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
