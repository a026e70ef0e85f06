//! Metrics of agents' jobs: final states, waiting and running jobs.

use std::fs;
use std::time::Duration;

use cofferdam_test_server::client::{Answer, request};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scrape;

/// How long a job may take to start or to end on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the server with jobs and the engine, and returns it with the temporary directory of their
/// stores.
pub fn with_jobs(setup: Setup) -> (Service, TempDir) {
    let store = TempDir::new().unwrap();
    let setup = setup.env("ENGINE_STORE_DIR", store.path().join("engine"));
    (setup.env("JOBS_STORE_DIR", store.path().join("store")).start(), store)
}

/// Whether jobs can run here; `REQUIRE_PRIVILEGED=1` requires it.
pub fn is_privileged() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
        eprintln!("SKIP: not root");
    }
    is_root
}

/// A workspace that jobs copy.
fn workspace() -> TempDir {
    let workspace = TempDir::new().unwrap();
    fs::write(workspace.path().join("file"), "x").unwrap();
    workspace
}

/// A request that runs `argv` in `workspace`, and allows it.
fn job(workspace: &TempDir, argv: &[&str]) -> Value {
    json!({
        "workspace": {"source": "local_path", "path": workspace.path()},
        "command": {"argv": argv},
        "policy": {"allowed_commands": [argv[0]]},
    })
}

pub fn post_to(service: &Service, target: &str, body: &str) -> Answer {
    let length = format!("content-length: {}\r\n", body.len());
    service.ask([request("POST", target, &length), body.to_owned()].concat())
}

/// Submits a job, which must be accepted, under its id.
#[track_caller]
fn take(service: &Service, mut job: Value, id: &str) {
    job["job_id"] = id.into();
    let answer = post_to(service, "/v1/jobs", &job.to_string());
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[track_caller]
fn cancel(service: &Service, id: &str) {
    let answer = post_to(service, &format!("/v1/jobs/{id}/cancel"), "");
    assert_eq!(answer.status, 202, "{answer:?}");
}

/// The number of jobs that ended in the state `status`.
fn ended(service: &Service, status: &str) -> f64 {
    scrape(service).get("cofferdam_jobs_total", &[("status", status)])
}

/// The numbers of waiting and running jobs.
fn live(service: &Service) -> (f64, f64) {
    let scraped = scrape(service);
    (scraped.get("cofferdam_jobs_queued", &[]), scraped.get("cofferdam_jobs_running", &[]))
}

#[test]
fn a_job_is_counted_once_under_its_final_state() {
    if !is_privileged() {
        return;
    }
    let (service, _store) = with_jobs(Setup::shell());
    let workspace = workspace();
    let with = |argv: &[&str], part: &str, value: Value| {
        let mut job = job(&workspace, argv);
        job[part] = value;
        job
    };
    let first = scrape(&service);
    let states: Vec<String> = first
        .all("cofferdam_jobs_total")
        .map(|sample| (sample.labels["status"].clone(), sample.value))
        .map(|(status, count)| {
            assert_eq!(count, 0.0, "{status}");
            status
        })
        .collect();
    let mut seen = Vec::new();
    for (status, job) in [
        ("completed", job(&workspace, &["true"])),
        ("failed", job(&workspace, &["false"])),
        ("timed_out", with(&["sleep", "60"], "limits", json!({"timeout_ms": 200}))),
        ("policy_denied", with(&["true"], "policy", json!({"allowed_commands": []}))),
        ("setup_failed", with(&["true"], "limits", json!({"snapshot_bytes": 0}))),
        ("backend_unavailable", with(&["true"], "backend", json!({"kind": "firecracker"}))),
        ("canceled", job(&workspace, &["sleep", "60"])),
    ] {
        take(&service, job, status);
        if status == "canceled" {
            wait_until("the job", PATIENCE, || live(&service) == (0.0, 1.0));
            cancel(&service, status);
        }
        wait_until(status, PATIENCE, || ended(&service, status) == 1.0);
        seen.push(status);
        let all = scrape(&service).sum("cofferdam_jobs_total");
        assert_eq!(all, seen.len() as f64, "{status} was also counted as another state");
    }
    assert_eq!(seen, states, "a state is not tested");
    assert_eq!(live(&service), (0.0, 0.0));
}

#[test]
fn waiting_and_running_jobs_are_reported() {
    if !is_privileged() {
        return;
    }
    let setup = Setup::shell().env("JOBS_WORKERS", "1").env("JOBS_QUEUE_MAX", "2");
    let (service, store) = with_jobs(setup);
    let (workspace, sleeps) = (workspace(), ["sleep", "60"]);
    let scraped = scrape(&service);
    assert_eq!(scraped.get("cofferdam_jobs_workers", &[]), 1.0);
    assert_eq!(scraped.get("cofferdam_jobs_queue_max", &[]), 2.0);
    assert_eq!(live(&service), (0.0, 0.0));
    // Requests do not create a store.
    assert!(!store.path().join("store").exists());
    take(&service, job(&workspace, &sleeps), "first");
    wait_until("the first job", PATIENCE, || live(&service) == (0.0, 1.0));
    take(&service, job(&workspace, &sleeps), "second");
    take(&service, job(&workspace, &sleeps), "third");
    assert_eq!(live(&service), (2.0, 1.0));
    assert_eq!(post_to(&service, "/v1/jobs", &job(&workspace, &sleeps).to_string()).status, 503);
    let refused = scrape(&service).get("cofferdam_refusals_total", &[("reason", "queue_full")]);
    assert_eq!(refused, 1.0);
    // A waiting job ends without a worker.
    cancel(&service, "second");
    wait_until("its end", PATIENCE, || ended(&service, "canceled") == 1.0);
    assert_eq!(live(&service), (1.0, 1.0));
    cancel(&service, "first");
    wait_until("the next job", PATIENCE, || live(&service) == (0.0, 1.0));
    cancel(&service, "third");
    wait_until("the end of all", PATIENCE, || live(&service) == (0.0, 0.0));
    wait_until("their count", PATIENCE, || ended(&service, "canceled") == 3.0);
    let scraped = scrape(&service);
    assert_eq!(scraped.get("cofferdam_jobs_workers", &[]), 1.0);
    assert_eq!(scraped.get("cofferdam_jobs_queue_max", &[]), 2.0);
}

#[test]
fn without_jobs_no_job_metrics_are_reported() {
    let service = Setup::shell().env("JOBS", "off").start();
    assert!(!service.get("/metrics").body.contains("cofferdam_jobs"));
}
