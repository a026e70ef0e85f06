//! The last bytes of a session's output, as they arrived.

use cofferdam_core::Stream;
use cofferdam_core::weakened::{self, Wall};

use super::arrival_order::ArrivalOrder;
use super::kept_bytes::KeptBytes;

/// How many bytes are kept.
pub const BYTES_MAX: u64 = 4 << 20;

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

/// Where the last bytes of both streams are, in the order in which they arrived.
#[derive(Debug, Default)]
pub struct ByteWindow {
    order: ArrivalOrder,
}

impl ByteWindow {
    /// The offset of the first byte that is kept.
    pub fn first(&self) -> u64 {
        match weakened::lacks(Wall::Window) {
            true => 0,
            false => self.total().saturating_sub(BYTES_MAX),
        }
    }

    /// How many bytes arrived, kept or not.
    pub fn total(&self) -> u64 {
        self.order.total()
    }

    /// Adds `bytes` bytes of `stream`. Returns how many bytes of each stream it needs no longer.
    pub fn push(&mut self, stream: Stream, bytes: u64) -> [u64; 2] {
        self.order.push(stream, bytes);
        self.order.free_before(self.first())
    }

    /// The bytes from `offset` on: at most `bytes_max`, and of one stream. Nothing at the end.
    /// `offset` is moved to the first byte that is kept.
    pub fn read(
        &self,
        offset: u64,
        bytes_max: usize,
        kept: &[KeptBytes; 2],
    ) -> Option<OutputChunk> {
        let run = self.order.run(offset.max(self.first()), bytes_max as u64)?;
        let bytes = kept[run.stream as usize].copy(run.in_stream..run.in_stream + run.bytes);
        Some(OutputChunk { stream: run.stream, offset: run.offset, bytes })
    }
}
