//! Removes a directory tree that a tenant may have prepared.

use std::ffi::{CString, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::error::{WorkspaceError, WorkspaceFault};
use super::walk::stop_check::StopCheck;
use super::walk::{TreeWalk, WalkEvent};
use cofferdam_core::values::owner::Owner;

/// The result of a removal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use = "a removal that leaves entries is not an error"]
pub struct Removal {
    /// The number of removed entries.
    pub removed: u64,
    /// The number of entries that could not be removed: mount points, immutable files, files of other
    /// users, and the directories that contain them.
    pub left: u64,
}

/// Removes the entry `name` of `parent` and, if it is a directory, everything in it. Links are
/// removed but not followed, mounts are not entered, and directories that the owner cannot read
/// are made readable first. A missing entry is not an error.
///
/// # Errors
/// `name` is not a single name (`EINVAL`), or the tree was moved meanwhile.
pub fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Removal, WorkspaceError> {
    remove_tree_until(parent, name, StopCheck::never())
}

/// As [`remove_tree`], unless `stop` ends it, which leaves a part.
///
/// # Errors
/// As [`remove_tree`], and [`WorkspaceError::Stopped`].
pub fn remove_tree_until(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    stop: StopCheck<'_>,
) -> Result<Removal, WorkspaceError> {
    remove_passes(name, stop, |name| TreeWalk::to_remove(parent, name))
}

/// As [`remove_tree`], but leaves the read-only trees of a workspace of `owner`.
pub(crate) fn remove_writable(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    owner: Owner,
) -> Result<Removal, WorkspaceError> {
    remove_passes(name, StopCheck::never(), |name| {
        TreeWalk::to_remove_writable(parent, name, owner)
    })
}

fn remove_passes<'root>(
    name: &OsStr,
    stop: StopCheck<'_>,
    walk: impl Fn(CString) -> TreeWalk<'root>,
) -> Result<Removal, WorkspaceError> {
    let invalid = || WorkspaceFault::System { operation: "remove", errno: Errno::EINVAL }.at(name);
    if matches!(name.as_bytes(), b"" | b"." | b"..") || name.as_bytes().contains(&b'/') {
        return Err(invalid());
    }
    let name = CString::new(name.as_bytes()).map_err(|_| invalid())?;
    let mut removed = 0;
    loop {
        let mut walk = walk(name.clone());
        let pass = remove_visited(&mut walk, stop)?;
        removed += pass.removed;
        // A directory with more names than a walk holds takes several passes. A pass without progress
        // is the last.
        if !walk.truncated() || pass.removed == 0 {
            return Ok(Removal { removed, left: pass.left });
        }
    }
}

fn remove_visited(walk: &mut TreeWalk<'_>, stop: StopCheck<'_>) -> Result<Removal, WorkspaceError> {
    let mut total = Removal::default();
    while let Some(event) = walk.advance()? {
        stop.check().map_err(|fault| fault.at(walk.path()))?;
        let outcome = match &event {
            WalkEvent::Enter { .. } => continue,
            WalkEvent::Unopened { errno, .. } => Err(*errno),
            WalkEvent::Entry { name, .. } => {
                unlinkat(walk.directory(), name.as_c_str(), UnlinkatFlags::NoRemoveDir)
            }
            WalkEvent::Leave { name } => {
                unlinkat(walk.directory(), name.as_c_str(), UnlinkatFlags::RemoveDir)
            }
        };
        match outcome {
            Ok(()) => total.removed += 1,
            Err(Errno::ENOENT) => {}
            Err(_) => total.left += 1,
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::path::Path;

    use tempfile::tempdir;

    use super::*;
    use crate::testing::{
        OwnProcess, chmod, directory, in_own_mounts, in_own_process, mount_tmpfs,
    };

    fn remove(parent: &Path, name: &str) -> Result<Removal, WorkspaceError> {
        remove_tree(directory(parent).as_fd(), OsStr::new(name))
    }

    #[test]
    fn nothing_by_that_name_is_a_success() {
        let place = tempdir().unwrap();
        assert_eq!(remove(place.path(), "absent"), Ok(Removal::default()));
        fs::write(place.path().join("file"), "").unwrap();
        assert_eq!(remove(place.path(), "file"), Ok(Removal { removed: 1, left: 0 }));
    }

    #[test]
    fn a_stopped_removal_ends_before_the_next_entry_and_the_next_one_goes_on() {
        let place = tempdir().unwrap();
        fs::create_dir(place.path().join("d")).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(place.path().join("d").join(name), "").unwrap();
        }
        let asked = std::cell::Cell::new(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        };
        let parent = directory(place.path());
        let stopped = remove_tree_until(parent.as_fd(), OsStr::new("d"), StopCheck(&is_over));
        assert_eq!((stopped, asked.get()), (Err(WorkspaceError::Stopped), 3));
        assert_eq!(fs::read_dir(place.path().join("d")).unwrap().count(), 2);
        assert_eq!(remove(place.path(), "d"), Ok(Removal { removed: 3, left: 0 }));
    }

    #[test]
    fn only_a_single_name_is_taken() {
        let place = tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        for name in ["", ".", "..", "a/b", "/", "a/", "a\0b"] {
            let refused = remove(&place.path().join("a"), name);
            assert!(
                matches!(refused, Err(WorkspaceError::System { source: Errno::EINVAL, .. })),
                "{name:?}: {refused:?}"
            );
        }
        assert!(place.path().join("a/b").exists());
    }

    #[test]
    fn more_names_than_a_walk_holds_take_several_passes() {
        let place = tempdir().unwrap();
        let root = place.path().to_owned();
        in_own_mounts(move || {
            mount_tmpfs(&root);
            let wide = root.join("wide");
            fs::create_dir(&wide).unwrap();
            let names = 70_000;
            for number in 0..names {
                std::os::unix::fs::symlink("x", wide.join(number.to_string())).unwrap();
            }
            let whole = Removal { removed: names + 1, left: 0 };
            assert_eq!(remove(&root, "wide"), Ok(whole));
        });
    }

    #[test]
    fn directories_closed_to_their_owner_are_opened_up() {
        let name = "remove::tests::directories_closed_to_their_owner_are_opened_up";
        in_own_process(name, OwnProcess::Unprivileged, || {
            let place = tempdir().unwrap();
            for mode in [0o000, 0o100, 0o400, 0o500, 0o300] {
                let folder = place.path().join(format!("tree/{mode:o}"));
                fs::create_dir_all(folder.join("inner")).unwrap();
                fs::write(folder.join("inner/file"), "").unwrap();
                chmod(&folder.join("inner"), mode);
                chmod(&folder, mode);
            }
            chmod(&place.path().join("tree"), 0);
            let removed = remove(place.path(), "tree").unwrap();
            assert_eq!(removed, Removal { removed: 16, left: 0 });
        });
    }

    #[test]
    fn a_mount_is_neither_entered_nor_lost_from_the_count() {
        let place = tempdir().unwrap();
        let path = place.path().to_owned();
        in_own_mounts(move || {
            let point = path.join("tree/point");
            fs::create_dir_all(&point).unwrap();
            fs::write(path.join("tree/file"), "").unwrap();
            mount_tmpfs(&point);
            fs::write(point.join("sentinel"), "untouched").unwrap();
            assert_eq!(remove(&path, "tree"), Ok(Removal { removed: 1, left: 2 }));
            assert_eq!(fs::read(point.join("sentinel")).unwrap(), b"untouched");
        });
        assert_eq!(remove(place.path(), "tree"), Ok(Removal { removed: 2, left: 0 }));
    }
}
