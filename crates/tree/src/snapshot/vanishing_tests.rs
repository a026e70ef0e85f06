//! Tests with sources that change while they are copied.

use std::cell::Cell;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tempfile::TempDir;

use super::*;
use crate::testing::{TENANT, directory, in_memory};

const LIMITS: SnapshotLimits = SnapshotLimits { files_max: 10_000, bytes_max: 1 << 30 };

fn everything() -> SnapshotRules {
    SnapshotRules::parse(&["**".to_owned()], &[]).unwrap()
}

/// A source with files, links and directories, and a directory for copies.
fn scene() -> (TempDir, PathBuf) {
    let place = in_memory();
    let source = place.path().join("source");
    for name in ["a", "folder/file", "folder/inner/deep", "links/kept", "z"] {
        fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        fs::write(source.join(name), name).unwrap();
    }
    symlink("kept", source.join("links/link")).unwrap();
    (place, source)
}

/// Snapshots `source`, and calls `change` at the stop check number `at`. Also returns the number of
/// stop checks.
fn take_with_change(source: &Path, at: u64, change: &dyn Fn()) -> (u64, SnapshotContents, TempDir) {
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        if asked.get() == at {
            change();
        }
        false
    };
    let opened = SourceDir::open(source).unwrap();
    let rules = everything();
    let target = in_memory();
    let into = directory(target.path());
    let taken = survey(&opened, &rules, &LIMITS, StopCheck(&stop)).and_then(|_| {
        take_snapshot(&opened, &rules, &LIMITS, StopCheck(&stop), (into.as_fd(), TENANT))
    });
    (asked.get(), taken.unwrap_or_else(|error| panic!("change before {at}: {error}")), target)
}

#[test]
fn an_entry_that_vanishes_at_any_moment_counts_as_never_present() {
    let remove = |path: &Path| {
        let is_directory = fs::symlink_metadata(path).unwrap().is_dir();
        let removed = if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.unwrap();
    };
    for name in ["folder/file", "links/link", "folder/inner", "folder"] {
        let questions = take_with_change(&scene().1, 0, &|| {}).0;
        for at in 1..=questions {
            let (_place, source) = scene();
            let (_, taken, target) = take_with_change(&source, at, &|| remove(&source.join(name)));
            assert!(taken.excluded.is_empty(), "{name} at {at}: {:?}", taken.excluded);
            assert!(target.path().join("z").exists() && (2..=6).contains(&taken.files));
        }
    }
}

#[test]
fn an_entry_that_changes_its_type_is_left_out_and_counted() {
    let (_place, source) = scene();
    let (questions, before, _) = take_with_change(&source, 0, &|| {});
    assert_eq!(before.files, 6);
    for name in ["folder/file", "links/link", "folder/inner"] {
        for at in 1..=questions {
            let (_place, source) = scene();
            let at_name = source.join(name);
            let (_, taken, _) = take_with_change(&source, at, &|| {
                fs::rename(&at_name, source.parent().unwrap().join("elsewhere")).unwrap();
                match name {
                    "folder/file" => symlink("/etc/passwd", &at_name).unwrap(),
                    "links/link" => fs::create_dir(&at_name).unwrap(),
                    _ => symlink("/etc", &at_name).unwrap(),
                }
            });
            let others = taken.excluded.keys().filter(|group| {
                !matches!(group, ExcludedGroup::Special | ExcludedGroup::OutsideLink)
            });
            assert_eq!(others.count(), 0, "{name} at {at}: {:?}", taken.excluded);
            assert!((4..=6).contains(&taken.files), "{name} at {at}: {}", taken.files);
        }
    }
}

#[test]
fn no_copy_fails_while_an_editor_saves_and_a_build_makes_and_removes_directories() {
    let (_place, source) = scene();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0_u64.. {
                let (new, build) = (source.join(".main.tmp"), source.join("build-dir"));
                fs::write(&new, turn.to_string()).unwrap();
                fs::rename(&new, source.join("main")).unwrap();
                fs::create_dir_all(build.join("a/b")).unwrap();
                fs::write(build.join("a/b/object"), "o").unwrap();
                fs::remove_dir_all(&build).unwrap();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        while !source.join("main").exists() {
            thread::yield_now();
        }
        let mut failed = Vec::new();
        for _ in 0..500 {
            let opened = SourceDir::open(&source).unwrap();
            let target = in_memory();
            let into = directory(target.path());
            let into = (into.as_fd(), TENANT);
            match take_snapshot(&opened, &everything(), &LIMITS, StopCheck::never(), into) {
                Ok(_) => assert!(target.path().join("main").exists()),
                Err(error) => failed.push(error.to_string()),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(failed.is_empty(), "{} of 500: {failed:?}", failed.len());
    });
}

#[test]
fn a_directory_left_out_is_not_entered_under_another_name() {
    let (_place, source) = scene();
    let store = [SourceDir::open(&source.join("folder")).unwrap()];
    fs::rename(source.join("folder"), source.join("renamed")).unwrap();
    let target = in_memory();
    let taken = take_snapshot(
        &SourceDir::open(&source).unwrap(),
        &everything().without(&store),
        &LIMITS,
        StopCheck::never(),
        (directory(target.path()).as_fd(), TENANT),
    );
    let taken = taken.unwrap();
    assert_eq!(taken.excluded, BTreeMap::from([(ExcludedGroup::Request, 1)]));
    assert_eq!((taken.files, target.path().join("renamed").exists()), (4, false));
}
