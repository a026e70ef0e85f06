//! The source of a Cell: a copy of a directory.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::error::ExecError;
use super::plan::FILES_TIMEOUT;
pub(super) use crate::case::source::left_out::SOURCE_LIMITS;
use crate::case::source::left_out::is_left_out;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::{Owner, StopCheck, copy_selected};

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
