//! Everything about an entry but its contents: owner, mode, times, extended attributes.

use std::ffi::{CStr, CString};
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::AtFlags;
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, futimens, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, fchownat};

use crate::error::{During, WorkspaceFault};
use crate::status;

/// How the names of attributes begin that a copy of a file has: those of its owner, and access lists.
const KEPT_PREFIXES: [&[u8]; 2] = [b"user.", b"system.posix_acl_"];

/// Extended attributes of open files. This crate makes no unsafe calls, and there are no others for
/// them.
pub trait ExtendedAttributes: Debug + Sync {
    /// The names of all attributes of `file`; none where the file system has no attributes.
    fn names(&self, file: BorrowedFd<'_>) -> io::Result<Vec<CString>>;
    /// The value of the attribute `name`; `None` if the file has none of that name.
    fn value(&self, file: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>>;
    /// Sets the attribute `name`.
    fn set(&self, file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()>;
    /// Removes the attribute `name`.
    fn remove(&self, file: BorrowedFd<'_>, name: &CStr) -> io::Result<()>;
}

/// How overlayfs marks directories and keeps attributes of its own.
#[derive(Debug, Clone, Copy)]
pub struct LayerMarks<'calls> {
    /// The calls for attributes.
    pub calls: &'calls dyn ExtendedAttributes,
    /// The start of the names of overlayfs's own attributes: `trusted.overlay.`, or `user.overlay.`
    /// for an overlay that is mounted without privileges.
    pub prefix: &'calls CStr,
}

impl LayerMarks<'_> {
    fn attribute(self, name: &[u8]) -> CString {
        CString::new([self.prefix.to_bytes(), name].concat()).unwrap_or_default()
    }

    fn opaque(self) -> CString {
        self.attribute(b"opaque")
    }

    fn redirect_name(self) -> CString {
        self.attribute(b"redirect")
    }

    /// The path below the root of the overlay at which lies what shows through `directory`, if it is another one than
    /// its own.
    pub(crate) fn redirect(self, directory: impl AsFd) -> Result<Option<Vec<u8>>, WorkspaceFault> {
        self.calls.value(directory.as_fd(), &self.redirect_name()).during("get attribute")
    }

    /// Lets the directory of lower layers at `path`, which begins at the root of the overlay, show through `directory`,
    /// and nothing else. No overlay may know `directory` meanwhile.
    ///
    /// # Errors
    /// There is no room for the mark.
    pub fn set_redirect(self, directory: impl AsFd, path: &[u8]) -> io::Result<()> {
        let directory = directory.as_fd();
        // Opaque, a directory shows nothing of lower layers, wherever it lies.
        if self.calls.value(directory, &self.opaque())?.is_some() {
            self.calls.remove(directory, &self.opaque())?;
        }
        self.calls.set(directory, &self.redirect_name(), path)
    }

    /// Ends the effect of an opaque mark on `directory` if it leads to `path`.
    pub(crate) fn reveal(self, directory: impl AsFd, path: &[u8]) -> Result<(), WorkspaceFault> {
        let directory = directory.as_fd();
        let leads_there = self.redirect(directory)?.is_some_and(|redirect| redirect == path);
        if leads_there && self.is_opaque(directory)? {
            self.clear_opaque(directory)?;
        }
        Ok(())
    }

    /// Ends the effect of [`LayerMarks::set_redirect`].
    pub(crate) fn clear_redirect(self, directory: impl AsFd) -> Result<(), WorkspaceFault> {
        self.calls.remove(directory.as_fd(), &self.redirect_name()).during("remove attribute")
    }

    /// Whether nothing shows through `directory` that lies below.
    pub(crate) fn is_opaque(self, directory: impl AsFd) -> Result<bool, WorkspaceFault> {
        let value = self.calls.value(directory.as_fd(), &self.opaque()).during("get attribute")?;
        Ok(value.is_some_and(|value| value == b"y"))
    }

    /// Lets nothing show through `directory` that lies below.
    pub(crate) fn set_opaque(self, directory: impl AsFd) -> Result<(), WorkspaceFault> {
        self.calls.set(directory.as_fd(), &self.opaque(), b"y").during("set attribute")
    }

    /// Ends the effect of [`LayerMarks::set_opaque`].
    pub(crate) fn clear_opaque(self, directory: impl AsFd) -> Result<(), WorkspaceFault> {
        self.calls.remove(directory.as_fd(), &self.opaque()).during("remove attribute")
    }

    /// Whether the attribute `name` is one that the owner of a file sets. Those of overlayfs, of security
    /// modules and of the host's root are none.
    fn is_users(self, name: &CStr) -> bool {
        let name = name.to_bytes();
        let is_kept = KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        is_kept && !name.starts_with(self.prefix.to_bytes())
    }

    /// Gives `target` the attributes that the owner of `source` has set, and no others of that kind.
    fn copy(self, source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), WorkspaceFault> {
        let names = |file| -> Result<Vec<CString>, WorkspaceFault> {
            let names = self.calls.names(file).during("list attributes")?;
            Ok(names.into_iter().filter(|name| self.is_users(name)).collect())
        };
        let wanted = names(source)?;
        for stale in names(target)?.iter().filter(|name| !wanted.contains(name)) {
            self.calls.remove(target, stale).during("remove attribute")?;
        }
        for name in &wanted {
            if let Some(value) = self.calls.value(source, name).during("get attribute")? {
                self.calls.set(target, name, &value).during("set attribute")?;
            }
        }
        Ok(())
    }

    /// Gives the finished copy `target` everything that `source`, with `status`, has but contents.
    pub(crate) fn settle(
        self,
        source: BorrowedFd<'_>,
        status: &EntryStatus,
        target: BorrowedFd<'_>,
    ) -> Result<(), WorkspaceFault> {
        fchown(target, Some(status.uid), Some(status.gid)).during("chown")?;
        // A change of owner clears bits of the mode.
        fchmod(target, status.mode).during("chmod")?;
        self.copy(source, target)?;
        status.restore_times(target)
    }
}

/// Gives the entry `name` of `parent`, which is a link or a special file, owner, mode and times of `stat`.
pub(crate) fn settle_unopened(
    parent: BorrowedFd<'_>,
    name: &CStr,
    stat: &FileStat,
) -> Result<(), WorkspaceFault> {
    let EntryStatus { uid, gid, mode, accessed, modified } = EntryStatus::of(stat);
    fchownat(parent, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW).during("chown")?;
    if status::file_type(stat) != SFlag::S_IFLNK {
        // mknodat applies the umask.
        fchmodat(parent, name, mode, FchmodatFlags::FollowSymlink).during("chmod")?;
    }
    utimensat(parent, name, &accessed, &modified, UtimensatFlags::NoFollowSymlink).during("utimens")
}

/// What [`LayerMarks::settle`] keeps of a status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryStatus {
    uid: Uid,
    gid: Gid,
    mode: Mode,
    accessed: TimeSpec,
    modified: TimeSpec,
}

impl EntryStatus {
    pub(crate) fn of(stat: &FileStat) -> Self {
        Self {
            uid: Uid::from_raw(stat.st_uid),
            gid: Gid::from_raw(stat.st_gid),
            mode: Mode::from_bits_truncate(stat.st_mode),
            accessed: TimeSpec::new(stat.st_atime, stat.st_atime_nsec),
            modified: TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec),
        }
    }

    /// Gives `file` these times.
    pub(crate) fn restore_times(&self, file: BorrowedFd<'_>) -> Result<(), WorkspaceFault> {
        futimens(file, &self.accessed, &self.modified).during("utimens")
    }
}
