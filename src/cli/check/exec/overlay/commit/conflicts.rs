//! What was changed in a directory while a command ran on a view of it.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use nix::errno::Errno;

use super::part::{CommitPart, open_parent};
use super::plan::CommitPlan;
use crate::cli::check::exec::overlay::states::{NodeKind, state_of};
use crate::evaluation::patch::entry::{ancestors, join, names_in, split};
use cofferdam_tree::StopCheck;

/// The most conflicts that are named.
const CONFLICTS_MAX: usize = 100;

/// When conflicts are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictTime {
    BeforeStaging,
    /// Files that got a further name then were changed by that.
    AfterStaging,
}

/// The paths that `plan` changes and that were changed in the directory since it was looked at.
pub fn find_conflicts(
    part: &CommitPart<'_>,
    plan: &CommitPlan,
    time: ConflictTime,
) -> Result<Vec<Vec<u8>>, Errno> {
    let named = match time {
        ConflictTime::BeforeStaging => BTreeSet::new(),
        ConflictTime::AfterStaging => inodes_of(part, plan)?,
    };
    let removed = part.changes.removed_twice.iter();
    let mut found: Vec<_> = removed.filter(|path| part.seen.differs(path, None)).cloned().collect();
    for (path, difference) in &part.changes.paths {
        let is_named = difference.before.is_some_and(|before| named.contains(&before.identity.1));
        if plan.leaves_out(path) || is_named {
            continue;
        }
        if has_conflict(part, path)? {
            found.push(path.clone());
        }
        if difference.before.is_some_and(|before| before.kind == NodeKind::Directory) {
            found.extend(arrived_in(part, path)?);
        }
        if found.len() >= CONFLICTS_MAX {
            break;
        }
    }
    Ok(found)
}

/// The inodes of the files that got a further name.
fn inodes_of(part: &CommitPart<'_>, plan: &CommitPlan) -> Result<BTreeSet<u64>, Errno> {
    let mut inodes = BTreeSet::new();
    for path in plan.further_named() {
        let (parent, name) = split(path);
        let parent = open_parent(part.directory.as_fd(), parent)?;
        inodes.extend(state_of(parent.as_fd(), name)?.map(|state| state.identity.1));
    }
    Ok(inodes)
}

fn has_conflict(part: &CommitPart<'_>, path: &[u8]) -> Result<bool, Errno> {
    let (parent, name) = split(path);
    let now = match open_parent(part.directory.as_fd(), parent) {
        Ok(parent) => state_of(parent.as_fd(), name)?,
        // Another file system was mounted there.
        Err(Errno::EXDEV) => return Ok(true),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {
            // Unless the commit makes a directory above it, there is no place for the file.
            let is_made = |above: &[u8]| {
                let change = part.changes.paths.get(above).and_then(|change| change.after);
                change.is_some_and(|after| after.kind == NodeKind::Directory)
            };
            if !ancestors(path).any(is_made) {
                return Ok(true);
            }
            None
        }
        Err(errno) => return Err(errno),
    };
    Ok(part.seen.differs(path, now))
}

/// What came into the directory `path`, which is removed.
fn arrived_in(part: &CommitPart<'_>, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    let Ok(directory) = open_parent(part.directory.as_fd(), path) else { return Ok(Vec::new()) };
    let names = names_in(directory.as_fd(), StopCheck::never())?;
    let paths = names.iter().map(|name| join(path, name));
    Ok(paths.filter(|path| !part.changes.paths.contains_key(path)).collect())
}
