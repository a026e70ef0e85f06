//! Several processes share one store: one service owns it, commands run jobs concurrently, and each
//! sees the true state of the others' jobs.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use cofferdam_test_server::client::request;
use cofferdam_test_server::service::{Service, Setup, cofferdam, wait_until};
use cofferdam_test_server::workspace::Workspace as RunWorkspace;
use cofferdam_test_support::has;
use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;

use crate::doors::{job_server, post_job, post_to, wait_for_end};
use crate::workspace::{Workspace, with};

const PATIENCE: Duration = Duration::from_secs(40);
/// Invalid records that no `job run` may read: a process that reads one sets it aside.
const UNREAD_RECORDS: usize = 3000;

fn job(words: &[&str], store: &Path) -> Command {
    let mut command = Command::new(cofferdam());
    command.arg("job").args(words).arg("--store-dir").arg(store);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts `job run` of `request` over the store.
fn run_beside(store: &Path, request: &Value) -> Child {
    let mut child = job(&["run", "-"], store).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    child
}

#[track_caller]
fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The JSON that a job command prints.
#[track_caller]
fn told(words: &[&str], store: &Path) -> Value {
    json_of(&job(words, store).output().unwrap())
}

fn get(service: &Service, path: &str) -> (u16, Value) {
    let answer = service.get(path);
    (answer.status, serde_json::from_str(&answer.body).unwrap_or_default())
}

fn listed(list: &Value) -> Vec<&str> {
    let jobs = list["jobs"].as_array().unwrap().iter();
    jobs.map(|job| job["job_id"].as_str().unwrap()).collect()
}

fn wait_running(service: &Service, id: &str) {
    let path = format!("/v1/jobs/{id}");
    wait_until("the start of the job", PATIENCE, || get(service, &path).1["status"] == "running");
}

fn slow(seconds: f64, id: &str) -> (Workspace, Value) {
    let program = format!("import time; print('began', flush=True); time.sleep({seconds})");
    let workspace = Workspace::python(&program);
    let request = with(workspace.run_main(), "job_id", id);
    (workspace, request)
}

#[test]
fn a_service_and_concurrent_commands_see_each_others_jobs() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let place = TempDir::new().unwrap();
    let store = place.path().join("store");
    // The store does not exist yet.
    let service = job_server(&store).start();
    let (_first, first) = slow(2.0, "first");
    let (_second, second) = slow(2.0, "second");
    let (first, second) = (run_beside(&store, &first), run_beside(&store, &second));
    wait_running(&service, "first");
    let mut follower = service.connect();
    follower.send(request("GET", "/v1/jobs/first/events", "connection: close\r\n"));
    let events = String::from_utf8(follower.rest()).unwrap();
    assert!(events.contains("began") && events.contains("event: result"), "{events}");
    assert!(!events.contains("event: error"), "{events}");
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), &json_of(&output)["status"]),
            (Some(0), &"completed".into())
        );
    }
    let (_third, third) = slow(0.0, "third");
    assert_eq!(post_job(&service, &third).status, 202);
    wait_for_end(&service, "third");
    // Every process sees every job, even one created just before.
    let (_, list) = get(&service, "/v1/jobs");
    let mut names = listed(&list);
    names.sort_unstable();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(told(&["list"], &store), list);
    assert_eq!(told(&["status", "third"], &store)["status"], "completed");
    // A killed command.
    let (_fourth, fourth) = slow(60.0, "fourth");
    let mut child = run_beside(&store, &fourth);
    wait_running(&service, "fourth");
    assert_eq!(told(&["status", "fourth"], &store)["status"], "running");
    child.kill().unwrap();
    child.wait().unwrap();
    // The lock on the record is free when the init of its sandbox is dead too.
    wait_until("the interrupted job", PATIENCE, || {
        get(&service, "/v1/jobs/fourth").1["error"]["code"] == "run.interrupted"
    });
}

#[test]
fn a_store_has_one_service_and_passes_to_the_next_after_its_death() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let place = TempDir::new().unwrap();
    let store = place.path().join("store");
    let (mut first, second) = (job_server(&store).start(), job_server(&store).start());
    let (_workspace, request) = slow(60.0, "job");
    let post = |service: &Service| {
        post_to(service, "/v1/jobs", "idempotency-key: key\r\n", request.to_string())
    };
    assert_eq!(post(&first).status, 202);
    wait_running(&first, "job");
    for refused in [post(&second), second.get("/v1/jobs/job"), second.get("/v1/jobs")] {
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(!refused.body.contains(store.to_str().unwrap()), "{refused:?}");
        let error: Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(error["details"]["reason"], "store_owned", "{refused:?}");
    }
    let (code, words) = job_server(&store).refused();
    assert_eq!(code, Some(2), "{words}");
    let pid = first.pid().to_string();
    assert!(words.contains(&pid) && words.contains(store.to_str().unwrap()), "{words}");
    assert_eq!(told(&["status", "job"], &store)["status"], "running");
    first.kill();
    let line = told(&["status", "job"], &store);
    assert_eq!(line["status"], "failed", "{line}");
    assert_eq!(listed(&told(&["list", "--status", "failed"], &store)), ["job"]);
    let (status, result) = get(&second, "/v1/jobs/job");
    assert_eq!((status, &result["error"]["code"]), (200, &"run.interrupted".into()));
    let again = post(&second);
    assert_eq!(again.status, 202, "{again:?}");
    assert_eq!(fs::read_dir(store.join("runs")).unwrap().count(), 1, "one key, one job");
}

#[test]
fn a_service_starts_and_waits_for_a_default_store_in_use() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let place = TempDir::new().unwrap();
    let shell = RunWorkspace::shell();
    let start = || Setup::inside(place.path()).arg("--workspace").arg(shell.path()).start();
    let mut first = start();
    let (_workspace, request) = slow(0.0, "job");
    assert_eq!(post_job(&first, &request).status, 202);
    wait_for_end(&first, "job");
    let second = start();
    second.log.wait_for("jobs are refused until the store is free");
    assert_eq!(second.get("/v1/jobs/job").status, 503);
    assert_eq!(second.run("echo here").stdout(), "here\n");
    first.stop();
    assert_eq!(get(&second, "/v1/jobs/job").1["status"], "completed");
}

#[test]
fn a_command_reads_no_record_but_its_own() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let store = TempDir::new().unwrap();
    for index in 0..UNREAD_RECORDS {
        let record = store.path().join(format!("runs/record-{index}"));
        fs::create_dir_all(&record).unwrap();
        fs::write(record.join("status.json"), "no record").unwrap();
    }
    let (_workspace, request) = slow(0.0, "job");
    let output = run_beside(store.path(), &request).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let count = |directory: &str| fs::read_dir(store.path().join(directory)).unwrap().count();
    assert_eq!((count("quarantine"), count("runs")), (0, UNREAD_RECORDS + 1));
}

#[test]
fn the_size_limit_of_records_is_enforced_after_each_job() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    const MAX_BYTES: u64 = 2 << 20;
    let store = TempDir::new().unwrap();
    let service = job_server(store.path())
        .env("JOBS_WORKERS", "1")
        .env("JOBS_STORE_MAX", MAX_BYTES.to_string())
        .start();
    let workspace = Workspace::python("open('out', 'w').write('x' * 300_000)");
    let request = with(workspace.run_main(), "policy.artifacts.include", vec!["out"]);
    for index in 0..12 {
        let id = format!("job-{index:02}");
        assert_eq!(post_job(&service, &with(request.clone(), "job_id", id.as_str())).status, 202);
        assert_eq!(wait_for_end(&service, &id)["status"], "completed");
        // The job that has just ended is kept, whatever its size.
        let taken = bytes_below(&store.path().join("runs"));
        assert!(taken <= MAX_BYTES, "{taken} bytes after {id}");
    }
    let (_, list) = get(&service, "/v1/jobs");
    let names = listed(&list);
    assert!(names[0] == "job-11" && (3..9).contains(&names.len()), "{names:?}");
}

/// The total size of the files below a directory.
fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { bytes_below(&path) } else { path.metadata().unwrap().len() })
        .sum()
}

#[test]
fn a_removed_record_is_not_listed_and_a_removed_store_is_created_again() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let place = TempDir::new().unwrap();
    let store = place.path().join("store");
    let service = job_server(&store).start();
    let (_workspace, request) = slow(0.0, "one");
    for id in ["one", "two"] {
        assert_eq!(post_job(&service, &with(request.clone(), "job_id", id)).status, 202);
        wait_for_end(&service, id);
    }
    fs::remove_dir_all(store.join("runs/one")).unwrap();
    assert_eq!(listed(&get(&service, "/v1/jobs").1), ["two"]);
    assert_eq!(get(&service, "/v1/jobs/one").0, 404);
    fs::remove_dir_all(&store).unwrap();
    assert_eq!(get(&service, "/v1/jobs/two").0, 404);
    assert_eq!(listed(&get(&service, "/v1/jobs").1), [""; 0]);
    fs::remove_dir_all(&store).unwrap();
    let taken = post_job(&service, &request);
    assert_eq!(taken.status, 202, "{taken:?}");
    assert_eq!(wait_for_end(&service, "one")["status"], "completed");
    assert!(store.join("runs/one/result.json").is_file());
    // The service owns the new store too.
    assert_eq!(job_server(&store).refused().0, Some(2));
}
