//! Sources that git makes.

pub(super) mod clone;
pub(super) mod head;
pub(super) mod worktree;
