//! Unpacks an archive of a task after it was judged.

use std::os::fd::BorrowedFd;

use super::error::StrictError;
use super::format::StrictArchive;
use super::judge::{StrictContents, each_entry, judge_strict};
use super::limits::{StrictLimits, StrictRule};
use crate::files::archive::unpack::write_entry;
use crate::files::error::FilesError;
use crate::files::location::{FileArea, FileLocation, PathRule};
use crate::files::resolve::WorkspaceRoot;
use crate::walk::stop_check::StopCheck;
use cofferdam_core::values::owner::Owner;
use cofferdam_core::weakened::{self, Wall};

/// Unpacks `archive` into the empty directory `target`, which no program can reach. Everything belongs to
/// `owner`; set-id bits are dropped, and hard links become copies. What macOS adds is left out.
///
/// # Errors
/// [`StrictError::Unsafe`] and [`StrictError::Malformed`] for the archive: nothing is written then.
/// [`StrictError::Host`] can leave whole files; it is [`FilesError::Stopped`] if `stop` ended it.
pub fn unpack_strict(
    archive: &StrictArchive,
    rule: StrictRule<'_>,
    target: BorrowedFd<'_>,
    owner: Owner,
    limits: StrictLimits,
    stop: StopCheck<'_>,
) -> Result<StrictContents, StrictError> {
    let unpacked = unpack_judged(archive, rule, (target, owner), limits, stop);
    // A stream that was stopped looks like a damaged one.
    if stop.is_set() {
        unpacked.map_err(|_| StrictError::Host(FilesError::Stopped))
    } else {
        unpacked
    }
}

fn unpack_judged(
    archive: &StrictArchive,
    rule: StrictRule<'_>,
    (target, owner): (BorrowedFd<'_>, Owner),
    limits: StrictLimits,
    stop: StopCheck<'_>,
) -> Result<StrictContents, StrictError> {
    let contents = match weakened::lacks(Wall::Archive) {
        true => StrictContents::default(),
        false => judge_strict(archive, rule, limits, stop)?,
    };
    let paths = PathRule::default();
    let root = WorkspaceRoot { directory: target, rule: &paths, owner };
    let top = FileLocation::top(FileArea::Whole);
    each_entry(archive, limits, stop, |entry, _, contents| {
        write_entry(&root, &top, entry, contents, limits.depth_max)
            .map_err(|error| StrictError::of_reader(error, &entry.path))
    })?;
    Ok(contents)
}
