//! Tests of stopped snapshots.

use std::cell::Cell;
use std::fs;
use std::os::fd::AsFd;

use tempfile::TempDir;

use super::*;
use crate::testing::directory;

const LIMITS: SnapshotLimits = SnapshotLimits { files_max: 100, bytes_max: 1 << 30 };
const TENANT: Owner = Owner { uid: 0, gid: 0 };

#[test]
fn a_stopped_copy_ends_before_the_next_entry_and_within_a_file() {
    let place = TempDir::new().unwrap();
    let source = place.path().join("source");
    fs::create_dir(&source).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(source.join(name), vec![1; 1 << 20]).unwrap();
    }
    let all = SnapshotRules::parse(&["**".to_owned()], &[]).unwrap();
    // Three files of sixteen pieces each.
    let opened = SourceDir::open(&source).unwrap();
    for asked_max in [1, 2, 10, 30] {
        let asked = Cell::new(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            asked.get() >= asked_max
        };
        let target = place.path().join(format!("target-{asked_max}"));
        fs::create_dir(&target).unwrap();
        let into = directory(&target);
        let taken =
            take_snapshot(&opened, &all, &LIMITS, StopCheck(&is_over), (into.as_fd(), TENANT));
        assert_eq!(taken, Err(WorkspaceError::Stopped));
        assert_eq!(asked.get(), asked_max, "it went on");
    }
    assert_eq!(survey(&opened, &all, &LIMITS, StopCheck(&|| true)), Err(WorkspaceError::Stopped));
}
