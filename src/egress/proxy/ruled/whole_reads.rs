//! A connection that is read as much at a time as there is: TLS gives one record at a time, and each piece
//! of an answer takes several steps.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection of which each read takes all that has come, as far as the reader's buffer holds it.
#[derive(Debug)]
pub struct WholeReads<S>(pub S);

impl<S: AsyncRead + Unpin> AsyncRead for WholeReads<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (stream, before) = (&mut self.get_mut().0, buffer.filled().len());
        loop {
            let filled = buffer.filled().len();
            let read = Pin::new(&mut *stream).poll_read(cx, buffer);
            let has_more = matches!(read, Poll::Ready(Ok(()))) && buffer.filled().len() > filled;
            if has_more && buffer.remaining() > 0 {
                continue;
            }
            // What ended the connection ends the next read too.
            return if buffer.filled().len() > before { Poll::Ready(Ok(())) } else { read };
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WholeReads<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::io::AsyncReadExt;
    use tokio::runtime::Builder;

    use super::*;

    /// Gives one piece at each read; an empty one has not come yet.
    struct Pieces(VecDeque<&'static [u8]>);

    impl AsyncRead for Pieces {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.get_mut().0.pop_front() {
                Some([]) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(piece) => buffer.put_slice(piece),
                None => {}
            }
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_read_takes_what_has_come_and_waits_for_no_more() {
        let pieces: [&[u8]; 6] = [b"abc", b"de", b"", b"f", b"", b"g"];
        let runtime = Builder::new_current_thread().build().unwrap();
        for (space, reads) in
            [(16, vec![5, 1, 1, 0]), (5, vec![5, 1, 1, 0]), (3, vec![3, 2, 1, 1, 0])]
        {
            let mut stream = WholeReads(Pieces(pieces.into()));
            let mut buffer = vec![0; space];
            let read = runtime.block_on(async {
                let mut read = Vec::new();
                while read.last() != Some(&0) {
                    read.push(stream.read(&mut buffer).await.unwrap());
                }
                read
            });
            assert_eq!(read, reads, "{space}");
        }
    }
}
