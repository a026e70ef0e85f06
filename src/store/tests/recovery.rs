//! Recovery of jobs whose process died.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::store::tests::fixtures::{
    at, edit, id, names, opened, place_of, reopened, request, result, run, store, stream,
};
use crate::store::{Recovered, RunStore};
use crate::store::{request_hash, result_hash};
use cofferdam_core::job::{Decision, ErrorCode, JobStatus, TextEncoding};

/// Leaves a job as a service that dies does: its owner is dead.
fn abandon(store: RunStore, seconds: Option<u64>, stdout: &[u8]) {
    let mut record = store.create(&id("a"), &request(), at(0)).unwrap();
    if let Some(seconds) = seconds {
        record.started(at(seconds)).unwrap();
    }
    record.stdout().unwrap().write_all(stdout).unwrap();
    let snapshot = json!({"files": 3, "bytes": 4, "excluded": {"vcs": 1}, "hash": "v1:x"});
    record.write_snapshot(&snapshot).unwrap();
    drop(record.artifacts().unwrap());
    drop((record, store));
}

#[test]
fn a_job_of_a_dead_service_is_finished_as_interrupted() {
    let (place, store) = store();
    abandon(store, Some(1), b"partial");
    let (store, recovered) = reopened(place.path());
    assert_eq!((recovered.interrupted, recovered.jobs), (vec![id("a")], 1));
    let result = store.result(&id("a")).unwrap().unwrap();
    let error = result.error.as_ref().unwrap();
    assert_eq!((result.status, error.code), (JobStatus::Failed, ErrorCode::Interrupted));
    assert_eq!(error.details["reason"], "interrupted");
    assert_eq!((result.exit_code, result.signal, &result.usage), (None, None, &None));
    assert_eq!((&result.stdout, &result.stderr), (&stream("partial"), &stream("")));
    assert_eq!(result.trace, request().trace);
    assert_eq!(result.snapshot.as_ref().unwrap().files, 3);
    assert_eq!(result.replay.snapshot.as_deref(), Some("v1:x"));
    assert_eq!(result.policy.decision, Decision::Allowed);
    assert_eq!(result.policy.version, "v1:unknown");
    assert_eq!(result.replay.request, request_hash(&request()));
    assert_eq!(result.replay.result, result_hash(&result));
    assert_eq!(result.timing.started_at.as_deref(), Some("2023-11-14T22:13:21.000Z"));
    assert!(!place_of(place.path(), "a").join("artifacts").exists());
    let line = store.line(&id("a")).unwrap().unwrap();
    assert_eq!(
        (line.status, line.finished_at),
        (JobStatus::Failed, Some(result.timing.finished_at))
    );
    drop(store);
    let (_, again) = reopened(place.path());
    assert_eq!(again, Recovered { jobs: 1, ..Recovered::default() });
}

#[test]
fn an_interrupted_result_has_the_recorded_state_and_decision() {
    let (place, store) = store();
    drop(store.create(&id("queued"), &request(), at(0)).unwrap());
    let mut record = store.create(&id("decided"), &request(), at(0)).unwrap();
    let policy = result("decided", 0).policy;
    record.decided(policy.clone(), None);
    record.started(at(1)).unwrap();
    drop((record, store));
    let (store, recovered) = reopened(place.path());
    assert_eq!(recovered.interrupted.len(), 2);
    let queued = store.result(&id("queued")).unwrap().unwrap();
    assert_eq!(queued.error.unwrap().details["state"], "queued");
    assert_eq!((queued.timing.started_at, queued.timing.duration_ms), (None, 0));
    assert_eq!(store.result(&id("decided")).unwrap().unwrap().policy, policy);
}

#[test]
fn written_output_of_any_bytes_is_kept() {
    for (bytes, text, encoding, truncated) in [
        (&b"caf\xC3\xA9"[..], "café", TextEncoding::Utf8, false),
        (b"caf\xC3", "caf", TextEncoding::Utf8, true),
        (b"\xFF\xFE", "//4=", TextEncoding::Base64, false),
    ] {
        let (place, store) = store();
        abandon(store, Some(1), bytes);
        let (store, _) = reopened(place.path());
        let stdout = store.result(&id("a")).unwrap().unwrap().stdout;
        assert_eq!(
            (stdout.text.as_str(), stdout.encoding, stdout.truncated),
            (text, encoding, truncated)
        );
        assert_eq!(stdout.sha256.as_str(), cofferdam_core::values::digest::sha256_of(bytes));
        assert_eq!(stdout.bytes, bytes.len() as u64);
    }
}

#[test]
fn a_dropped_record_is_finished_by_its_own_store() {
    let (_place, store) = store();
    drop(store.create(&id("a"), &request(), at(0)).unwrap());
    assert_eq!(store.line(&id("a")).unwrap().unwrap().status, JobStatus::Failed);
    let result = store.result(&id("a")).unwrap().unwrap();
    assert_eq!(result.error.unwrap().code, ErrorCode::Interrupted);
}

#[test]
fn a_live_job_of_another_opening_is_not_touched() {
    let (place, ours) = store();
    let mut record = ours.create(&id("a"), &request(), at(0)).unwrap();
    let (other, recovered) = reopened(place.path());
    assert_eq!((recovered.interrupted.len(), recovered.jobs), (0, 1));
    record.started(at(0)).unwrap();
    assert_eq!(other.line(&id("a")).unwrap().unwrap().status, JobStatus::Running);
    assert_eq!(other.remove_expired(at(1 << 33)), Default::default());
    record.finish(&result("a", 0)).unwrap();
    assert_eq!(other.line(&id("a")).unwrap().unwrap().status, JobStatus::Completed);
    assert_eq!(other.list(None, 9, None).unwrap().0[0].status, JobStatus::Completed);
}

#[test]
fn a_status_older_than_the_result_is_repaired() {
    let changes: [fn(&mut Value); 4] = [
        |it| (it["status"], it["finished_at"]) = ("running".into(), Value::Null),
        |it| it["status"] = "failed".into(),
        |it| it["finished_at"] = "2001-01-01T00:00:00.000Z".into(),
        |it| {
            (it["status"], it["finished_at"], it["owner"]) =
                ("queued".into(), Value::Null, "".into());
        },
    ];
    for change in changes.map(Some).into_iter().chain([None]) {
        let (place, store) = store();
        run(&store, "a", 0);
        let line = store.line(&id("a")).unwrap();
        drop(store);
        let path = place_of(place.path(), "a").join("status.json");
        match change {
            Some(change) => edit(&path, change),
            None => fs::remove_file(&path).unwrap(),
        }
        let (store, recovered) = reopened(place.path());
        assert_eq!((recovered.interrupted.len(), recovered.quarantined.len()), (0, 0));
        assert_eq!(store.line(&id("a")).unwrap(), line);
        assert_eq!(store.result(&id("a")).unwrap().unwrap(), result("a", 0));
        let looker = RunStore::open_existing(place.path()).unwrap();
        assert_eq!(looker.line(&id("a")).unwrap(), line, "it is repaired on the disk");
    }
}

#[test]
fn an_ended_status_without_a_result_is_interrupted() {
    let (place, store) = store();
    run(&store, "a", 0);
    drop(store);
    fs::remove_file(place_of(place.path(), "a").join("result.json")).unwrap();
    let (store, recovered) = reopened(place.path());
    assert_eq!(recovered.interrupted, [id("a")]);
    assert_eq!(store.line(&id("a")).unwrap().unwrap().status, JobStatus::Failed);
}

/// Runs `body` with a directory on a separate disk of 256 KiB.
fn on_a_small_disk(body: impl FnOnce(&Path) + Send + 'static) {
    use nix::mount::{MsFlags, mount};
    let own = move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        let (place, none) = (tempfile::tempdir().unwrap(), None::<&str>);
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(none, place.path(), Some("tmpfs"), MsFlags::empty(), Some("size=256k")).unwrap();
        body(place.path());
        nix::mount::umount(place.path()).unwrap();
    };
    std::thread::spawn(own).join().unwrap();
}

#[test]
fn a_full_disk_leaves_nothing_of_a_refused_job_and_loses_no_accepted_one() {
    on_a_small_disk(|place| {
        let store = opened(place);
        let mut record = store.create(&id("a"), &request(), at(0)).unwrap();
        let filler = place.join("filler");
        let full = fs::write(&filler, vec![0; 1 << 20]).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        let refused = store.create(&id("b"), &request(), at(0)).unwrap_err();
        assert!(refused.to_string().contains("ENOSPC"), "{refused}");
        assert_eq!(names(place, "runs"), ["a"]);
        let unwritten = record.finish(&result("a", 0)).unwrap_err();
        assert!(unwritten.may_pass(), "{unwritten}");
        assert_eq!(store.line(&id("a")).unwrap().unwrap().status, JobStatus::Queued);
        let listed = store.list(Some(JobStatus::Completed), 9, None).unwrap().0;
        assert_eq!(listed.len(), 1, "it is over all the same");
        fs::remove_file(filler).unwrap();
        record.finish(&result("a", 0)).unwrap();
        assert_eq!(store.result(&id("a")).unwrap().unwrap(), result("a", 0));
    });
}
