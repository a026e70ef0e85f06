//! Who may change a staged tree.

use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, fchmod, fchmodat, fstatat};

use super::copy::{CopyPurpose, service_owner};
use crate::files::error::{FilesError, OnPath};
use crate::status;
use crate::walk::{FileKind, TreeWalk, WalkEvent};
use cofferdam_core::values::owner::Owner;

/// Who may change a staged tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagedAccess {
    /// It belongs to the workspace's owner.
    Writable,
    /// It belongs to the service, and nothing in it has a write permission.
    ReadOnly,
}

impl StagedAccess {
    pub(super) fn purpose(self) -> CopyPurpose {
        match self {
            Self::Writable => CopyPurpose::Writable,
            Self::ReadOnly => CopyPurpose::ReadOnly,
        }
    }

    /// The owner of a tree in a workspace of `owner`.
    pub(crate) fn owner(self, owner: Owner) -> Owner {
        match self {
            Self::Writable => owner,
            Self::ReadOnly => service_owner(),
        }
    }
}

/// Takes all write permissions from the contents of `top`, which no program can reach.
pub(crate) fn remove_write_permissions(top: BorrowedFd<'_>, path: &Path) -> Result<(), FilesError> {
    let mut walk = TreeWalk::to_choose(top, u64::MAX).on("list", path)?;
    while let Some(event) = walk.advance()? {
        let changed = match &event {
            WalkEvent::Enter { stat, .. } => {
                fchmod(walk.directory(), status::read_only_mode(status::file_mode(stat)))
            }
            WalkEvent::Entry { name, kind: FileKind::Regular } => {
                let stat = fstatat(walk.directory(), name.as_c_str(), AtFlags::empty());
                let mode = stat.map(|stat| status::read_only_mode(status::file_mode(&stat)));
                let follow = FchmodatFlags::FollowSymlink;
                mode.and_then(|mode| fchmodat(walk.directory(), name.as_c_str(), mode, follow))
            }
            _ => Ok(()),
        };
        changed.on("chmod", path)?;
    }
    Ok(())
}
