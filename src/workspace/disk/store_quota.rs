//! How much the engine's store may take on the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::workspace::error::{EngineCode, EngineError};

/// The size of a block of the disk, bytes.
const BLOCK_BYTES: u64 = 4096;

/// How much a file of `bytes` bytes takes on the disk.
pub fn file_charge(bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX)
}

/// How much a directory takes on the disk.
pub const DIRECTORY_CHARGE: u64 = BLOCK_BYTES;

/// The bytes of the store that are used or reserved. Clones share them.
#[derive(Debug, Clone)]
pub struct StoreQuota {
    used: Arc<AtomicU64>,
    bytes_max: u64,
}

/// Bytes that are about to be used. Dropping it frees them.
#[derive(Debug)]
pub struct StoreReservation {
    quota: StoreQuota,
    bytes: u64,
}

impl StoreQuota {
    /// A quota of `bytes_max` bytes, of which none is used.
    pub fn new(bytes_max: u64) -> Self {
        Self { used: Arc::default(), bytes_max }
    }

    /// The bytes that are used or reserved.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// An empty reservation.
    pub fn reservation(&self) -> StoreReservation {
        StoreReservation { quota: self.clone(), bytes: 0 }
    }

    /// Counts `bytes` that are on the disk already, even if there are too many.
    pub fn add(&self, bytes: u64) {
        self.update(|used| Some(used.saturating_add(bytes)));
    }

    /// Frees `bytes` that are no longer on the disk.
    pub fn free(&self, bytes: u64) {
        self.update(|used| Some(used.saturating_sub(bytes)));
    }

    fn take(&self, bytes: u64) -> Result<(), EngineError> {
        let fits = |used: &u64| *used <= self.bytes_max;
        let taken = self.update(|used| used.checked_add(bytes).filter(fits));
        if taken { Ok(()) } else { Err(self.full()) }
    }

    fn update(&self, change: impl FnMut(u64) -> Option<u64>) -> bool {
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    /// The error that the store has no room.
    pub fn full(&self) -> EngineError {
        let words = "the engine's store has no room (ENGINE_STORE_MAX)";
        EngineError::new(EngineCode::StoreFull, words).with("bytes_max", self.bytes_max)
    }

    /// Refuses `bytes` that do not fit now, without reserving them.
    ///
    /// # Errors
    /// [`EngineCode::StoreFull`].
    pub fn check(&self, bytes: u64) -> Result<(), EngineError> {
        let fits = self.used().checked_add(bytes).is_some_and(|used| used <= self.bytes_max);
        if fits { Ok(()) } else { Err(self.full()) }
    }
}

impl StoreReservation {
    /// Raises the reservation to `bytes`, if it is smaller.
    ///
    /// # Errors
    /// [`EngineCode::StoreFull`] if they do not fit. The reservation is unchanged then.
    pub fn raise_to(&mut self, bytes: u64) -> Result<(), EngineError> {
        self.quota.take(bytes.saturating_sub(self.bytes))?;
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }

    /// Lowers the reservation to `bytes`, if it is larger.
    pub fn lower_to(&mut self, bytes: u64) {
        self.quota.free(self.bytes.saturating_sub(bytes));
        self.bytes = self.bytes.min(bytes);
    }

    /// Counts the bytes as used from now on.
    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for StoreReservation {
    fn drop(&mut self) {
        self.quota.free(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_freed_unless_it_is_kept_and_never_exceeds_the_quota() {
        let quota = StoreQuota::new(100);
        let mut first = quota.reservation();
        first.raise_to(60).unwrap();
        first.raise_to(40).unwrap();
        assert_eq!(quota.used(), 60);
        let mut second = quota.reservation();
        assert_eq!(second.raise_to(41).unwrap_err().code, EngineCode::StoreFull);
        second.raise_to(40).unwrap();
        assert_eq!(second.raise_to(u64::MAX).unwrap_err().code, EngineCode::StoreFull);
        assert_eq!(quota.used(), 100);
        assert!(quota.check(0).is_ok() && quota.check(1).is_err());
        drop(second);
        first.lower_to(70);
        assert_eq!(quota.used(), 60);
        first.lower_to(55);
        first.keep();
        assert_eq!(quota.used(), 55);
        quota.free(10);
        quota.add(1000);
        assert_eq!(quota.used(), 1045);
        assert!(quota.check(0).is_err());
    }

    #[test]
    fn a_file_takes_whole_blocks() {
        for (bytes, charge) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
            assert_eq!(file_charge(bytes), charge);
        }
        assert_eq!(file_charge(u64::MAX), u64::MAX);
    }
}
