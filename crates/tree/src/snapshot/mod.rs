//! Copies what a job asks for of a source directory, by rules, and tells what that was.

mod copy;
#[cfg(test)]
mod generated_tests;
mod manifest;
mod rules;
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

pub use self::rules::SnapshotRules;

/// What a file's contents are rounded up to where workspaces lie.
const PAGE_BYTES: u64 = 4096;

/// How much a snapshot may hold. Its depth and what is looked through for it have bounds of their
/// own, the same for every snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Regular files and links together; and as many directories.
    pub files_max: u64,
    /// The sizes of the regular files together, holes included.
    pub bytes_max: u64,
}

/// How much room a snapshot will take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Survey {
    /// Bytes, every file and link rounded up to whole pages of 4 KiB.
    pub room_bytes: u64,
    /// Files, directories and links.
    pub room_inodes: u64,
}

/// What a snapshot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotContents {
    /// Regular files and links.
    pub files: u64,
    /// The sizes of the regular files, holes included.
    pub bytes: u64,
    /// Entries that were seen and left out, by the rule that did it. What is in a directory that is
    /// passed over is not seen; a directory that was looked through in vain counts beside what
    /// was in it.
    pub excluded: BTreeMap<ExcludedGroup, u64>,
    /// SHA-256 over everything copied, 64 hexadecimal digits: of each entry, in the order of the
    /// walk (by the bytes of the names in every directory, a directory before what is in it), its
    /// type, who may execute it, its path and its contents or text. Times and owners have no part
    /// in it.
    pub digest: String,
}

/// Looks at what a snapshot of `source` would hold, without opening a file.
///
/// # Errors
/// The first entry that could not be looked at, the limit that was crossed, or that nobody
/// wanted it any more. What vanishes meanwhile is no error.
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

/// Copies what `rules` take of the directory `source` into the directory `target`, which must be
/// empty and nobody else's yet; `target` itself takes the mode and time of `source`. Everything
/// ends owned by `owner`.
///
/// Regular files keep their permission bits, without setuid, setgid and sticky; directories too,
/// and their owner may always read, write and search them. Modification times are kept, holes
/// stay holes, a file with several names becomes several files. A link is copied as text, and
/// only one that cannot lead out of the copy: not one that begins at the top, goes up beyond the
/// copy, or goes up again after it went down. Fifos, sockets, devices and mount points are left
/// out. The source is only read.
///
/// Others may change the source meanwhile. An entry that is gone when its turn comes is treated as
/// one that was never there; one that has become something else is left out and counted as special.
///
/// # Errors
/// The first operation that failed or limit that was crossed, and `ESTALE` for a file that was
/// cut while it was read; `target` then holds a part.
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
                    // Gone since it was listed.
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
