//! Snapshots: copies the selected part of a source directory and returns its digest.

mod copy;
#[cfg(test)]
mod generated_tests;
mod manifest;
mod rules;
pub mod saved;
mod selection;
#[cfg(test)]
mod stopped_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vanishing_tests;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{SFlag, fstat, fstatat};

use self::copy::SnapshotCopy;
use self::selection::{Selection, SnapshotStep};
use super::error::{During, WorkspaceError};
use super::source::SourceDir;
use super::status;
use crate::copy::attributes::Attributes;
use crate::walk::stop_check::StopCheck;
use cofferdam_core::job::ExcludedGroup;
use cofferdam_core::values::owner::Owner;

pub use self::rules::{SnapshotLimits, SnapshotRules};

/// The page size to which tmpfs rounds up a file's contents.
const PAGE_BYTES: u64 = 4096;

/// The space that a snapshot needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Survey {
    /// Bytes. Each file and link is rounded up to pages of 4 KiB.
    pub room_bytes: u64,
    /// Files, directories and links.
    pub room_inodes: u64,
}

/// The contents of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotContents {
    /// Regular files and links.
    pub files: u64,
    /// Size of the regular files, including holes, bytes.
    pub bytes: u64,
    /// The number of visited entries that were left out, by rule. The contents of a skipped directory
    /// are not visited. A directory searched without a match counts in addition to its contents.
    pub excluded: BTreeMap<ExcludedGroup, u64>,
    /// SHA-256 of everything copied, 64 hexadecimal digits. It covers each entry's type, execute
    /// permissions, path, and contents or link text, in the order of the walk: sorted by the bytes of
    /// the names in each directory, a directory before its contents. It does not cover times and
    /// owners.
    pub digest: String,
}

/// Computes the size of a snapshot of `source` without opening files.
///
/// # Errors
/// The first entry that could not be read, the limit that was exceeded, or
/// [`WorkspaceError::Stopped`]. Entries that disappear meanwhile are not errors.
pub fn survey(
    source: &SourceDir,
    rules: &SnapshotRules,
    limits: &SnapshotLimits,
    stop: StopCheck<'_>,
) -> Result<Survey, WorkspaceError> {
    let mut selection = select(source, (rules, limits), stop)?;
    let mut survey = Survey::default();
    while let Some(step) = selection.advance()? {
        survey.take(&mut selection, &step)?;
    }
    Ok(survey)
}

/// Copies the entries of the directory `source` that `rules` select to the directory `target`, which
/// must be empty and not yet accessible to others. `target` gets the mode and time of `source`, and
/// everything belongs to `owner`.
///
/// Files and directories keep their permission bits, without setuid, setgid and sticky; the owner
/// of a directory can always read, write and search it. Modification times are kept, holes stay
/// holes, and hard links become separate files. Links are copied as text if they cannot lead out of
/// the copy: absolute links, links that go up beyond the copy, and links that go up after they went
/// down are left out, as are fifos, sockets, devices and mount points. The source is only read.
///
/// The source may change meanwhile. An entry that has disappeared counts as never present; an entry
/// that has changed its type is left out and counted as special.
///
/// # Errors
/// The first operation that failed or limit that was exceeded, or `ESTALE` for a file that shrank
/// while it was read. `target` then holds a part.
pub fn take_snapshot(
    source: &SourceDir,
    rules: &SnapshotRules,
    limits: &SnapshotLimits,
    stop: StopCheck<'_>,
    (target, owner): (BorrowedFd<'_>, Owner),
) -> Result<SnapshotContents, WorkspaceError> {
    let root_stat = fstat(source).during("stat").map_err(|fault| fault.at(source.asked()))?;
    let mut selection = select(source, (rules, limits), stop)?;
    let mut copy = SnapshotCopy::new(target, owner);
    while let Some(step) = selection.advance()? {
        copy.take(&mut selection, &step)?;
    }
    let attributes = Attributes::of_directory(&root_stat);
    attributes.settle(target, owner).map_err(|fault| fault.at("."))?;
    let digest = copy.finish();
    let (files, bytes) = selection.counted();
    Ok(SnapshotContents { files, bytes, excluded: selection.into_excluded(), digest })
}

fn select<'a>(
    source: &'a SourceDir,
    (rules, limits): (&'a SnapshotRules, &SnapshotLimits),
    stop: StopCheck<'a>,
) -> Result<Selection<'a>, WorkspaceError> {
    Selection::over(source.as_fd(), rules, limits, stop)
        .during("list")
        .map_err(|fault| fault.at(source.asked()))
}

impl Survey {
    fn take(
        &mut self,
        selection: &mut Selection<'_>,
        step: &SnapshotStep,
    ) -> Result<(), WorkspaceError> {
        let counted = match step {
            SnapshotStep::Leave => return Ok(()),
            SnapshotStep::Directory { .. } => Ok(0),
            SnapshotStep::Link { .. } => selection.count_file(0).map(|()| PAGE_BYTES),
            SnapshotStep::File { name } => {
                let no_follow = AtFlags::AT_SYMLINK_NOFOLLOW;
                match fstatat(selection.directory(), name.as_c_str(), no_follow) {
                    // It disappeared after it was listed.
                    Err(Errno::ENOENT) => return Ok(()),
                    Ok(stat) if status::file_type(&stat) != SFlag::S_IFREG => return Ok(()),
                    Ok(stat) => {
                        let bytes = u64::try_from(stat.st_size).unwrap_or(0);
                        let room = bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
                        selection.count_file(bytes).map(|()| room)
                    }
                    Err(errno) => Err(errno).during("stat"),
                }
            }
        };
        let room = counted.map_err(|fault| fault.at(selection.path_of(step)))?;
        self.room_bytes = self.room_bytes.saturating_add(room);
        self.room_inodes += 1;
        Ok(())
    }
}
