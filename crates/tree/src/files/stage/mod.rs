//! Puts whole trees, links and single copies into a workspace.

pub(super) mod access;
mod batch;
pub(super) mod copy;
mod host_roots;
pub(super) mod link;
pub(super) mod private_dir;

pub use self::access::StagedAccess;
pub use self::batch::{DirectorySource, StageBatch};
pub use self::host_roots::{HostEntry, HostRoots};
