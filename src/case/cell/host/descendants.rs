//! The processes below this one.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

use cofferdam_core::values::deadline::Deadline;

/// How long what was killed may take to die.
pub(super) const DEATH_WAIT: Duration = Duration::from_secs(8);
/// How often those who are alive are killed again: a process may have made another meanwhile.
pub(super) const AGAIN_EVERY: Duration = Duration::from_millis(1);

/// Kills all processes below this one, which adopts orphans, until none is left. Returns whether that is so.
pub(super) fn kill_descendants() -> bool {
    let deadline = Deadline::after(DEATH_WAIT);
    loop {
        match reap() {
            Err(Errno::ECHILD) => return true,
            _ if deadline.passed() => return false,
            _ => {}
        }
        // A child of ours keeps its id until it is reaped, here. Deeper ones can be gone by now, within microseconds.
        for pid in descendants() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        thread::sleep(AGAIN_EVERY);
    }
}

/// Reaps every child that is dead.
fn reap() -> Result<(), Errno> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return Ok(()),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// The processes below this one, as they are now.
fn descendants() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid else { continue };
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut pending = vec![getpid().as_raw()];
    while let Some(parent) = pending.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend(below.iter().map(|pid| Pid::from_raw(*pid)));
        pending.extend(below);
    }
    found
}

/// The parent in the line `stat` of a process, whose name can hold anything.
fn parent_of(stat: &[u8]) -> Option<i32> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_read_behind_any_name() {
        for (stat, parent) in [
            (&b"12 (sh) S 7 12 12"[..], Some(7)),
            (b"12 (a) R 1 (b) S 8 1", Some(8)),
            (b"12 (\xff) Z 9 0", Some(9)),
            (b"12 (sh)", None),
            (b"", None),
        ] {
            assert_eq!(parent_of(stat), parent);
        }
    }
}
