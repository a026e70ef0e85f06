//! What an agent, or a command that is tried, changed: read from its writable layer, written as a patch, and put over the base again.

mod apply;
mod changes;
pub mod entry;
mod error;
mod export;
mod git;
mod settings;
mod withheld;

pub use apply::{TreeWriter, apply_changes};
pub use changes::{ComparedTrees, FileChange, TreeChanges, compare};
pub use entry::read_beneath;
pub use error::PatchError;
pub use export::{ComparedPart, WrittenPatch, write_patch, write_patch_by};
pub use git::{GitPhase, apply_ready_patch, git_spec, ignored_paths};
pub use withheld::{RestoreRules, Restored, withhold};
