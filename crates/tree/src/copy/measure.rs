//! How much space a copy of a whole tree needs.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;

use crate::error::{During, WorkspaceError, WorkspaceFault};
use crate::snapshot::Survey;
use crate::walk::budget::{TreeBudget, TreeLimits};
use crate::walk::stop_check::StopCheck;
use crate::walk::{FileKind, TreeWalk, WalkEvent, as_path};

/// The unit in which a file system in memory gives space.
const PAGE_BYTES: u64 = 4096;

/// Computes the space that a copy of everything in `source` needs, `.git` included, without opening files. Holes
/// count as if they were filled.
///
/// # Errors
/// The first entry that could not be read, the limit that was exceeded, or [`WorkspaceError::Stopped`].
pub fn measure_tree(
    source: BorrowedFd<'_>,
    limits: &TreeLimits,
    stop: StopCheck<'_>,
) -> Result<Survey, WorkspaceError> {
    let walk = TreeWalk::to_choose(source, limits.entries_max).during("list");
    let mut walk = walk.map_err(|fault| fault.at("."))?;
    let (mut budget, mut measured) = (TreeBudget::new(*limits), Survey::default());
    while let Some(event) = walk.advance()? {
        let counted = match &event {
            WalkEvent::Leave { .. } => continue,
            WalkEvent::Enter { .. } | WalkEvent::Unopened { .. } => Ok(0),
            WalkEvent::Entry { kind: FileKind::Special, .. } => Ok(0),
            WalkEvent::Entry { kind: FileKind::Symlink, .. } => Ok(PAGE_BYTES),
            WalkEvent::Entry { kind: FileKind::Regular, .. } => room_of(&walk, &event, &mut budget),
        };
        let room = counted.and_then(|room| {
            stop.check()?;
            budget.take_entry(walk.depth())?;
            Ok(room)
        });
        let room = room.map_err(|fault| fault.at(walk.path().join(as_path(event.name()))))?;
        measured.room_bytes = measured.room_bytes.saturating_add(room);
        measured.room_inodes += 1;
    }
    Ok(measured)
}

/// The bytes of the regular file of `event`, in whole pages.
fn room_of(
    walk: &TreeWalk<'_>,
    event: &WalkEvent,
    budget: &mut TreeBudget,
) -> Result<u64, WorkspaceFault> {
    let stat = fstatat(walk.directory(), event.name(), AtFlags::AT_SYMLINK_NOFOLLOW);
    let bytes = match stat {
        Ok(stat) => u64::try_from(stat.st_size).unwrap_or(0),
        // It disappeared after it was listed.
        Err(Errno::ENOENT) => 0,
        Err(errno) => return Err(errno).during("stat"),
    };
    budget.take_bytes(bytes)?;
    Ok(bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::walk::budget::TreeLimit;

    #[test]
    fn everything_counts_in_whole_pages_up_to_the_limits() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join(".git")).unwrap();
        fs::write(place.path().join(".git/config"), "x").unwrap();
        fs::write(place.path().join(".env"), vec![0; 4097]).unwrap();
        symlink("/elsewhere", place.path().join("link")).unwrap();
        let source = File::open(place.path()).unwrap();
        let measure =
            |limits: TreeLimits| measure_tree(source.as_fd(), &limits, StopCheck::never());
        let whole = measure(TreeLimits::default()).unwrap();
        assert_eq!(whole, Survey { room_bytes: 4 * PAGE_BYTES, room_inodes: 4 });
        for (limits, limit) in [
            (
                TreeLimits { bytes_max: 4097, ..TreeLimits::default() },
                TreeLimit::Bytes { max: 4097 },
            ),
            (TreeLimits { entries_max: 3, ..TreeLimits::default() }, TreeLimit::Entries { max: 3 }),
        ] {
            let refused = measure(limits).unwrap_err();
            assert!(
                matches!(&refused, WorkspaceError::TooLarge { source, .. } if *source == limit),
                "{refused}"
            );
        }
    }
}
