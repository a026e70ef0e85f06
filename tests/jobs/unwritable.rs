//! A store that is temporarily unwritable: no result is lost or reported wrongly.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::request;
use cofferdam_test_server::service::{Service, wait_until};
use cofferdam_test_support::has;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doors::{job_server, post_job, wait_for_end};
use crate::workspace::{Workspace, with};

const PATIENCE: Duration = Duration::from_secs(40);

/// Calls `body` with a store on a private disk of 1 MiB.
fn on_a_small_disk(body: impl FnOnce(&Path) + Send + 'static) {
    let own = move || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let (place, none) = (TempDir::new().unwrap(), None::<&str>);
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(none, place.path(), Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();
        body(place.path());
        umount(place.path()).unwrap();
    };
    thread::spawn(own).join().unwrap();
}

/// Fills the disk of `directory`.
fn fill_up(directory: &Path) {
    let mut filler = fs::File::create(directory.join("filler")).unwrap();
    let full = loop {
        if let Err(error) = filler.write_all(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
}

fn post(service: &Service, request: &Value, id: &str) {
    let answer = post_job(service, &with(request.clone(), "job_id", id));
    assert_eq!(answer.status, 202, "{answer:?}");
}

fn get(service: &Service, path: &str) -> Value {
    let answer = service.get(path);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

fn wait_running(service: &Service, id: &str) {
    let path = format!("/v1/jobs/{id}");
    wait_until("the start of the job", PATIENCE, || get(service, &path)["status"] == "running");
}

/// The events of a job up to the end of the stream.
fn events(service: &Service, id: &str) -> String {
    let mut follower = service.connect();
    follower.send(request("GET", &format!("/v1/jobs/{id}/events"), "connection: close\r\n"));
    String::from_utf8(follower.rest()).unwrap()
}

fn cancel(service: &Service, id: &str) -> u16 {
    service.ask(request("POST", &format!("/v1/jobs/{id}/cancel"), "content-length: 0\r\n")).status
}

#[test]
fn a_full_store_delays_only_the_writing_of_a_result() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    on_a_small_disk(|store| {
        let mut service = job_server(store).env("JOBS_WORKERS", "1").start();
        let slow = Workspace::python("import time; print('kept', flush=True); time.sleep(1.5)");
        let quick = Workspace::python("print('quick')");
        post(&service, &slow.run_main(), "slow");
        for waiting in ["waits", "canceled"] {
            post(&service, &quick.run_main(), waiting);
        }
        wait_running(&service, "slow");
        // Its last file before its end exists: from here on the service writes nothing.
        let snapshot = store.join("runs/slow/snapshot.json");
        wait_until("the snapshot", PATIENCE, || snapshot.exists());
        thread::sleep(Duration::from_millis(300));
        fill_up(store);
        let told = events(&service, "slow");
        assert!(told.contains("event: result") && !told.contains("event: error"), "{told}");
        let is_terminal = |result: &Value| {
            result["status"] == "completed"
                && result["exit_code"] == 0
                && result["stdout"]["text"] == "kept\n"
        };
        let result = get(&service, "/v1/jobs/slow");
        assert!(is_terminal(&result), "{result}");
        assert!(!store.join("runs/slow/result.json").exists(), "the disk is not full");
        let told_again = events(&service, "slow");
        assert!(told_again.contains("event: result"), "{told_again}");
        assert_eq!(get(&service, "/v1/jobs/slow/artifacts"), json!({"artifacts": []}));
        let list = get(&service, "/v1/jobs?status=completed");
        assert_eq!(list["jobs"][0]["job_id"], "slow", "{list}");
        assert_eq!(cancel(&service, "slow"), 409);
        // New jobs are refused, and waiting jobs do not start.
        let refused = post_job(&service, &quick.run_main());
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        assert!(!refused.body.contains(store.to_str().unwrap()), "{refused:?}");
        let error: Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(error["code"], "queue.closed");
        assert_eq!(error["details"]["reason"], "store_unwritable");
        assert_eq!(get(&service, "/v1/jobs/waits")["status"], "queued");
        assert_eq!(cancel(&service, "canceled"), 202);
        assert_eq!(get(&service, "/v1/jobs/canceled")["status"], "canceled");
        // The disk has space again.
        fs::remove_file(store.join("filler")).unwrap();
        let written = |id: &str| store.join(format!("runs/{id}/result.json")).exists();
        wait_until("the results", PATIENCE, || written("slow") && written("canceled"));
        assert_eq!(get(&service, "/v1/jobs/slow"), result);
        assert_eq!(wait_for_end(&service, "waits")["status"], "completed");
        wait_until("an accepted job", PATIENCE, || {
            post_job(&service, &with(quick.run_main(), "job_id", "next")).status == 202
        });
        assert_eq!(wait_for_end(&service, "next")["status"], "completed");
        service.kill();
        drop(service);
        let service = job_server(store).start();
        assert_eq!(get(&service, "/v1/jobs/slow"), result);
        drop(service);
    });
}

#[test]
fn a_failed_rename_is_retried_and_a_lasting_failure_is_not_reported_as_a_death() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let store = TempDir::new().unwrap();
    let slow = Workspace::python("import time; time.sleep(1)");
    let setup = || job_server(store.path()).env("JOBS_WORKERS", "2").env("SHUTDOWN_GRACE", "1s");
    let mut service = setup().start();
    // A directory in place of the result: no file can be renamed over it.
    let in_the_way = |id: &str| {
        post(&service, &slow.run_main(), id);
        wait_running(&service, id);
        let place = store.path().join(format!("runs/{id}/result.json"));
        fs::create_dir(&place).unwrap();
        let told = events(&service, id);
        assert!(told.contains("event: result") && !told.contains("event: error"), "{told}");
        assert_eq!(get(&service, &format!("/v1/jobs/{id}"))["status"], "completed");
        place
    };
    let place = in_the_way("passing");
    assert_eq!(post_job(&service, &slow.run_main()).status, 503);
    fs::remove_dir(&place).unwrap();
    wait_until("the result", PATIENCE, || place.is_file());
    wait_until("the end of all pending writes", PATIENCE, || {
        post_job(&service, &with(slow.run_main(), "job_id", "between")).status == 202
    });
    wait_for_end(&service, "between");
    let place = in_the_way("lasting");
    let began = Instant::now();
    service.stop();
    assert!(began.elapsed() < PATIENCE);
    let log = service.log.text();
    assert!(log.contains("job's result lost") && log.contains("lasting"), "{log}");
    drop(service);
    fs::remove_dir(&place).unwrap();
    let service = setup().start();
    assert_eq!(get(&service, "/v1/jobs/passing")["status"], "completed");
    let error = get(&service, "/v1/jobs/lasting")["error"].clone();
    assert_eq!(error["code"], "run.interrupted");
    assert!(!error["message"].as_str().unwrap().contains("died"), "{error}");
}
