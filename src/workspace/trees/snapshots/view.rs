//! A snapshot in an answer.

use serde::Serialize;

use super::table::Snapshot;
use cofferdam_core::values::utc::rfc3339;

/// A snapshot, keys in the order of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotView {
    /// Its id.
    pub snapshot_id: String,
    digest: String,
    bytes: u64,
    files: u64,
    created_at: String,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotPage {
    /// The snapshots, the newest first.
    pub snapshots: Vec<SnapshotView>,
    /// The cursor of the next page; null at the end.
    pub next_cursor: Option<String>,
}

impl SnapshotView {
    /// The view of `snapshot`.
    pub fn of(snapshot: &Snapshot) -> Self {
        Self {
            snapshot_id: snapshot.id.clone(),
            digest: snapshot.digest.clone(),
            bytes: snapshot.bytes,
            files: snapshot.files,
            created_at: rfc3339(snapshot.created_at),
        }
    }
}
