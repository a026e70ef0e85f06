//! The directory whose content sandboxes show, opened once.
//!
//! A given root may belong to an attacker, who can replace directories by links at any moment. So no
//! path from the host's root is used: it is listed, looked up and mounted from this descriptor, and
//! no name in it is followed as a link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::fcntl::{AtFlags, OFlag, open, readlink, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstatat};

use crate::plan::rootfs::PathKind;
use crate::sys;

/// A root directory that stays the same even if its path leads elsewhere later.
#[derive(Debug)]
pub struct RootDirectory {
    directory: OwnedFd,
    path: PathBuf,
}

impl RootDirectory {
    /// Opens the directory that `path` leads to.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let path = readlink(&PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())))?;
        Ok(Self { directory, path: path.into() })
    }

    /// Its path at the time it was opened, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its entries with UTF-8 names, sorted, and the kind of each.
    pub fn entries(&self) -> io::Result<Vec<(String, PathKind)>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut entries = Vec::new();
        let mut listing = Dir::openat(&self.directory, ".", flags, Mode::empty())?;
        for entry in listing.iter() {
            let entry = entry?;
            // No toolchain needs a name that is not UTF-8.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            if let Some(kind) = self.kind_of(name, entry.file_type()) {
                entries.push((name.to_owned(), kind));
            }
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(entries)
    }

    /// Copies its mount and all mounts below it without attaching them. Later mounts on the host do
    /// not propagate to the copy, nor the reverse.
    pub fn detached(&self) -> io::Result<OwnedFd> {
        sys::detached_private_trees(self.as_fd())
    }

    /// The kind of the entry `name`, whose type the directory gives as `listed`; `None` if it is gone.
    fn kind_of(&self, name: &str, listed: Option<Type>) -> Option<PathKind> {
        Some(match listed.map_or_else(|| self.look_up(name), Some)? {
            Type::Symlink => {
                let target = readlinkat(&self.directory, name).ok()?;
                PathKind::Symlink(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
            }
            Type::Directory => PathKind::Directory,
            _ => PathKind::Other,
        })
    }

    /// The type of an entry in a file system whose directories do not give it.
    fn look_up(&self, name: &str) -> Option<Type> {
        let stat = fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        Some(match kind {
            SFlag::S_IFLNK => Type::Symlink,
            SFlag::S_IFDIR => Type::Directory,
            _ => Type::File,
        })
    }
}

impl AsFd for RootDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_root_stays_the_directory_that_was_opened() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("root");
        fs::create_dir_all(path.join("usr")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        symlink("usr/bin", path.join("bin")).unwrap();
        let root = RootDirectory::open(&path).unwrap();
        fs::rename(&path, parent.path().join("moved")).unwrap();
        symlink("/", &path).unwrap();
        let want = [
            ("bin".to_owned(), PathKind::Symlink("usr/bin".into())),
            ("file".to_owned(), PathKind::Other),
            ("usr".to_owned(), PathKind::Directory),
        ];
        assert_eq!(root.entries().unwrap(), want);
    }
}
