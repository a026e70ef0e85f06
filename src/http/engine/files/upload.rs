//! A request's body as the input of a thread that writes files.

use std::io::{self, Read};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::transfer::PIECES_MAX;
use crate::http::error::HttpError;

/// The body of a request, for a thread.
#[derive(Debug)]
pub struct UploadSource {
    pieces: Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for UploadSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        let taken = self.piece.split_to(count);
        for (to, from) in buffer.iter_mut().zip(&taken) {
            *to = *from;
        }
        Ok(count)
    }
}

/// Makes a reader, and where its pieces are sent.
pub fn body_reader() -> (Sender<io::Result<Bytes>>, UploadSource) {
    let (sender, pieces) = channel(PIECES_MAX);
    (sender, UploadSource { pieces, piece: Bytes::new() })
}

/// Passes `body` on until the thread has its `result`. Each piece of it must arrive `within` this
/// time.
pub async fn feed<T>(
    mut body: Body,
    within: Duration,
    pieces: Sender<io::Result<Bytes>>,
    result: oneshot::Receiver<Result<T, HttpError>>,
) -> Result<T, HttpError> {
    let feeding = async {
        loop {
            let frame = match timeout(within, body.frame()).await {
                Err(_) => return Some(HttpError::BodyLate),
                Ok(Some(Err(_))) => return Some(HttpError::BodyIncomplete),
                Ok(None) => return None,
                Ok(Some(Ok(frame))) => frame,
            };
            // Without a reader, the thread has its result already.
            let data = frame.into_data().unwrap_or_default();
            if !data.is_empty() && pieces.send(Ok(data)).await.is_err() {
                return None;
            }
        }
    };
    let fault = feeding.await;
    if fault.is_some() {
        let _ = pieces.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
    }
    drop(pieces);
    let ended = result.await.unwrap_or(Err(HttpError::Internal));
    // The thread only knows that its input ended.
    fault.map_or(ended, Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_as_one_stream_and_a_fault_ends_it() {
        let (sender, mut reader) = body_reader();
        for piece in [&b"ab"[..], b"", b"cde"] {
            sender.try_send(Ok(Bytes::from_static(piece))).unwrap();
        }
        let mut buffer = [0; 4];
        assert_eq!(reader.read(&mut buffer).unwrap(), 2);
        assert_eq!(reader.read(&mut buffer[..1]).unwrap(), 1);
        assert_eq!(reader.read(&mut buffer).unwrap(), 2);
        assert_eq!(&buffer[..2], b"de");
        sender.try_send(Err(io::ErrorKind::UnexpectedEof.into())).unwrap();
        assert!(reader.read(&mut buffer).is_err());
        drop(sender);
        assert_eq!(reader.read(&mut buffer).unwrap(), 0);
    }
}
