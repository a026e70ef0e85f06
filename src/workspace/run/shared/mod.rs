//! One sandbox for all programs of a workspace.

mod program;
mod slot;

pub use program::sandbox_of;
pub use slot::SharedSlot;
