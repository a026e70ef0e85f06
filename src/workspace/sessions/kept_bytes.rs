//! The last bytes of one output stream, in chunks: old output is freed without moving new output.

use std::collections::VecDeque;
use std::ops::Range;

/// The size of a chunk. All but the last one are full.
const CHUNK_BYTES: usize = 32 << 10;

/// Bytes of one stream. Each keeps its offset, which counts from the start of the stream.
#[derive(Debug, Default)]
pub struct KeptBytes {
    chunks: VecDeque<Vec<u8>>,
    /// The offset of the first byte that is kept.
    first: u64,
    total: u64,
    /// A chunk that was freed, for the next one.
    spare: Option<Vec<u8>>,
}

impl KeptBytes {
    /// Adds `bytes`.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.chunks.back().is_none_or(|last| last.len() == CHUNK_BYTES) {
                self.chunks.push_back(self.spare.take().unwrap_or_default());
            }
            let Some(last) = self.chunks.back_mut() else { return };
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - last.len()));
            let wanted = last.len() + now.len();
            if wanted > last.capacity() {
                // A vector that grows by itself may have room that no chunk uses.
                let room = (2 * last.capacity()).clamp(wanted, CHUNK_BYTES);
                last.reserve_exact(room - last.len());
            }
            last.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Frees whole chunks before `offset`.
    pub fn free_before(&mut self, offset: u64) {
        while self.first + CHUNK_BYTES as u64 <= offset {
            let Some(mut oldest) = self.chunks.pop_front() else { return };
            self.first += oldest.len() as u64;
            oldest.clear();
            self.spare = Some(oldest);
        }
    }

    /// The byte at `offset`, if it is kept.
    pub fn byte(&self, offset: u64) -> Option<u8> {
        let place = usize::try_from(offset.checked_sub(self.first)?).ok()?;
        self.chunks.get(place / CHUNK_BYTES)?.get(place % CHUNK_BYTES).copied()
    }

    /// Adds the bytes of this range to `text`. What was freed is left out.
    pub fn copy_to(&self, range: Range<u64>, text: &mut Vec<u8>) {
        let place =
            |offset: u64| usize::try_from(offset.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let (mut from, to) = (place(range.start), place(range.end.min(self.total)));
        while from < to {
            let Some(chunk) = self.chunks.get(from / CHUNK_BYTES) else { return };
            let within = from % CHUNK_BYTES;
            let count = (to - from).min(CHUNK_BYTES - within);
            text.extend_from_slice(chunk.get(within..within + count).unwrap_or_default());
            from += count;
        }
    }

    /// The bytes of this range.
    pub fn copy(&self, range: Range<u64>) -> Vec<u8> {
        let bytes = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or_default();
        let mut text = Vec::with_capacity(bytes);
        self.copy_to(range, &mut text);
        text
    }

    /// How many bytes were added, kept or not.
    #[cfg(test)]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many bytes take memory.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.chunks.iter().chain(&self.spare).map(Vec::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_their_offsets_when_older_ones_are_freed() {
        let text: Vec<u8> = (0..=250).collect();
        let mut kept = KeptBytes::default();
        while kept.total() < 4 * CHUNK_BYTES as u64 {
            kept.push(&text);
        }
        let from = 2 * CHUNK_BYTES as u64 + 7;
        kept.free_before(from);
        let rest = kept.copy(from..kept.total());
        assert_eq!(rest.len() as u64, kept.total() - from);
        for (at, byte) in (from..).zip(rest) {
            assert_eq!(u64::from(byte), at % 251);
        }
        assert_eq!(kept.copy(from..from), b"");
        kept.free_before(kept.total());
        kept.push(b"next");
        assert_eq!(kept.copy(kept.total() - 4..kept.total()), b"next");
    }

    #[test]
    fn memory_is_that_of_the_bytes_and_two_chunks_at_most() {
        let mut kept = KeptBytes::default();
        kept.push(b"few");
        assert!(kept.held() < 64, "{}", kept.held());
        for length in (1..200).cycle().take(10_000) {
            kept.push(&vec![7; length]);
            kept.free_before(kept.total().saturating_sub(100_000));
        }
        assert!(kept.held() <= 100_000 + 3 * CHUNK_BYTES, "{}", kept.held());
    }
}
