//! The last bytes of a session's output, as they arrived.

use std::collections::VecDeque;

use cofferdam_core::Stream;
use cofferdam_core::weakened::{self, Wall};

/// How many bytes are kept.
pub const BYTES_MAX: usize = 4 << 20;
/// Bytes of one stream that arrive after each other are kept together up to this size.
const CHUNK_BYTES_MAX: usize = 32 << 10;

/// Bytes of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    /// The stream.
    pub stream: Stream,
    /// How many bytes of both streams came before.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The last bytes of both streams, in the order in which they arrived.
#[derive(Debug, Default)]
pub struct ByteWindow {
    chunks: VecDeque<OutputChunk>,
    total: u64,
}

impl ByteWindow {
    /// The offset of the first byte that is kept.
    pub fn first(&self) -> u64 {
        self.chunks.front().map_or(self.total, |chunk| chunk.offset)
    }

    /// How many bytes arrived, kept or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds output of `stream`.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        for piece in bytes.chunks(CHUNK_BYTES_MAX) {
            match self.chunks.back_mut() {
                Some(last)
                    if last.stream == stream
                        && last.bytes.len() + piece.len() <= CHUNK_BYTES_MAX =>
                {
                    // A vector that grows by itself may have room that no chunk uses.
                    let wanted = last.bytes.len() + piece.len();
                    if wanted > last.bytes.capacity() {
                        let room = (2 * last.bytes.capacity()).clamp(wanted, CHUNK_BYTES_MAX);
                        last.bytes.reserve_exact(room - last.bytes.len());
                    }
                    last.bytes.extend_from_slice(piece);
                }
                _ => {
                    let bytes = piece.to_vec();
                    self.chunks.push_back(OutputChunk { stream, offset: self.total, bytes });
                }
            }
            self.total += piece.len() as u64;
        }
        self.evict();
    }

    fn evict(&mut self) {
        if weakened::lacks(Wall::Window) {
            return;
        }
        while let Some(oldest) = self.chunks.front_mut() {
            let excess = self.total - oldest.offset;
            let excess = usize::try_from(excess).unwrap_or(usize::MAX).saturating_sub(BYTES_MAX);
            if excess == 0 {
                return;
            }
            if excess < oldest.bytes.len() {
                oldest.bytes.drain(..excess);
                oldest.offset += excess as u64;
                return;
            }
            self.chunks.pop_front();
        }
    }

    /// The bytes from `offset` on: at most `bytes_max`, and of one stream. Nothing at the end.
    /// `offset` is moved to the first byte that is kept.
    pub fn read(&self, offset: u64, bytes_max: usize) -> Option<OutputChunk> {
        let after = self.chunks.partition_point(|chunk| chunk.offset <= offset);
        let chunk = self.chunks.get(after.saturating_sub(1))?;
        let skipped = usize::try_from(offset.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
        let rest = chunk.bytes.get(skipped..).filter(|rest| !rest.is_empty())?;
        let bytes = rest.get(..bytes_max).unwrap_or(rest).to_vec();
        Some(OutputChunk { stream: chunk.stream, offset: chunk.offset + skipped as u64, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(window: &ByteWindow, mut offset: u64, bytes_max: usize) -> Vec<OutputChunk> {
        let mut read = Vec::new();
        while let Some(chunk) = window.read(offset, bytes_max) {
            offset = chunk.offset + chunk.bytes.len() as u64;
            read.push(chunk);
        }
        read
    }

    #[test]
    fn streams_keep_their_order_and_share_the_offsets() {
        let mut window = ByteWindow::default();
        window.push(Stream::Stdout, b"ab");
        window.push(Stream::Stdout, b"c");
        window.push(Stream::Stderr, b"de");
        let chunk =
            |stream, offset, bytes: &[u8]| OutputChunk { stream, offset, bytes: bytes.into() };
        let whole = [chunk(Stream::Stdout, 0, b"abc"), chunk(Stream::Stderr, 3, b"de")];
        assert_eq!(all(&window, 0, 100), whole);
        assert_eq!(window.read(1, 1), Some(chunk(Stream::Stdout, 1, b"b")));
        assert_eq!(window.read(3, 9), Some(chunk(Stream::Stderr, 3, b"de")));
        assert_eq!((window.read(5, 9), window.read(99, 9)), (None, None));
    }

    #[test]
    fn the_last_bytes_are_kept_with_their_offsets() {
        let mut window = ByteWindow::default();
        let text: Vec<u8> = (0..=250).collect();
        let mut pushed = 0_u64;
        while pushed <= BYTES_MAX as u64 + 1000 {
            window.push(
                if pushed.is_multiple_of(3) { Stream::Stderr } else { Stream::Stdout },
                &text,
            );
            pushed += text.len() as u64;
        }
        assert_eq!(window.total(), pushed);
        assert_eq!(window.first(), pushed - BYTES_MAX as u64);
        let mut next = window.first();
        for chunk in all(&window, 0, 1000) {
            assert_eq!(chunk.offset, next);
            for byte in chunk.bytes {
                assert_eq!(u64::from(byte), next % 251);
                next += 1;
            }
        }
        assert_eq!(next, pushed);
    }
}
