//! Sources that git makes.

pub(super) mod clone;
mod group;
pub(super) mod head;
pub(in crate::case) mod worktree;
