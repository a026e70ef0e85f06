//! Waiting until a file of a group says something.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::control::CgroupVersion;
use super::directory::Directory;
use cofferdam_core::values::deadline::Deadline;

/// Version 1 announces nothing, so there its files are read again this often.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until `line` stands in the file; false when the deadline came first
/// or the file cannot be read.
pub(super) fn wait_for_line(
    directory: &Directory,
    file: &str,
    line: &str,
    deadline: Deadline,
) -> bool {
    let Ok(opened) = directory.open_file(file, OFlag::O_RDONLY) else { return false };
    let mut opened = File::from(opened);
    loop {
        let mut text = String::new();
        // Reading from the start also arms the announcement of the next change.
        if opened.rewind().is_err() || opened.read_to_string(&mut text).is_err() {
            return false;
        }
        if text.lines().any(|l| l == line) {
            return true;
        }
        if deadline.passed() {
            return false;
        }
        let at_most = match directory.version() {
            CgroupVersion::V1 => deadline.remaining().min(RETRY_INTERVAL),
            CgroupVersion::V2 => deadline.remaining(),
        };
        // Rounded up: a wait of no time at all would spin.
        let at_most = at_most.saturating_add(Duration::from_micros(999));
        let at_most = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        // An interrupted or failed wait only means that we look again.
        let _ = poll(&mut [PollFd::new(opened.as_fd(), PollFlags::POLLPRI)], at_most);
    }
}
