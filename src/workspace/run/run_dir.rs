//! The directory of one run: unique, and removed if the program leaves it empty.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use cofferdam_core::values::utc::rfc3339;
use cofferdam_tree::files::{
    FileArea, FileLocation, FilesError, WorkspaceRoot, delete, make_directory,
};

/// The directory of all runs.
const RUNS: &str = "runs";
/// The most names that are tried: a program may have taken some.
const TRIES_MAX: u64 = 16;

/// The name of the run with this number that begins at `now`: `run_20260228T235959.007_1`.
fn name(now: SystemTime, number: u64) -> String {
    let time = rfc3339(now.max(UNIX_EPOCH)).replace(['-', ':', 'Z'], "");
    format!("run_{time}_{number}")
}

/// Makes the directory of a run, whose number `next` gives. None if there is no room for it, or the
/// programs of the workspace are in the way.
pub fn make(
    root: &WorkspaceRoot<'_>,
    now: SystemTime,
    mut next: impl FnMut() -> u64,
) -> Option<FileLocation> {
    for _ in 0..TRIES_MAX {
        let path = Path::new(RUNS).join(name(now, next()));
        let location = FileLocation::top(FileArea::Workspace).join(&path);
        match make_directory(root, &location, 0) {
            Ok(()) => return Some(location),
            Err(FilesError::Exists { .. }) => {}
            Err(_) => return None,
        }
    }
    None
}

/// Removes the directory of a run if it is empty.
pub fn remove_if_empty(root: &WorkspaceRoot<'_>, location: &FileLocation) {
    // Not empty, or gone: the program's matter.
    let _ = delete(root, location, false);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_has_the_time_in_utc_and_the_number() {
        let leap = UNIX_EPOCH + Duration::from_millis(1_709_164_800_007);
        assert_eq!(name(leap, 7), "run_20240229T000000.007_7");
    }
}
