//! Buffers that leave no copy of what they held, which may be secrets.

use zeroize::Zeroizing;

/// Gives `buffer` this capacity. What it held is moved, and overwritten where it was.
pub fn grow(buffer: &mut Zeroizing<Vec<u8>>, capacity: usize) {
    let mut grown = Zeroizing::new(Vec::with_capacity(capacity));
    grown.extend_from_slice(buffer);
    *buffer = grown;
}
