//! The attributes that a copy keeps, and its change of owner.

use std::ffi::{CStr, OsStr};
use std::os::fd::BorrowedFd;

use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, Mode, UtimensatFlags, fchmod, futimens, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{fchownat, symlinkat};

use crate::error::{During, WorkspaceFault};
use crate::status;
use cofferdam_core::values::owner::Owner;

/// The permission bits and the time that a copy keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) mode: Mode,
    modified: TimeSpec,
}

impl Attributes {
    pub(crate) fn of_file(stat: &FileStat) -> Self {
        let modified = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
        Self { mode: status::file_mode(stat), modified }
    }

    pub(crate) fn of_directory(stat: &FileStat) -> Self {
        Self { mode: status::directory_mode(stat), ..Self::of_file(stat) }
    }

    /// Sets the mode, the time and then the owner of a finished copy. The order matters: only the
    /// owner may set mode and time. No other process can access the copy yet, and the mode has no bits
    /// that a change of owner clears.
    pub(crate) fn settle(self, copy: BorrowedFd<'_>, owner: Owner) -> Result<(), WorkspaceFault> {
        fchmod(copy, self.mode).during("chmod")?;
        futimens(copy, &self.modified, &self.modified).during("utimens")?;
        owner.take(copy).during("chown")
    }
}

/// Creates the link `name` to `text` in `parent`, with the time of `stat`, owned by `owner`.
pub(crate) fn make_link(
    parent: BorrowedFd<'_>,
    name: &CStr,
    text: &OsStr,
    stat: &FileStat,
    owner: Owner,
) -> Result<(), WorkspaceFault> {
    let Attributes { modified, .. } = Attributes::of_file(stat);
    symlinkat(text, parent, name).during("symlink")?;
    utimensat(parent, name, &modified, &modified, UtimensatFlags::NoFollowSymlink)
        .during("utimens")?;
    let (uid, gid) = (Some(owner.uid()), Some(owner.gid()));
    fchownat(parent, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW).during("chown")
}
