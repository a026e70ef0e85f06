//! What the callers of a store rely on.

mod corruption;
pub(super) mod fixtures;
mod killed;
mod recovery;
mod scale;
mod truncate;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::store::tests::fixtures::{
    artifact, at, id, names, opened, place_of, reopened, request, result, run, store,
};
use cofferdam_core::Stream;
use cofferdam_core::job::{JobError, JobStatus};
use cofferdam_core::values::rel_path::RelPath;

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

#[test]
fn a_job_is_listed_in_every_state_and_every_process_reads_its_result() {
    let (place, store) = store();
    assert_eq!((store.line(&id("a")), store.result(&id("a"))), (Ok(None), Ok(None)));
    let mut record = store.create(&id("a"), &request(), at(0)).unwrap();
    let looker = RunStore::open_existing(place.path()).unwrap();
    let state = || {
        let line = store.line(&id("a")).unwrap().unwrap();
        assert_eq!(looker.line(&id("a")).unwrap().as_ref(), Some(&line));
        assert_eq!(looker.list(None, 9, None), store.list(None, 9, None));
        line
    };
    assert_eq!((state().status, store.result(&id("a"))), (JobStatus::Queued, Ok(None)));
    record.started(at(5)).unwrap();
    assert_eq!(state().status, JobStatus::Running);
    assert_eq!(state().started_at.as_deref(), Some("2023-11-14T22:13:25.000Z"));
    record.finish(&result("a", 0)).unwrap();
    assert_eq!(state().status, JobStatus::Completed);
    assert_eq!(state().finished_at.as_deref(), Some("2023-11-14T22:13:21.000Z"));
    drop(store);
    let (again, recovered) = RunStore::open(place.path(), StoreSettings::default()).unwrap();
    assert_eq!(recovered, Recovered { jobs: 1, ..Recovered::default() });
    for store in [&again, &looker] {
        assert_eq!(store.result(&id("a")), Ok(Some(result("a", 0))));
    }
}

#[test]
fn only_the_owner_can_access_a_store() {
    let (place, store) = store();
    let directory = place.path().join("made/here");
    drop(opened(&directory));
    let mut record = store.create(&id("a"), &request(), at(0)).unwrap();
    drop(record.artifacts().unwrap());
    record.write_snapshot(&7).unwrap();
    store.request_cancel(&id("a")).unwrap();
    record.finish(&result("a", 0)).unwrap();
    let (mut open, mut files) = (vec![place.path().to_owned()], 0);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let (path, metadata) = entry.map(|e| (e.path(), e.metadata().unwrap())).unwrap();
            let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(metadata.mode() & 0o7777, mode, "{path:?}");
            files += usize::from(metadata.is_file());
            if metadata.is_dir() {
                open.push(path);
            }
        }
    }
    assert_eq!(
        files, 8,
        "six of the job, its cancel among them, one owner, and one without an owner"
    );
}

#[test]
fn an_id_in_use_is_refused() {
    let (place, store) = store();
    let record = store.create(&id("live"), &request(), at(0)).unwrap();
    run(&store, "over", 0);
    fs::create_dir(place_of(place.path(), "empty")).unwrap();
    fs::write(place_of(place.path(), "file"), "").unwrap();
    symlink("nowhere", place_of(place.path(), "link")).unwrap();
    let (other, _) = reopened(place.path());
    for name in ["live", "over", "empty", "file", "link"] {
        for store in [&store, &other] {
            let refused = store.create(&id(name), &request(), at(0));
            let is_expected = matches!(&refused, Err(StoreError::Exists { .. }))
                || (name != "live" && name != "over");
            assert!(is_expected, "{name}: {refused:?}");
            if let Ok(record) = refused {
                record.discard();
            }
        }
    }
    record.discard();
    assert_eq!(names(place.path(), "runs"), ["over"], "a job that is refused leaves nothing");
    assert_eq!(store.line(&id("live")), Ok(None));
    store.create(&id("live"), &request(), at(0)).unwrap().discard();
}

#[test]
fn one_of_many_concurrent_jobs_gets_an_id() {
    let (place, store) = store();
    let others = [store.clone(), opened(place.path())];
    let taken: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|index| {
                let store = &others[index % 2];
                scope.spawn(move || store.create(&id("one"), &request(), at(0)).map(drop).is_ok())
            })
            .collect();
        threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
    });
    assert_eq!((taken, names(place.path(), "runs")), (1, vec!["one".to_owned()]));
}

#[test]
fn the_list_has_the_jobs_of_all_threads() {
    let (place, store) = store();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = store.clone();
            scope.spawn(move || {
                for job in 0..10 {
                    run(&store, &format!("{thread}-{job}"), thread * 10 + job);
                    store.list(None, 10, None).unwrap();
                }
            });
        }
    });
    let (lines, next) = store.list(Some(JobStatus::Completed), 100, None).unwrap();
    assert_eq!((lines.len(), next), (80, None));
    assert!(lines.is_sorted_by(|a, b| a.queued_at >= b.queued_at));
    assert_eq!(
        RunStore::open_existing(place.path()).unwrap().list(None, 100, None).unwrap().0,
        lines
    );
}

#[test]
fn outputs_can_be_read_while_they_grow_and_artifacts_follow_no_link() {
    let (place, store) = store();
    let record = store.create(&id("a"), &request(), at(0)).unwrap();
    let mut reader = store.open_stream(&id("a"), Stream::Stdout).unwrap();
    let mut text = String::new();
    for part in ["one", "two"] {
        record.stdout().unwrap().write_all(part.as_bytes()).unwrap();
        reader.read_to_string(&mut text).unwrap();
    }
    assert_eq!(text, "onetwo");
    drop(record.artifacts().unwrap());
    let artifacts = place_of(place.path(), "a").join("artifacts");
    fs::create_dir(artifacts.join("out")).unwrap();
    fs::write(artifacts.join("out/a b"), "kept").unwrap();
    symlink("/etc/passwd", artifacts.join("link")).unwrap();
    symlink("/etc", artifacts.join("etc")).unwrap();
    nix::unistd::mkfifo(&artifacts.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut kept = String::new();
    store.open_artifact(&id("a"), &rel("out/a b")).unwrap().read_to_string(&mut kept).unwrap();
    assert_eq!(kept, "kept");
    for bad in ["link", "etc/passwd", "fifo", "out", "absent"] {
        assert!(store.open_artifact(&id("a"), &rel(bad)).is_err(), "{bad}");
    }
    let uri = record.artifact_uri(&rel("out/a b"));
    let whole = artifacts.canonicalize().unwrap();
    assert_eq!(uri, format!("file://{}/out/a%20b", whole.display()));
    assert!(matches!(store.open_stream(&id("b"), Stream::Stderr), Err(StoreError::Unknown { .. })));
}

#[test]
fn the_process_of_a_job_sees_a_cancel_request() {
    let (place, store) = store();
    let record = store.create(&id("a"), &request(), at(0)).unwrap();
    assert!(!record.cancel_requested());
    let looker = RunStore::open_existing(place.path()).unwrap();
    looker.request_cancel(&id("a")).unwrap();
    looker.request_cancel(&id("a")).unwrap();
    assert!(record.cancel_requested() && store.cancel_requested(&id("a")));
    assert_eq!(JobError::from(looker.request_cancel(&id("b")).unwrap_err()), JobError::not_found());
}

#[test]
fn a_result_of_another_job_is_not_recorded() {
    let (_place, store) = store();
    let mut live = result("a", 0);
    live.status = JobStatus::Running;
    let mut timeless = result("a", 0);
    timeless.timing.finished_at = "soon".to_owned();
    for (index, wrong) in [result("b", 0), live, timeless].into_iter().enumerate() {
        let mut record = store.create(&id(&format!("a{index}")), &request(), at(0)).unwrap();
        assert!(matches!(record.finish(&wrong), Err(StoreError::NotRecordable { .. })));
    }
}

#[test]
fn a_read_only_store_changes_only_jobs_of_dead_owners() {
    let (place, store) = store();
    drop(store.create(&id("dead"), &request(), at(0)).unwrap());
    drop(store);
    let store = opened(place.path());
    let _record = store.create(&id("a"), &request(), at(0)).unwrap();
    fs::write(place.path().join("runs/junk"), "").unwrap();
    let before = (names(place.path(), "runs"), names(place.path(), "owners"));
    let looker = RunStore::open_existing(place.path()).unwrap();
    assert_eq!(looker.list(None, 10, None).unwrap().0.len(), 2);
    assert_eq!(looker.line(&id("dead")).unwrap().unwrap().status, JobStatus::Failed);
    assert_eq!(looker.line(&id("a")).unwrap().unwrap().status, JobStatus::Queued);
    assert_eq!(looker.remove_expired(at(1 << 40)), RemovedJobs::default());
    let refused = looker.create(&id("b"), &request(), at(0));
    assert!(matches!(refused, Err(StoreError::Unusable { .. })));
    assert_eq!((names(place.path(), "runs"), names(place.path(), "owners")), before);
    assert!(RunStore::open_existing(&place.path().join("runs")).is_err());
}

#[test]
fn one_service_owns_a_store_and_others_share_it() {
    let (place, shared) = store();
    let (service, _) = reopened(place.path());
    let refused = RunStore::open(place.path(), StoreSettings::default()).unwrap_err();
    let pid = Some(std::process::id());
    let path = place.path().canonicalize().unwrap();
    assert_eq!(refused, StoreError::Owned { path, pid });
    run(&shared, "a", 0);
    run(&opened(place.path()), "b", 1);
    for store in [&shared, &service] {
        assert_eq!(store.list(None, 9, None).unwrap().0.len(), 2);
        assert_eq!(store.result(&id("b")).unwrap(), Some(result("b", 1)));
    }
    drop(service);
    drop(reopened(place.path()));
}

#[test]
fn removed_records_are_not_listed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store");
    let (store, _) = reopened(&path);
    for name in ["a", "b"] {
        run(&store, name, 0);
    }
    fs::remove_dir_all(place_of(&path, "a")).unwrap();
    assert_eq!(store.list(None, 9, None).unwrap().0.len(), 1);
    let mut record = store.create(&id("live"), &request(), at(0)).unwrap();
    fs::remove_dir_all(&path).unwrap();
    let gone = record.finish(&result("live", 0)).unwrap_err();
    assert!(!gone.may_pass(), "{gone}");
    drop(record);
    assert_eq!(store.list(None, 9, None).unwrap().0, []);
    fs::remove_dir_all(path.join("runs")).unwrap();
    run(&store, "a", 1);
    assert_eq!(store.list(None, 9, None).unwrap().0.len(), 1);
    let refused = RunStore::open(&path, StoreSettings::default()).unwrap_err();
    assert!(matches!(refused, StoreError::Owned { .. }), "{refused}");
}

#[test]
fn a_directory_that_cannot_be_a_store_is_refused_with_its_path_and_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let open = |path: &Path| RunStore::open(path, StoreSettings::default()).unwrap_err();
    fs::write(path("file"), "").unwrap();
    fs::create_dir_all(path("others")).unwrap();
    std::os::unix::fs::chown(path("others"), Some(12_345), None).unwrap();
    fs::create_dir_all(path("part/runs")).unwrap();
    std::os::unix::fs::chown(path("part/runs"), Some(12_345), None).unwrap();
    fs::create_dir_all(path("linked")).unwrap();
    symlink("/etc", path("linked/runs")).unwrap();
    fs::create_dir_all(path("open")).unwrap();
    fs::set_permissions(path("open"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    for (bad, reason) in [
        (path("file"), "EEXIST"),
        (path("file/below"), "ENOTDIR"),
        (path("others"), "belongs to user 12345"),
        (path("part"), "runs belongs to user 12345"),
        (path("linked"), "ENOTDIR"),
        (path("open"), "everybody may write"),
        (Path::new("/proc/1").to_owned(), "mkdir runs"),
    ] {
        let error = open(&bad);
        assert!(matches!(error, StoreError::Unusable { .. }), "{bad:?}: {error}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains(bad.to_str().unwrap()), "{bad:?}: {text}");
    }
}

#[test]
fn ended_jobs_are_removed_by_age_and_by_size_the_oldest_first() {
    let place = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let settings = StoreSettings { retention: Some(hour), bytes_max: None };
    let (store, _) = RunStore::open(place.path(), settings).unwrap();
    let live = store.create(&id("live"), &request(), at(0)).unwrap();
    for (name, seconds) in [("old", 0), ("mid", 1800), ("new", 3000)] {
        run(&store, name, seconds);
    }
    assert_eq!(store.remove_expired(at(3600)), RemovedJobs::default());
    let removed = store.remove_expired(at(3601));
    assert_eq!(
        (removed.jobs, names(place.path(), "runs")),
        (1, ["live", "mid", "new"].map(str::to_owned).to_vec())
    );
    assert!(removed.bytes >= 4 * 4096, "{removed:?}");
    assert_eq!((store.line(&id("old")), store.result(&id("old"))), (Ok(None), Ok(None)));
    drop((live, store));
    // The sizes of records are known after a restart too.
    let settings = StoreSettings { retention: None, bytes_max: Some(removed.bytes * 2) };
    let (store, _) = RunStore::open(place.path(), settings).unwrap();
    let live = store.create(&id("live2"), &request(), at(0)).unwrap();
    assert_eq!(store.remove_expired(at(0)).jobs, 1);
    assert_eq!(names(place.path(), "runs"), ["live", "live2", "new"]);
    drop(live);
    let settings = StoreSettings { retention: None, bytes_max: Some(0) };
    drop(store);
    let (store, _) = RunStore::open(place.path(), settings).unwrap();
    let live = store.create(&id("live3"), &request(), at(0)).unwrap();
    assert_eq!(store.remove_expired(at(0)).jobs, 3);
    assert_eq!(names(place.path(), "runs"), ["live3"]);
    drop(live);
}

#[test]
fn artifacts_count_toward_the_size_of_a_record() {
    let (place, store) = store();
    let mut record = store.create(&id("a"), &request(), at(0)).unwrap();
    let mut large = result("a", 0);
    large.artifacts = vec![artifact("x")];
    large.artifacts[0].bytes = 1 << 30;
    record.finish(&large).unwrap();
    drop(store);
    let settings = StoreSettings { retention: None, bytes_max: Some(1 << 30) };
    let (store, _) = RunStore::open(place.path(), settings).unwrap();
    let removed = store.remove_expired(at(0));
    assert!(removed.jobs == 1 && removed.bytes > 1 << 30, "{removed:?}");
}
