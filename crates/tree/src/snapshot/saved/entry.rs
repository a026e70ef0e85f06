//! What a manifest says of one entry.

use nix::sys::stat::FileStat;

/// The most bytes of one extent.
pub const EXTENT_BYTES_MAX: usize = 1 << 20;

/// The SHA-256 of an extent.
pub type ExtentDigest = [u8; 32];

/// A piece of a file without holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length, at most [`EXTENT_BYTES_MAX`].
    pub bytes: u32,
    /// Its digest.
    pub digest: ExtentDigest,
}

/// One entry of a saved tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedEntry {
    /// Its path below the root, parts separated by `/`.
    pub path: Vec<u8>,
    pub(super) owner: EntryOwner,
    pub(super) mode: u16,
    pub(super) modified: EntryTime,
    pub(super) kind: EntryKind,
}

/// Who owns an entry. No other owner can make one in a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryOwner {
    Tenant,
    Root,
}

/// Seconds since 1970, and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryTime {
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryKind {
    Directory,
    File(SavedFile),
    /// Another name of the file of that group, whose first name comes before.
    HardLink {
        group: u64,
    },
    SymbolicLink {
        target: Vec<u8>,
    },
    Fifo,
}

/// A regular file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SavedFile {
    pub(super) bytes: u64,
    /// Of the file and its other names; 0 if it has none.
    pub(super) group: u64,
    pub(super) state: FileState,
    /// In order; between them are holes.
    pub(super) extents: Vec<Extent>,
}

/// A file with the same state as before has the same contents. Only comparable within one life of its
/// file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FileState {
    /// 0 if a later change might leave the same state.
    pub(super) inode: u64,
    pub(super) changed: EntryTime,
}

impl SavedEntry {
    /// The extents of its contents.
    pub fn extents(&self) -> &[Extent] {
        match &self.kind {
            EntryKind::File(file) => &file.extents,
            _ => &[],
        }
    }
}

impl EntryTime {
    pub(super) fn new(seconds: i64, nanoseconds: i64) -> Self {
        Self { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or_default() }
    }

    pub(super) fn modified(stat: &FileStat) -> Self {
        Self::new(stat.st_mtime, stat.st_mtime_nsec)
    }

    pub(super) fn changed(stat: &FileStat) -> Self {
        Self::new(stat.st_ctime, stat.st_ctime_nsec)
    }
}
