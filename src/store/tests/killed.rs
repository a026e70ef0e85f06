//! Stores whose process is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::store::tests::fixtures::{at, id, names, opened, reopened, request, result};
use crate::store::{Recovered, RunStore};
use cofferdam_core::job::{ErrorCode, JobStatus, RunJobResult};

/// Set in the child process: the store to use.
const CHILD: &str = "COFFERDAM_TEST_RUNSTORE";

/// Creates jobs in four threads until it is killed, and prints each step.
fn run_jobs_for_ever(store: &RunStore) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let name = format!("j{}", uuid::Uuid::new_v4());
                    let mut record = store.create(&id(&name), &request(), at(0)).unwrap();
                    writeln!(std::io::stdout(), "\naccepted {name}").unwrap();
                    record.started(at(0)).unwrap();
                    record.stdout().unwrap().write_all(&[b'x'; 100]).unwrap();
                    record.finish(&result(&name, 0)).unwrap();
                    writeln!(std::io::stdout(), "\nfinished {name}").unwrap();
                }
            });
        }
    });
}

fn child(test: &str, store: &Path) -> Child {
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    Command::new("/proc/self/exe")
        .args([name.as_str(), "--exact", "--nocapture"])
        .env(CHILD, store)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_kill_at_any_moment_loses_no_accepted_job_and_leaves_none_torn() {
    if let Some(place) = std::env::var_os(CHILD) {
        return run_jobs_for_ever(&opened(Path::new(&place)));
    }
    let place = tempfile::tempdir().unwrap();
    let beside = opened(place.path());
    let (mut accepted, mut finished) = (Vec::new(), Vec::new());
    for round in 0..8 {
        let mut child =
            child("a_kill_at_any_moment_loses_no_accepted_job_and_leaves_none_torn", place.path());
        let reader = BufReader::new(child.stdout.take().unwrap());
        let lines =
            std::thread::spawn(move || reader.lines().map_while(Result::ok).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(150 + round * 37));
        // Opening the store in the meantime does no harm.
        drop(reopened(place.path()));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.join().unwrap() {
            match line.split_once(' ') {
                Some(("accepted", name)) => accepted.push(name.to_owned()),
                Some(("finished", name)) => finished.push(name.to_owned()),
                _ => {}
            }
        }
        let (store, recovered) = reopened(place.path());
        assert_eq!(recovered.quarantined, [], "round {round}");
        check_all_over(&store, &accepted, &finished);
        assert!(!names(place.path(), "runs").iter().any(|name| name.starts_with('.')));
    }
    assert!(accepted.len() > 20, "{} jobs", accepted.len());
    assert_eq!(names(place.path(), "owners").len(), 1, "that of the other store");
    drop(beside);
}

fn check_all_over(store: &RunStore, accepted: &[String], finished: &[String]) {
    for name in accepted {
        let ended = store.result(&id(name)).unwrap().unwrap_or_else(|| panic!("{name} is lost"));
        let is_cut_off = |ended: &RunJobResult| {
            ended.error.as_ref().is_some_and(|error| error.code == ErrorCode::Interrupted)
        };
        assert!(ended == result(name, 0) || is_cut_off(&ended), "{ended:?}");
        assert!(!finished.contains(name) || !is_cut_off(&ended), "{name} had been finished");
        assert_eq!(store.line(&id(name)).unwrap().unwrap().status, ended.status);
    }
}

#[test]
fn a_running_process_finishes_the_jobs_of_a_killed_one() {
    if let Some(place) = std::env::var_os(CHILD) {
        let store = opened(Path::new(&place));
        let _record = store.create(&id("theirs"), &request(), at(0)).unwrap();
        writeln!(std::io::stdout(), "\naccepted").unwrap();
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let name = "a_running_process_finishes_the_jobs_of_a_killed_one";
    drop(opened(place.path()));
    let mut child = child(name, place.path());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "accepted"));
    let (store, recovered) = reopened(place.path());
    assert_eq!(recovered, Recovered { jobs: 1, ..Recovered::default() });
    assert_eq!(store.line(&id("theirs")).unwrap().unwrap().status, JobStatus::Queued);
    child.kill().unwrap();
    child.wait().unwrap();
    store.remove_expired(at(0));
    assert_eq!(store.line(&id("theirs")).unwrap().unwrap().status, JobStatus::Failed);
    assert_eq!(store.list(Some(JobStatus::Failed), 9, None).unwrap().0.len(), 1);
}
