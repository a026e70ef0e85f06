//! Puts whole trees, links and single copies into a workspace.

pub(super) mod access;
mod batch;
pub(super) mod copy;
mod fill;
mod host_roots;
pub(super) mod link;
pub(super) mod private_dir;

pub use self::access::StagedAccess;
pub use self::batch::StageBatch;
pub use self::fill::{DirectorySource, fill_read_only, open_read_only};
pub use self::host_roots::{HostEntry, HostRoots};
