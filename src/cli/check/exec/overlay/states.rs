//! What is at a path, and what was at each path before a command began.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, fstatat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::evaluation::patch::entry::{join, names_in, open_directory};
use cofferdam_core::SetupFailure;
use cofferdam_tree::StopCheck;

/// Entries of a directory whose states are kept.
const ENTRIES_MAX: usize = 2_000_000;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    #[default]
    File,
    Directory,
    Link,
    Fifo,
    Socket,
    Device,
}

impl NodeKind {
    /// As it is written in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Link => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
        }
    }
}

/// The status of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeState {
    pub kind: NodeKind,
    /// The permission bits, with set-id bits and the sticky bit.
    pub mode: u32,
    pub bytes: u64,
    /// The number of a device.
    pub number: u64,
    pub owner: (u32, u32),
    /// Whether the same file has further names.
    pub has_other_names: bool,
    pub identity: (u64, u64),
    /// Seconds and nanoseconds.
    pub modified: (i64, i64),
    pub changed: (i64, i64),
}

impl NodeState {
    fn of(status: &FileStat) -> Self {
        const TYPE_BITS: u32 = 0o170_000;
        let kind = match SFlag::from_bits_truncate(status.st_mode & TYPE_BITS) {
            SFlag::S_IFDIR => NodeKind::Directory,
            SFlag::S_IFREG => NodeKind::File,
            SFlag::S_IFLNK => NodeKind::Link,
            SFlag::S_IFIFO => NodeKind::Fifo,
            SFlag::S_IFSOCK => NodeKind::Socket,
            _ => NodeKind::Device,
        };
        Self {
            kind,
            mode: status.st_mode & 0o7777,
            bytes: u64::try_from(status.st_size).unwrap_or(0),
            number: status.st_rdev,
            owner: (status.st_uid, status.st_gid),
            has_other_names: status.st_nlink > 1,
            identity: (status.st_dev, status.st_ino),
            modified: (status.st_mtime, status.st_mtime_nsec),
            changed: (status.st_ctime, status.st_ctime_nsec),
        }
    }
}

/// The status of `name` in `directory`; `None` if there is nothing.
///
/// # Errors
/// As fstatat.
pub fn state_of(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<NodeState>, Errno> {
    match fstatat(directory, OsStr::from_bytes(name), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(status) => Ok(Some(NodeState::of(&status))),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// What a later change of an entry would change too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenState {
    kind: NodeKind,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl From<NodeState> for SeenState {
    fn from(state: NodeState) -> Self {
        // The size of a directory may change when it is looked at.
        let bytes = if state.kind == NodeKind::Directory { 0 } else { state.bytes };
        Self { kind: state.kind, inode: state.identity.1, bytes, changed: state.changed }
    }
}

/// All entries of a directory before a command began.
#[derive(Debug, Default)]
pub struct SeenTree {
    /// By the beginning of the SHA-256 of the path.
    entries: HashMap<[u8; 16], SeenState>,
}

impl SeenTree {
    /// Looks at everything beneath `root`.
    ///
    /// # Errors
    /// It cannot be read, has too many entries, or `stop` ended it.
    pub fn look(root: BorrowedFd<'_>, stop: StopCheck<'_>) -> Result<Self, SetupFailure> {
        let failed = |errno: Errno| SetupFailure::from_errno("look at the directory", errno as i32);
        let mut seen = Self::default();
        let mut pending = vec![Vec::new()];
        while let Some(path) = pending.pop() {
            let directory = match open_directory(root, &path) {
                // It was removed meanwhile, or is too deep to be named.
                Err(Errno::ENOENT | Errno::ENAMETOOLONG) => continue,
                opened => opened.map_err(failed)?,
            };
            for name in names_in(directory.as_fd(), stop).map_err(failed)? {
                let Some(state) = state_of(directory.as_fd(), &name).map_err(failed)? else {
                    continue;
                };
                let here = join(&path, &name);
                seen.entries.insert(key(&here), state.into());
                if state.kind == NodeKind::Directory {
                    pending.push(here);
                }
            }
            if seen.entries.len() > ENTRIES_MAX {
                let words =
                    format!("it has more than {ENTRIES_MAX} entries; --dry-run needs no look");
                return Err(SetupFailure::from_words("look at the directory", words));
            }
        }
        Ok(seen)
    }

    /// Whether `path` has changed, if `now` is its state.
    pub fn differs(&self, path: &[u8], now: Option<NodeState>) -> bool {
        self.entries.get(&key(path)).copied() != now.map(SeenState::from)
    }
}

fn key(path: &[u8]) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(path).into();
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    key
}
