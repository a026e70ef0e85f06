//! The bytes that workspaces use or may still write, within a total and within a limit per token.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::TokenName;
use crate::workspace::error::{EngineCode, EngineError};

/// In place of a token, for what workspaces of all tokens share. No token has this name.
const SHARED: &str = "shared by all";

/// The account of all bytes.
#[derive(Debug)]
pub struct DiskLedger {
    max: u64,
    max_per_token: Option<u64>,
    charged: Mutex<ChargedBytes>,
}

#[derive(Debug, Default)]
struct ChargedBytes {
    total: u64,
    by_token: BTreeMap<TokenName, u64>,
}

/// The bytes of one workspace in the account. Dropping it takes them off.
#[derive(Debug)]
pub struct DiskCharge {
    ledger: Arc<DiskLedger>,
    token: TokenName,
    bytes: u64,
    /// Whether the files are in memory. Others count for the token only.
    is_in_memory: bool,
}

impl DiskLedger {
    /// An account of at most `max` bytes in memory, and `max_per_token` bytes of each token.
    pub fn new(max: u64, max_per_token: Option<u64>) -> Arc<Self> {
        Arc::new(Self { max, max_per_token, charged: Mutex::default() })
    }

    /// A charge of no bytes.
    pub fn open(self: &Arc<Self>, token: &TokenName, is_in_memory: bool) -> DiskCharge {
        DiskCharge { ledger: Arc::clone(self), token: token.clone(), bytes: 0, is_in_memory }
    }

    /// As [`DiskLedger::open`], for files that workspaces of all tokens share. All of them together are charged as those
    /// of one more token.
    pub fn open_shared(self: &Arc<Self>, is_in_memory: bool) -> DiskCharge {
        self.open(&TokenName::from(SHARED), is_in_memory)
    }

    /// The bytes in memory.
    pub fn total(&self) -> u64 {
        self.lock().total
    }

    /// The most bytes in memory.
    pub fn max(&self) -> u64 {
        self.max
    }

    fn lock(&self) -> MutexGuard<'_, ChargedBytes> {
        // Sums change without a point at which a panic could interrupt them.
        self.charged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskCharge {
    /// Changes the charge to `bytes`. Fewer bytes than now always fit.
    ///
    /// # Errors
    /// The account, or the token's part, would be above its limit. Nothing has changed then.
    pub fn set(&mut self, bytes: u64) -> Result<(), EngineError> {
        let mut charged = self.ledger.lock();
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let of_token = charged.by_token.get(&self.token).copied().unwrap_or_default();
            if let Some(max) = self.ledger.max_per_token
                && of_token.saturating_add(more) > max
            {
                let words = "the token's workspaces may not hold that much";
                return Err(EngineError::new(EngineCode::TokenLimit, words)
                    .with("limit", "disk")
                    .with("max", max));
            }
            if self.is_in_memory && charged.total.saturating_add(more) > self.ledger.max {
                let words = "the workspaces may not hold that much together";
                return Err(EngineError::new(EngineCode::WorkspacesFull, words)
                    .with("max", self.ledger.max));
            }
        }
        self.apply(&mut charged, bytes);
        drop(charged);
        self.bytes = bytes;
        Ok(())
    }

    /// Changes the charge to `bytes`, which are used already, whatever the limits are.
    pub fn correct(&mut self, bytes: u64) {
        self.apply(&mut self.ledger.lock(), bytes);
        self.bytes = bytes;
    }

    /// Moves `bytes` of this charge to a new one, for files in memory or on disk. The files exist already,
    /// so bytes that this charge does not have are added.
    pub fn split_off(&mut self, bytes: u64, is_in_memory: bool) -> Self {
        let mut charged = self.ledger.lock();
        let kept = self.bytes.saturating_sub(bytes);
        self.apply(&mut charged, kept);
        self.bytes = kept;
        let (ledger, token) = (Arc::clone(&self.ledger), self.token.clone());
        let mut split = Self { ledger, token, bytes: 0, is_in_memory };
        split.apply(&mut charged, bytes);
        drop(charged);
        split.bytes = bytes;
        split
    }

    /// [`DiskLedger::open_shared`] of the account of this charge, for the same kind of storage.
    pub fn open_shared(&self) -> Self {
        self.ledger.open_shared(self.is_in_memory)
    }

    /// The bytes of the charge.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn apply(&self, charged: &mut ChargedBytes, bytes: u64) {
        let change = |sum: u64| sum.saturating_sub(self.bytes).saturating_add(bytes);
        if self.is_in_memory {
            charged.total = change(charged.total);
        }
        let of_token = charged.by_token.entry(self.token.clone()).or_default();
        *of_token = change(*of_token);
        if *of_token == 0 {
            charged.by_token.remove(&self.token);
        }
    }
}

impl Drop for DiskCharge {
    fn drop(&mut self) {
        self.apply(&mut self.ledger.lock(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: Result<(), EngineError>) -> Option<EngineCode> {
        result.err().map(|error| error.code)
    }

    #[test]
    fn no_charge_exceeds_the_total_or_the_tokens_part() {
        let ledger = DiskLedger::new(100, Some(60));
        let (a, b) = (TokenName::from("a"), TokenName::from("b"));
        let (mut first, mut second) = (ledger.open(&a, true), ledger.open(&b, true));
        assert_eq!(code(first.set(61)), Some(EngineCode::TokenLimit));
        assert_eq!((code(first.set(60)), first.bytes()), (None, 60));
        assert_eq!(code(second.set(41)), Some(EngineCode::WorkspacesFull));
        assert_eq!((second.bytes(), ledger.total()), (0, 60));
        assert_eq!(code(second.set(40)), None);
        assert_eq!(code(ledger.open(&a, true).set(1)), Some(EngineCode::TokenLimit));
        assert_eq!(code(first.set(10)), None);
        assert_eq!(ledger.total(), 50);
        drop(second);
        assert_eq!(ledger.total(), 10);
        assert_eq!(ledger.lock().by_token.len(), 1);
    }

    #[test]
    fn a_part_of_a_charge_moves_without_a_change_of_the_sum_and_what_is_used_always_fits() {
        let ledger = DiskLedger::new(100, Some(60));
        let mut whole = ledger.open(&TokenName::from("a"), true);
        whole.set(50).unwrap();
        let part = whole.split_off(30, true);
        assert_eq!((whole.bytes(), part.bytes(), ledger.total()), (20, 30, 50));
        let more = whole.split_off(70, true);
        assert_eq!((whole.bytes(), more.bytes(), ledger.total()), (0, 70, 100));
        whole.correct(40);
        assert_eq!(ledger.total(), 140);
        let on_disk = whole.split_off(10, false);
        assert_eq!((whole.bytes(), ledger.total()), (30, 130));
        assert_eq!(ledger.lock().by_token[&TokenName::from("a")], 140);
        drop((whole, part, more, on_disk));
        assert_eq!((ledger.total(), ledger.lock().by_token.len()), (0, 0));
    }

    #[test]
    fn what_all_share_is_charged_to_no_token_and_is_no_more_than_one_may_have() {
        let ledger = DiskLedger::new(100, Some(60));
        let mut own = ledger.open(&TokenName::from("a"), true);
        own.set(30).unwrap();
        let mut shared = own.open_shared();
        assert_eq!(code(shared.set(61)), Some(EngineCode::TokenLimit));
        assert_eq!(code(shared.set(60)), None);
        assert_eq!((code(own.set(40)), ledger.total()), (None, 100));
        drop(own);
        assert_eq!(ledger.total(), 60);
    }

    #[test]
    fn files_on_disk_count_for_the_token_only() {
        let ledger = DiskLedger::new(10, Some(60));
        let mut on_disk = ledger.open(&TokenName::from("a"), false);
        assert_eq!((code(on_disk.set(50)), ledger.total()), (None, 0));
        assert_eq!(code(on_disk.set(61)), Some(EngineCode::TokenLimit));
    }
}
