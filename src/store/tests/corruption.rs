//! Damaged records, and that other records do not suffer.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use crate::store::tests::fixtures::{edit, id, names, place_of, reopened, result, run, store};
use crate::store::{Recovered, StoreError};

/// A file, how it is damaged, and a part of the reported reason.
type Corruption = (&'static str, fn(&Path), &'static str);

fn corruptions() -> Vec<Corruption> {
    fn torn(path: &Path) {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }
    fn instead(path: &Path, make: impl FnOnce(&Path)) {
        let _ = fs::remove_file(path);
        make(path);
    }
    let mut all: Vec<Corruption> = vec![
        ("status.json", |it| edit(it, |it| it["job_id"] = "other".into()), "of another job"),
        ("result.json", |it| edit(it, |it| it["job_id"] = "other".into()), "of another job"),
        ("request.json", |it| edit(it, |it| it["job_id"] = "other".into()), "of another job"),
        ("status.json", |it| edit(it, |it| it["status"] = "odd".into()), "unknown variant"),
        ("status.json", |it| edit(it, |it| it["queued_at"] = "then".into()), "a time is not valid"),
        ("status.json", |it| edit(it, |it| it["finished_at"] = Value::Null), "contradict"),
        ("result.json", |it| edit(it, |it| it["stdout"] = 5.into()), "invalid type"),
        ("result.json", |it| edit(it, |it| it["status"] = "running".into()), "has not ended"),
        ("request.json", |it| edit(it, |it| it["extra"] = 1.into()), "unknown field"),
        ("request.json", |it| fs::remove_file(it).unwrap(), "missing"),
        ("stdout", |it| instead(it, |it| symlink("/etc/passwd", it).unwrap()), "stdout"),
        ("stderr", |it| instead(it, |it| mkfifo(it, Mode::S_IRWXU).unwrap()), "stderr"),
        ("artifacts", |it| symlink("/etc", it).unwrap(), "artifacts"),
        ("snapshot.json", |it| fs::create_dir(it).unwrap(), "snapshot.json"),
        ("status.json", |it| fs::write(it, vec![b' '; 2 << 20]).unwrap(), "more than 1048576"),
        (
            "",
            |it| {
                fs::remove_dir_all(it).unwrap();
                fs::create_dir(it).unwrap();
            },
            "missing",
        ),
        (
            "",
            |it| {
                fs::remove_dir_all(it).unwrap();
                fs::write(it, "").unwrap();
            },
            "ENOTDIR",
        ),
        (
            "",
            |it| {
                fs::remove_dir_all(it).unwrap();
                symlink("/etc", it).unwrap();
            },
            "open",
        ),
        (
            "",
            |it| {
                fs::remove_dir_all(it).unwrap();
                mkfifo(it, Mode::S_IRWXU).unwrap();
            },
            "ENOTDIR",
        ),
    ];
    for file in ["status.json", "result.json", "request.json"] {
        all.push((file, torn, "EOF"));
        all.push((file, |it| fs::write(it, "").unwrap(), "EOF"));
        all.push((file, |it| fs::write(it, "\0\0\0\0").unwrap(), "expected value"));
        all.push((file, |it| fs::write(it, "[1]").unwrap(), "invalid"));
        all.push((file, |it| fs::write(it, b"{\"a\": \"\xFF\"}").unwrap(), ""));
        all.push((
            file,
            |it| instead(it, |it| symlink("/etc/passwd", it).unwrap()),
            "not a regular",
        ));
        all.push((
            file,
            |it| instead(it, |it| mkfifo(it, Mode::S_IRWXU).unwrap()),
            "not a regular",
        ));
        all.push((file, |it| instead(it, |it| fs::create_dir(it).unwrap()), "not a regular"));
        all.push((file, |it| fs::write(it, "[".repeat(1 << 20)).unwrap(), ""));
    }
    all
}

#[test]
fn every_kind_of_corruption_is_quarantined_and_reported() {
    for (index, (file, corrupt, reason)) in corruptions().into_iter().enumerate() {
        let (place, store) = store();
        for name in ["good", "bad"] {
            run(&store, name, 0);
        }
        drop(store);
        let directory = place_of(place.path(), "bad");
        corrupt(&if file.is_empty() { directory } else { directory.join(file) });
        let (store, recovered) = reopened(place.path());
        let told = format!("{index}: {file}: {recovered:?}");
        let [aside] = &recovered.quarantined[..] else { panic!("{told}") };
        assert!(aside.name == "bad" && aside.reason.contains(file), "{told}");
        assert!(aside.reason.contains(reason), "{told}");
        assert_eq!((recovered.jobs, names(place.path(), "runs")), (1, vec!["good".to_owned()]));
        let [kept] = &names(place.path(), "quarantine")[..] else { panic!("{told}") };
        assert!(kept.starts_with("bad-2"), "{kept}");
        assert_eq!(store.result(&id("good")), Ok(Some(result("good", 0))));
        assert_eq!((store.line(&id("bad")), store.result(&id("bad"))), (Ok(None), Ok(None)));
        // The id is free again.
        run(&store, "bad", 5);
    }
}

#[test]
fn names_that_are_not_job_ids_are_quarantined() {
    let (place, store) = store();
    run(&store, "good", 0);
    drop(store);
    let runs = place.path().join("runs");
    let odd = [&b".hidden"[..], b"a b", b"\xFF\n", &[b'x'; 129], &[b'x'; 255]];
    for name in odd {
        fs::create_dir_all(runs.join(OsStr::from_bytes(name)).join("deep/er")).unwrap();
    }
    let (_, recovered) = reopened(place.path());
    assert_eq!((recovered.quarantined.len(), recovered.jobs), (odd.len(), 1));
    assert!(recovered.quarantined.iter().any(|aside| aside.name == r"\xff\n"));
    assert_eq!(names(place.path(), "quarantine").len(), odd.len());
}

#[test]
fn a_result_that_is_found_damaged_later_is_quarantined() {
    let (place, store) = store();
    run(&store, "a", 0);
    fs::write(place_of(place.path(), "a").join("result.json"), "{").unwrap();
    assert!(matches!(store.result(&id("a")), Err(StoreError::Corrupt { .. })));
    assert_eq!((store.result(&id("a")), store.line(&id("a"))), (Ok(None), Ok(None)));
    assert_eq!(names(place.path(), "quarantine").len(), 1);
}

#[test]
fn temporary_directories_of_dead_owners_are_removed() {
    let (place, store) = store();
    let alive = store.writer_dirs().unwrap().owner.name().to_owned();
    let runs = place.path().join("runs");
    for owner in ["0".repeat(32), String::new(), alive.clone()] {
        for prefix in [".new-", ".gone-"] {
            fs::create_dir_all(runs.join(format!("{prefix}{owner}-x")).join("artifacts")).unwrap();
        }
    }
    let (other, recovered) = reopened(place.path());
    assert_eq!(recovered, Recovered::default());
    let theirs = [format!(".gone-{alive}-x"), format!(".new-{alive}-x")];
    assert_eq!(names(place.path(), "runs"), theirs);
    drop((store, other));
    assert_eq!(names(place.path(), "owners"), [""; 0], "owners that go leave nothing");
    drop(reopened(place.path()));
    assert_eq!(names(place.path(), "runs"), [""; 0]);
}
