//! Lists directories of a workspace in pages.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::readlinkat;

use super::error::{FilesError, OnPath};
use super::location::FileLocation;
use super::read::{EntryType, FileInfo};
use super::resolve::WorkspaceRoot;
use crate::walk::ordered::{OrderedEntry, OrderedRange, OrderedWalk};

/// The part of a directory that is listed.
#[derive(Debug, Clone, Copy)]
pub struct ListRange<'a> {
    /// Levels of directories; 1 is the entries of the directory itself.
    pub depth: usize,
    /// The most entries.
    pub entries_max: usize,
    /// Where the page begins: the [`DirectoryPage::next`] of the one before.
    pub after: Option<&'a [u8]>,
}

/// A page of a listing, sorted by the bytes of the paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryPage {
    /// The entries. Their locations are below the one that was listed, links resolved.
    pub entries: Vec<FileInfo>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// Lists the directory at `location`, links followed as in the sandbox. Links in it are not followed.
///
/// # Errors
/// [`FilesError::NotRegular`] if it is no directory, and those of finding it.
pub fn list(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    range: ListRange<'_>,
) -> Result<DirectoryPage, FilesError> {
    let (directory, location) = root.find(location, true)?.into_directory()?;
    let path = location.shown();
    let ordered = OrderedRange {
        depth_max: range.depth.max(1),
        entries_max: range.entries_max.saturating_add(1),
        after: range.after.unwrap_or_default().to_vec(),
    };
    let mut walk = OrderedWalk::over(directory.as_fd(), ordered).on("list", &path)?;
    let mut page = DirectoryPage { entries: Vec::new(), next: None };
    let mut last = Vec::new();
    while let Some(entry) = walk.advance().on("list", &path)? {
        let below = walk.path_of(&entry.name);
        if page.entries.len() == range.entries_max {
            page.next = Some(last);
            break;
        }
        let at = location.join(Path::new(OsStr::from_bytes(&below)));
        page.entries.extend(info(&walk, &entry, at)?);
        last = below;
    }
    Ok(page)
}

/// The status of `entry`; `None` if it has disappeared.
fn info(
    walk: &OrderedWalk<'_>,
    entry: &OrderedEntry,
    location: FileLocation,
) -> Result<Option<FileInfo>, FilesError> {
    let path = location.shown();
    let Some(stat) = walk.stat(entry).on("stat", &path)? else { return Ok(None) };
    let target = match EntryType::of(&stat) {
        EntryType::Link => readlinkat(walk.directory(), entry.name.as_c_str()).ok(),
        _ => None,
    };
    Ok(Some(FileInfo::new(location, &stat, target)))
}
