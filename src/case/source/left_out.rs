//! What copies of a source lack, and how large a source may be.

use cofferdam_tree::TreeLimits;

/// What no copy has, at any depth.
const LEFT_OUT: [&[u8]; 4] = [b".git", b"__pycache__", b".venv", b"node_modules"];
const LEFT_OUT_ENDING: &[u8] = b".pyc";
/// The limits of a source.
pub const SOURCE_LIMITS: TreeLimits =
    TreeLimits { entries_max: 1_000_000, bytes_max: 4 << 30, depth_max: 1000 };

/// Whether no copy has entries of this name.
pub fn is_left_out(name: &[u8]) -> bool {
    LEFT_OUT.contains(&name) || name.ends_with(LEFT_OUT_ENDING)
}
