//! Batches: what waits, whose turn it is, and how it went.

mod batch_file;
mod summary;
mod turns;

pub use batch_file::{BatchFile, BatchFiles, BatchItem, place_text};
pub use summary::{BatchEntry, summary_json};
pub use turns::{Turns, WaitingBatches};
