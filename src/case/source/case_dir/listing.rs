//! The entries of a Case's directory. No link is followed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstatat};

use super::error::{CaseDirError, CaseDirLimits};
use crate::case::source::left_out::is_left_out;
use cofferdam_tree::StopCheck;

const EXECUTABLE: u32 = 0o100;

/// A file of its file system, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileIdentity {
    /// The number of the file system.
    pub device: u64,
    /// The number of the file in it.
    pub inode: u64,
}

/// An entry of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// Which file it is.
    pub identity: FileIdentity,
    /// What it is.
    pub kind: ListedKind,
}

/// What an entry is. Others, such as fifos, are not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Whether its owner may execute it.
        is_executable: bool,
    },
    /// A symbolic link.
    Link {
        /// Its text.
        target: PathBuf,
    },
}

/// The entries of a directory by their paths, each directory before its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseListing(BTreeMap<PathBuf, ListedEntry>);

impl FileIdentity {
    /// That of the file with this status.
    pub fn of(stat: &FileStat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

impl CaseListing {
    /// The listing of these entries.
    pub fn of(entries: impl IntoIterator<Item = (PathBuf, ListedEntry)>) -> Self {
        Self(entries.into_iter().collect())
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = (&Path, &ListedEntry)> {
        self.0.iter().map(|(path, entry)| (path.as_path(), entry))
    }

    /// The entry at `path`.
    pub fn get(&self, path: &Path) -> Option<&ListedEntry> {
        self.0.get(path)
    }

    /// Lists the directory `root` without what no copy has, and without the directories `without`.
    pub(super) fn read(
        root: BorrowedFd<'_>,
        without: &[FileIdentity],
        limits: &CaseDirLimits,
        stop: StopCheck<'_>,
    ) -> Result<Self, CaseDirError> {
        let (mut listed, mut pending) = (Self::default(), vec![PathBuf::new()]);
        while let Some(path) = pending.pop() {
            let failed = |errno: Errno| CaseDirError::of(&path, errno);
            let directory = open_inside(root, &path, OFlag::O_DIRECTORY).map_err(failed)?;
            for name in names(&directory).map_err(failed)? {
                if stop.is_set() {
                    return Err(CaseDirError::Stopped);
                }
                if is_left_out(name.as_bytes()) {
                    continue;
                }
                let below = path.join(&name);
                let entry = entry(directory.as_fd(), &name);
                let entry = entry.map_err(|errno| CaseDirError::of(&below, errno))?;
                let Some(entry) = entry.filter(|entry| !without.contains(&entry.identity)) else {
                    continue;
                };
                if listed.0.len() >= limits.entries_max {
                    return Err(CaseDirError::TooMany { entries_max: limits.entries_max });
                }
                if entry.kind == ListedKind::Directory {
                    pending.push(below.clone());
                }
                listed.0.insert(below, entry);
            }
        }
        Ok(listed)
    }
}

/// Opens `path` below `root`, for reading, through no link.
pub(super) fn open_inside(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlag,
) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(root, path, OpenHow::new().flags(flags).resolve(resolve))
}

/// The names in `directory`.
fn names(directory: &OwnedFd) -> Result<Vec<std::ffi::OsString>, Errno> {
    let mut open = Dir::from_fd(directory.try_clone().map_err(|_| Errno::EMFILE)?)?;
    let mut names = Vec::new();
    for entry in open.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

fn entry(directory: BorrowedFd<'_>, name: &OsStr) -> Result<Option<ListedEntry>, Errno> {
    let stat = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        // It has vanished.
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let kind = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFDIR => ListedKind::Directory,
        SFlag::S_IFREG => ListedKind::File { is_executable: stat.st_mode & EXECUTABLE != 0 },
        SFlag::S_IFLNK => ListedKind::Link { target: readlinkat(directory, name)?.into() },
        _ => return Ok(None),
    };
    Ok(Some(ListedEntry { identity: FileIdentity::of(&stat), kind }))
}
