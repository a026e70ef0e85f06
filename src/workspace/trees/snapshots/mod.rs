//! Files of workspaces as they were at one moment: taken, kept, and given up again.

mod freeze;
mod merge;
mod table;
mod view;

pub use freeze::freeze_files;
pub use merge::{Merger, merge_layers};
pub use table::{Snapshot, SnapshotFiles, SnapshotTable};
pub use view::{SnapshotPage, SnapshotView};
