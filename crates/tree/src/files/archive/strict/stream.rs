//! Bounds on what decompression yields.

use std::io::{self, Read};

use super::error::{Refused, UnsafeReason};

/// An archive may unpack to so many times its size,
const RATIO_MAX: u64 = 200;
/// if that is more than this, bytes.
const RATIO_FREE_BYTES: u64 = 16 << 20;

/// How much an archive may unpack to by its own size, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ratio {
    bytes_max: u64,
}

impl Ratio {
    /// That of an archive of this size.
    pub(super) fn of(archive_bytes: u64) -> Self {
        Self { bytes_max: archive_bytes.saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES) }
    }

    pub(super) fn unbounded() -> Self {
        Self { bytes_max: u64::MAX }
    }

    pub(super) fn is_exceeded_by(self, bytes: u64) -> bool {
        bytes > self.bytes_max
    }
}

/// A decompressed stream that ends with an error where it exceeds the ratio.
pub(super) struct BoundedRatio<R> {
    stream: R,
    ratio: Ratio,
    bytes: u64,
    refused: Refused,
}

impl<R: Read> BoundedRatio<R> {
    pub(super) fn new(stream: R, ratio: Ratio, refused: Refused) -> Self {
        Self { stream, ratio, bytes: 0, refused }
    }
}

impl<R: Read> Read for BoundedRatio<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.bytes = self.bytes.saturating_add(count as u64);
        if self.ratio.is_exceeded_by(self.bytes) {
            self.refused.set(Some(UnsafeReason::Ratio));
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(count)
    }
}
