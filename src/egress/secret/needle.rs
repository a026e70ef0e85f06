//! One spelling of a secret, found byte by byte in linear time.

use std::fmt;

use cofferdam_core::REDACTED;
use zeroize::Zeroizing;

/// The most bytes of all spellings of the secrets of one network.
pub const NEEDLES_BYTES_MAX: usize = 16 << 20;

/// One spelling of a secret.
pub struct Needle {
    bytes: Zeroizing<Vec<u8>>,
    /// For each length of a beginning: the length of its longest own beginning that is also its end (the
    /// table of Knuth, Morris and Pratt).
    borders: Vec<u32>,
}

impl fmt::Debug for Needle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(REDACTED)
    }
}

impl Needle {
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        let mut needle = Self { borders: Vec::with_capacity(bytes.len()), bytes };
        let mut border = 0;
        for index in 0..needle.bytes.len() {
            if index > 0 {
                border = needle.advance(border, needle.at(index));
            }
            needle.borders.push(border);
        }
        needle
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How much of the needle the input ends with, once `byte` follows input that ended with `matched` of
    /// it, which is less than all.
    pub fn advance(&self, mut matched: u32, byte: u8) -> u32 {
        loop {
            if self.at(matched as usize) == byte {
                return matched + 1;
            }
            if matched == 0 {
                return 0;
            }
            matched = self.border(matched);
        }
    }

    /// How much of the needle's beginning stands at the end of its first `matched` bytes, which are at
    /// least one.
    pub fn border(&self, matched: u32) -> u32 {
        self.borders.get(matched as usize - 1).copied().unwrap_or_default()
    }

    pub fn is_whole(&self, matched: u32) -> bool {
        matched as usize == self.bytes.len()
    }

    fn at(&self, index: usize) -> u8 {
        self.bytes.get(index).copied().unwrap_or_default()
    }
}
