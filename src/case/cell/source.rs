//! The source of a Cell: a copy of a directory.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::error::ExecError;
use super::plan::FILES_TIMEOUT;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::{Owner, StopCheck, TreeLimits, copy_selected};

/// What no copy has, at any depth.
const LEFT_OUT: [&[u8]; 4] = [b".git", b"__pycache__", b".venv", b"node_modules"];
const LEFT_OUT_ENDING: &[u8] = b".pyc";
/// The limits of a source.
pub(super) const SOURCE_LIMITS: TreeLimits =
    TreeLimits { entries_max: 1_000_000, bytes_max: 4 << 30, depth_max: 1000 };

/// Copies the directory `source` into the empty directory `sandbox`, for `owner`.
pub(super) fn copy_source(
    source: &Path,
    sandbox: BorrowedFd<'_>,
    owner: Owner,
) -> Result<(), ExecError> {
    let shown = source.display().to_string();
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let opened = open(source, flags, Mode::empty())
        .map_err(|errno| ExecError::failed("open source", errno.desc()).with("path", &*shown))?;
    let deadline = Deadline::after(FILES_TIMEOUT);
    let is_late = || deadline.passed();
    let stop = StopCheck(&is_late);
    copy_selected(opened.as_fd(), sandbox, owner, &SOURCE_LIMITS, &is_left_out, stop)
        .map_err(|error| ExecError::failed("copy source", error).with("path", shown))?;
    Ok(())
}

fn is_left_out(name: &[u8]) -> bool {
    LEFT_OUT.contains(&name) || name.ends_with(LEFT_OUT_ENDING)
}
