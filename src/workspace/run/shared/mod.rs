//! One sandbox for all programs of a workspace.

mod program;
pub mod slot;

pub use program::sandbox_of;
