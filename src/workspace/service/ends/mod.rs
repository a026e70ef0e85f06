//! How workspaces end: removed, or parked in the store; and how parked ones come back.

pub mod bell;
pub mod keeper;
mod park;
pub mod parked;
pub mod reaper;
mod requests;
mod save;
pub mod save_queue;
pub mod saver;
pub mod wake;
