//! The steps of a commit. Each leaves a path as it was or as it is to be, and may be repeated.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmodat, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat};

use super::part::open_parent;
use super::steps::{CommitStep, StepAction, WasState};
use crate::cli::check::exec::overlay::states::{NodeKind, NodeState, state_of};
use crate::evaluation::patch::entry::split;

const SET_GID_BIT: u32 = 0o2000;

/// Does `steps` beneath `top` with the new files in `staged`; returns the paths that stay as they are because
/// someone else changed them meanwhile.
pub fn apply(
    top: BorrowedFd<'_>,
    staged: Option<BorrowedFd<'_>>,
    steps: &[CommitStep],
) -> Result<Vec<Vec<u8>>, Errno> {
    let mut kept = Vec::new();
    for step in steps {
        let (parent, name) = split(&step.path.0);
        let done = match open_parent(top, parent) {
            Ok(parent) => do_step(parent.as_fd(), name, staged, &step.action)?,
            // What is to be removed or changed went with its directory.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) => {
                !matches!(step.action, StepAction::Place { .. } | StepAction::MakeDirectory { .. })
            }
            Err(errno) => return Err(errno),
        };
        if !done {
            kept.push(step.path.0.clone());
        }
    }
    Ok(kept)
}

/// Returns false if the path stays as it is.
fn do_step(
    parent: BorrowedFd<'_>,
    name: &[u8],
    staged: Option<BorrowedFd<'_>>,
    action: &StepAction,
) -> Result<bool, Errno> {
    let now = state_of(parent, name)?;
    let name = OsStr::from_bytes(name);
    match action {
        StepAction::Remove { was } => match now {
            Some(now) if is_still(now, *was) => {
                unlinkat(parent, name, UnlinkatFlags::NoRemoveDir).map(|()| true)
            }
            // The second: what takes its place is there already.
            None | Some(NodeState { kind: NodeKind::Directory, .. }) => Ok(true),
            Some(_) => Ok(false),
        },
        StepAction::RemoveDirectory => match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            // The second: something else is in its place already.
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(true),
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::EBUSY) => Ok(false),
            Err(errno) => Err(errno),
        },
        StepAction::MakeDirectory { uid, gid } => make_directory(parent, name, now, (*uid, *gid)),
        StepAction::Place { staged: number, was } => match staged {
            Some(staged) => place(parent, name, now, *was, (staged, *number)),
            None => Ok(true),
        },
        StepAction::SetAttributes { mode, modified, was } => {
            let Some(now) = now else { return Ok(true) };
            let is_other = |was: &WasState| {
                now.kind != was.kind || now.identity.1 != was.inode || now.bytes != was.bytes
            };
            if now.kind == NodeKind::Link || was.as_ref().is_some_and(is_other) {
                return Ok(false);
            }
            set_attributes(parent, name, now, *mode, *modified).map(|()| true)
        }
    }
}

fn make_directory(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    now: Option<NodeState>,
    (uid, gid): (u32, u32),
) -> Result<bool, Errno> {
    match mkdirat(parent, name, Mode::S_IRWXU) {
        Ok(()) => {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            fchownat(parent, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW).map(|()| true)
        }
        Err(Errno::EEXIST) => Ok(now.is_some_and(|now| now.kind == NodeKind::Directory)),
        Err(errno) => Err(errno),
    }
}

/// Gives a new file its name, unless it has it already.
fn place(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    now: Option<NodeState>,
    was: Option<WasState>,
    (staged, number): (BorrowedFd<'_>, usize),
) -> Result<bool, Errno> {
    let number = number.to_string();
    if state_of(staged, number.as_bytes())?.is_none() {
        return Ok(true);
    }
    let is_free = match (now, was) {
        (None, None) => true,
        (Some(now), Some(was)) => is_still(now, was),
        _ => false,
    };
    if is_free {
        renameat(staged, number.as_str(), parent, name)?;
    }
    Ok(is_free)
}

fn set_attributes(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    now: NodeState,
    mode: Option<u32>,
    modified: Option<(i64, i64)>,
) -> Result<(), Errno> {
    if let Some(mode) = mode {
        // A directory keeps the bit that it has from the one above.
        let kept = if now.kind == NodeKind::Directory { now.mode & SET_GID_BIT } else { 0 };
        let mode = Mode::from_bits_truncate(mode | kept);
        fchmodat(parent, name, mode, FchmodatFlags::FollowSymlink)?;
    }
    if let Some((seconds, nanoseconds)) = modified {
        let time = TimeSpec::new(seconds, nanoseconds);
        utimensat(parent, name, &time, &time, UtimensatFlags::NoFollowSymlink)?;
    }
    Ok(())
}

/// Not by the time of change: another name of the same file may have been removed.
fn is_still(now: NodeState, was: WasState) -> bool {
    WasState::from(now) == was
}
