//! Reads files of a workspace: contents and status.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use nix::sys::stat::{FileStat, SFlag};

use super::error::{FilesError, OnPath};
use super::location::FileLocation;
use super::resolve::{ResolvedFile, WorkspaceRoot, link_text};
use crate::status;
use crate::walk::open_beneath;
use cofferdam_core::values::digest::{Digest, sha256_of};
use cofferdam_core::weakened::{self, Wall};

/// The longest file whose entity tag is made from its contents, bytes.
const TAG_CONTENT_BYTES_MAX: u64 = 1024 * 1024;
/// The digits of an entity tag.
const TAG_DIGITS: usize = 32;

/// The type of an entry of a directory, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A fifo, a socket or a device.
    Other,
}

impl EntryType {
    pub(super) fn of(stat: &FileStat) -> Self {
        match status::file_type(stat) {
            SFlag::S_IFREG => Self::File,
            SFlag::S_IFDIR => Self::Directory,
            SFlag::S_IFLNK => Self::Link,
            _ => Self::Other,
        }
    }

    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Link => "link",
            Self::Other => "other",
        }
    }
}

/// The status of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Where it is.
    pub location: FileLocation,
    /// The type.
    pub entry_type: EntryType,
    /// The size of a regular file's contents, or the length of a link's text; 0 for others.
    pub bytes: u64,
    /// The permissions, with the set-id bits and the sticky bit.
    pub mode: u32,
    /// The time of the last change of the contents.
    pub modified: SystemTime,
    /// The text of a link.
    pub target: Option<OsString>,
}

impl FileInfo {
    pub(super) fn new(location: FileLocation, stat: &FileStat, target: Option<OsString>) -> Self {
        let entry_type = EntryType::of(stat);
        let has_bytes = matches!(entry_type, EntryType::File | EntryType::Link);
        Self {
            location,
            entry_type,
            bytes: if has_bytes { size(stat) } else { 0 },
            mode: stat.st_mode & 0o7777,
            modified: modified(stat),
            target,
        }
    }

    /// The permissions as clients see them, such as `0644`.
    pub fn mode_text(&self) -> String {
        format!("{:04o}", self.mode)
    }
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct OpenedFile {
    /// The file.
    pub file: File,
    /// Its path without links.
    pub location: FileLocation,
    /// Its size when it was opened, bytes.
    pub bytes: u64,
    /// The time of the last change of the contents.
    pub modified: SystemTime,
    /// The permissions.
    pub mode: u32,
    /// A text that changes with the contents, without quotes.
    pub tag: String,
}

/// Opens the regular file at `location` for reading. Links are followed as in the sandbox.
///
/// # Errors
/// [`FilesError::NotFound`], [`FilesError::ThroughLink`] for a link that leads out of the workspace and `/tmp`, and
/// [`FilesError::NotRegular`] for anything but a regular file, which is not opened.
pub fn get(root: &WorkspaceRoot<'_>, location: &FileLocation) -> Result<OpenedFile, FilesError> {
    let found = root.find(location, true)?;
    let path = location.shown();
    let (file, location) = open_regular(found)?;
    let (file, stat) = file;
    let tag = tag(&file, &stat).on("read", &path)?;
    Ok(OpenedFile {
        file,
        location,
        bytes: size(&stat),
        modified: modified(&stat),
        mode: stat.st_mode & 0o7777,
        tag,
    })
}

/// Opens a file that was found for reading, if it is regular.
pub(super) fn open_regular(
    found: ResolvedFile,
) -> Result<((File, FileStat), FileLocation), FilesError> {
    let path = found.location.shown();
    if found.file_type() != SFlag::S_IFREG && !weakened::lacks(Wall::Regular) {
        return Err(FilesError::not_regular(&path));
    }
    let file = open_beneath::reopen_for_reading(found.file.as_fd()).on("open", &path)?;
    Ok(((File::from(file), found.stat), found.location))
}

/// The status of the entry at `location`. Links on the way are followed as in the sandbox, a last one is not.
///
/// # Errors
/// As [`get`], for a file of any type.
pub fn stat(root: &WorkspaceRoot<'_>, location: &FileLocation) -> Result<FileInfo, FilesError> {
    let found = root.find(location, false)?;
    let target = match found.file_type() {
        SFlag::S_IFLNK => Some(link_text(found.file.as_fd()).on("readlink", &location.shown())?),
        _ => None,
    };
    Ok(FileInfo::new(location.clone(), &found.stat, target))
}

pub(super) fn size(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn modified(stat: &FileStat) -> SystemTime {
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let part = Duration::from_nanos(u64::from(nanoseconds));
    let seconds = Duration::from_secs(stat.st_mtime.unsigned_abs());
    let time = if stat.st_mtime < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    time.and_then(|time| time.checked_add(part)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The entity tag. Writes through a mapping, and two writes within a tick of the clock, change no time, so a file of
/// moderate size is tagged by its contents.
fn tag(file: &File, stat: &FileStat) -> std::io::Result<String> {
    let size = size(stat);
    let mut digest = if size <= TAG_CONTENT_BYTES_MAX {
        let mut content = vec![0; usize::try_from(size).unwrap_or(0)];
        let count = read_at_most(file, &mut content)?;
        sha256_of(content.get(..count).unwrap_or_default())
    } else {
        let mut digest = Digest::default();
        let times = [stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec];
        for number in times {
            digest.update(&number.to_be_bytes());
        }
        digest.update(&stat.st_ino.to_be_bytes());
        digest.update(&size.to_be_bytes());
        digest.finish()
    };
    digest.truncate(TAG_DIGITS);
    Ok(digest)
}

/// Reads the beginning of `file` into `buffer`. Returns the number of bytes, fewer if the file ends before.
pub(super) fn read_at_most(file: &File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
