//! A workspace in the store.

use crate::config::TokenName;
use crate::workspace::disk::saved::SavedRecord;

/// A workspace that is in the store only, until it is used.
#[derive(Debug, Clone)]
pub struct ParkedWorkspace {
    /// Its place in the order of creation.
    pub number: u64,
    /// The token that it belongs to.
    pub owner: TokenName,
    /// What is kept of it besides its files.
    pub record: SavedRecord,
}

impl ParkedWorkspace {
    /// The one of `record`, with the number `number`.
    pub fn new(number: u64, record: SavedRecord) -> Self {
        Self { number, owner: TokenName::from(record.owner.as_str()), record }
    }
}
