//! Reads a file piece by piece on threads that may block on a disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinHandle, spawn_blocking};

/// The maximum size of a piece, and so the memory of a reader, in bytes.
pub const PIECE_BYTES_MAX: u64 = 64 * 1024;

/// Starts reading `file` at `offset`: up to `bytes` bytes, but at most one piece. The result is
/// empty only at the end of the file.
pub fn read_piece(file: &Arc<File>, offset: u64, bytes: u64) -> JoinHandle<io::Result<Vec<u8>>> {
    let file = Arc::clone(file);
    spawn_blocking(move || {
        let wanted = usize::try_from(bytes.min(PIECE_BYTES_MAX)).unwrap_or_default();
        let mut piece = vec![0; wanted];
        loop {
            match file.read_at(&mut piece, offset) {
                Ok(count) => {
                    piece.truncate(count);
                    return Ok(piece);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    })
}

/// A part of a file as a response body, with one piece in memory at a time.
pub struct FilePart {
    file: Arc<File>,
    offset: u64,
    left: u64,
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
    /// Held while the file is open.
    _permit: OwnedSemaphorePermit,
}

impl FilePart {
    /// Sends `bytes` bytes of `file` from `offset`. The response is cut off if the file ends
    /// earlier.
    pub fn new(file: File, offset: u64, bytes: u64, permit: OwnedSemaphorePermit) -> Self {
        Self { file: Arc::new(file), offset, left: bytes, reading: None, _permit: permit }
    }
}

impl Body for FilePart {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Self { file, offset, left, reading, .. } = self.get_mut();
        if *left == 0 {
            return Poll::Ready(None);
        }
        let read = reading.get_or_insert_with(|| read_piece(file, *offset, *left));
        let piece = ready!(Pin::new(read).poll(cx));
        *reading = None;
        let piece = match piece.map_err(io::Error::other).flatten() {
            Ok(piece) if piece.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        Poll::Ready(Some(piece.map(|piece| {
            let count = piece.len() as u64;
            *offset += count;
            *left -= count;
            Frame::data(piece.into())
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
