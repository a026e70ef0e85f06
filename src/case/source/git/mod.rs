//! Sources that git makes.

pub(super) mod clone;
mod group;
pub(super) mod head;
pub(super) mod worktree;
