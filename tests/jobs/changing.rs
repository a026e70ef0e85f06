//! Workspaces that change during policy checks and copying, and workspaces that contain the store.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cofferdam_test_server::service::Service;
use cofferdam_test_support::has;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doors::{EACH, doors, job_server, post_job, wait_for_end};
use crate::workspace::{Workspace, with};

/// The number of jobs in one race.
const JOBS: usize = 60;

/// The results of `JOBS` jobs for `request`, which run while `change` is called repeatedly.
fn raced(service: &Service, request: &Value, change: impl Fn(u64) + Sync) -> Vec<Value> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                change(turn);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let ids: Vec<String> = (0..JOBS)
            .map(|_| {
                let answer = post_job(service, request);
                let body: Value = serde_json::from_str(&answer.body).unwrap();
                body["job_id"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
            })
            .collect();
        let results = ids.iter().map(|id| wait_for_end(service, id)).collect();
        is_over.store(true, Ordering::Relaxed);
        results
    })
}

fn request_for(path: &Path) -> Value {
    let request = Workspace::empty().request(&["cat", "data"]);
    with(request, "workspace.path", path.to_str().unwrap())
}

#[test]
fn no_job_copies_from_outside_the_roots_while_a_link_is_swapped() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let place = TempDir::new().unwrap();
    let at = |name: &str| place.path().join(name);
    for (directory, text) in [("roots/good", "inside"), ("outside", "outside")] {
        fs::create_dir_all(at(directory)).unwrap();
        fs::write(at(directory).join("data"), text).unwrap();
    }
    symlink(at("roots/good"), at("roots/link")).unwrap();
    symlink(at("outside"), at("roots/other")).unwrap();
    let service = job_server(&at("store"))
        .env("JOBS_WORKSPACE_ROOTS", at("roots"))
        .env("JOBS_QUEUE_MAX", "1000")
        .env("JOBS_WORKERS", "4")
        .start();
    let flip = |_| {
        let (link, other) = (at("roots/link"), at("roots/other"));
        let exchange = RenameFlags::RENAME_EXCHANGE;
        renameat2(AT_FDCWD, &link, AT_FDCWD, &other, exchange).unwrap();
    };
    let results = raced(&service, &request_for(&at("roots/link")), flip);
    let mut seen = [0; 2];
    for result in &results {
        match result["status"].as_str().unwrap() {
            "completed" => seen[0] += 1,
            "policy_denied" => seen[1] += 1,
            _ => panic!("{result}"),
        }
        assert_ne!(result["stdout"]["text"], "outside", "copied from outside: {result}");
    }
    eprintln!("of {JOBS} jobs {} ran and {} were denied", seen[0], seen[1]);
}

#[test]
fn no_job_fails_while_an_editor_saves_in_its_workspace() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let place = TempDir::new().unwrap();
    let workspace = Workspace::empty().file("data", "first");
    for number in 0..200 {
        fs::write(workspace.path().join(format!("file-{number}")), "x").unwrap();
    }
    let service =
        job_server(place.path()).env("JOBS_QUEUE_MAX", "1000").env("JOBS_WORKERS", "2").start();
    let save = |turn: u64| {
        let (new, build) = (workspace.path().join(".data.tmp"), workspace.path().join("made"));
        fs::write(&new, turn.to_string()).unwrap();
        fs::rename(&new, workspace.path().join("data")).unwrap();
        fs::create_dir_all(build.join("inner")).unwrap();
        fs::write(build.join("inner/object"), "o").unwrap();
        fs::remove_dir_all(&build).unwrap();
    };
    let results = raced(&service, &request_for(workspace.path()), save);
    let failed: Vec<_> = results.iter().filter(|result| result["status"] != "completed").collect();
    assert!(failed.is_empty(), "{} of {JOBS}: {}", failed.len(), failed[0]);
}

#[test]
fn no_door_accepts_its_store_as_a_workspace() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::empty().file("data", "d");
    for door in EACH {
        let secret = with(workspace.request(&["cat", "data"]), "command.env", json!({"LANG": "s"}));
        let secret = with(secret, "policy.allowed_env", json!(["LANG"]));
        let other = doors.result(door, &secret);
        let store = doors.store(door);
        let record = store.join("runs").join(other["job_id"].as_str().unwrap());
        assert!(record.join("request.json").exists(), "{door:?}");
        for path in [store.clone(), store.join("runs"), record] {
            let result = doors.result(door, &request_for(&path));
            assert_eq!(result["status"], "policy_denied", "{door:?} {}", path.display());
            assert_eq!(result["error"]["code"], "policy.workspace_denied", "{result}");
        }
        // A workspace that contains the store is copied without it.
        let around =
            with(workspace.request(&["ls"]), "workspace.path", store.parent().unwrap().to_str());
        let result = doors.result(door, &around);
        let name = store.file_name().unwrap().to_str().unwrap();
        let listed = result["stdout"]["text"].as_str().unwrap();
        assert!(
            result["status"] == "completed" && !listed.lines().any(|line| line == name),
            "{result}"
        );
    }
}
