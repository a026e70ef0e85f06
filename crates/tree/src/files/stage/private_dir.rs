//! A directory that is filled where no program can reach its contents, and then takes its place.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, RenameFlags, renameat, renameat2};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::files::error::{FilesError, OnPath};
use crate::files::resolve::ParentDir;
use crate::files::stage::copy::service_owner;
use crate::files::write::with_temp_name;
use crate::remove::remove_tree;
use crate::walk::open_beneath;

/// What happens to an entry that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupied {
    /// It stays: [`FilesError::Exists`].
    Refuse,
    /// A file, a link or an empty directory is replaced.
    Rename,
    /// It is removed with everything in it.
    Remove,
}

/// A new directory under a temporary name beside its place. It belongs to the service with mode 0700 until it is
/// complete, so programs can rename it, but not enter it. It is removed unless it is installed.
#[derive(Debug)]
pub(crate) struct PrivateDir<'dir> {
    parent: &'dir ParentDir,
    name: String,
    directory: Flock<OwnedFd>,
    is_installed: bool,
}

impl<'dir> PrivateDir<'dir> {
    pub(crate) fn create(parent: &'dir ParentDir) -> Result<Self, FilesError> {
        parent.check_writable()?;
        let path = &parent.path;
        let make = |name: &str| mkdirat(&parent.directory, name, Mode::S_IRWXU);
        let ((), name) = with_temp_name(make).on("mkdir", path)?;
        let directory = adopt(parent.directory.as_fd(), &name).on("open", path)?;
        Ok(Self { parent, name, directory, is_installed: false })
    }

    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Leaves the directory under its temporary name, which is returned.
    pub(crate) fn keep(mut self) -> String {
        self.is_installed = true;
        std::mem::take(&mut self.name)
    }

    /// Gives the directory its name.
    pub(crate) fn install(mut self, occupied: Occupied) -> Result<(), FilesError> {
        replace(self.parent, &self.name, occupied)?;
        self.is_installed = true;
        Ok(())
    }
}

impl Drop for PrivateDir<'_> {
    fn drop(&mut self) {
        if !self.is_installed {
            // A directory that cannot be removed counts against the workspace's limit.
            let _ = remove_tree(self.parent.directory.as_fd(), OsStr::new(&self.name));
        }
    }
}

/// Opens the directory `name` that was just made. A program may have put another one in its place, which is refused
/// with `ESTALE`: a directory of the program, a read-only tree, or a directory that another thread fills, which holds the lock.
fn adopt(parent: BorrowedFd<'_>, name: &str) -> Result<Flock<OwnedFd>, Errno> {
    let opened = open_beneath::open_directory(parent, name)?;
    let stat = fstat(&opened)?;
    let is_private = stat.st_mode & 0o7777 == Mode::S_IRWXU.bits();
    if stat.st_uid != service_owner().uid || !is_private {
        return Err(Errno::ESTALE);
    }
    Flock::lock(opened, FlockArg::LockExclusiveNonblock).map_err(|_| Errno::ESTALE)
}

/// Renames the entry `temp` of `parent` to its place.
pub(crate) fn replace(
    parent: &ParentDir,
    temp: &str,
    occupied: Occupied,
) -> Result<(), FilesError> {
    parent.check_writable()?;
    let (directory, name, path) = (&parent.directory, parent.name.as_os_str(), &parent.path);
    let rename = |flags| renameat2(directory, temp, directory, name, flags);
    match (rename(RenameFlags::RENAME_NOREPLACE), occupied) {
        (Err(Errno::EEXIST), Occupied::Rename) => {
            renameat(directory, temp, directory, name).on("rename", path)
        }
        (Err(Errno::EEXIST), Occupied::Remove) => {
            match rename(RenameFlags::RENAME_EXCHANGE) {
                Ok(()) => remove_entry(parent, OsStr::new(temp)),
                // An overlay cannot exchange a directory of a lower layer.
                Err(Errno::EXDEV | Errno::EINVAL) => {
                    remove_entry(parent, name)?;
                    rename(RenameFlags::RENAME_NOREPLACE).on("rename", path)
                }
                Err(errno) => Err(errno).on("exchange", path),
            }
        }
        (renamed, _) => renamed.on("rename", path),
    }
}

/// Removes the entry `name` of `parent`, read-only trees too.
pub(crate) fn remove_entry(parent: &ParentDir, name: &OsStr) -> Result<(), FilesError> {
    match unlinkat(&parent.directory, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => {}
        Err(Errno::ENOENT) => return Ok(()),
        removed => return removed.on("unlink", &parent.path),
    }
    let removal = remove_tree(parent.directory.as_fd(), name)?;
    match removal.left {
        0 => Ok(()),
        _ => Err(Errno::ENOTEMPTY).on("remove", &parent.path),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;
    use crate::testing::{TENANT, chmod, directory};

    #[test]
    fn only_a_private_directory_of_no_one_else_is_adopted() {
        let place = tempfile::tempdir().unwrap();
        let parent = directory(place.path());
        for (name, uid, mode) in [
            ("private", 0, 0o700),
            ("program", TENANT.uid, 0o700),
            ("read-only", 0, 0o555),
            ("made", 0, 0o1_700),
            ("open", 0, 0o755),
        ] {
            fs::create_dir(place.path().join(name)).unwrap();
            chown(place.path().join(name), Some(uid), None).unwrap();
            chmod(&place.path().join(name), mode);
        }
        symlink("private", place.path().join("link")).unwrap();
        let adopt = |name: &str| adopt(parent.as_fd(), name);
        for name in ["program", "read-only", "made", "open"] {
            assert_eq!(adopt(name).unwrap_err(), Errno::ESTALE, "{name}");
        }
        assert!(adopt("link").is_err());
        let first = adopt("private").unwrap();
        assert_eq!(adopt("private").unwrap_err(), Errno::ESTALE, "another thread fills it");
        drop(first);
        assert!(adopt("private").is_ok());
    }
}
