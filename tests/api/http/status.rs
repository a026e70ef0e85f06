//! `GET /status`: what the service reports about itself, also when it is busy or draining.

use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{Answer, request};
use cofferdam_test_server::service::{Service, Setup, best_of_three, cofferdam, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

fn status(service: &Service) -> Value {
    let answer = service.get("/status");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{}", answer.head);
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn status_agrees_with_the_start_line_and_the_doctor() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "3").env("STANDBY_MAX", "2").start();
    let told = status(&service);
    let keys: Vec<&str> = told.as_object().unwrap().keys().map(String::as_str).collect();
    let mut want = vec![
        "version",
        "uptime_seconds",
        "draining",
        "slots",
        "standby",
        "prestart",
        "languages",
        "enforced",
        "not_enforced",
        "environment",
        "controls",
    ];
    want.sort_unstable();
    assert_eq!(keys, want);
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&told["slots"]["in_use"], &told["slots"]["capacity"]), (&0.into(), &3.into()));
    assert_eq!(told["standby"]["max"], 2);
    assert!(told["languages"].as_array().unwrap().contains(&"python".into()), "{told}");
    let log = service.log.text();
    let ready = log.lines().find(|line| line.contains("enforced: {")).unwrap();
    let (_, enforced) = ready.split_once("enforced: ").unwrap();
    assert_eq!(told["enforced"], serde_json::from_str::<Value>(enforced).unwrap());
    let gaps = log.lines().filter(|line| line.contains("] not enforced: ")).count();
    assert_eq!(told["not_enforced"].as_array().unwrap().len(), gaps, "{log}");

    let doctor =
        std::process::Command::new(cofferdam()).args(["doctor", "--json"]).output().unwrap();
    let doctor: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(told["environment"], doctor["environment"]);
    let rows = |report: &Value| -> Vec<(Value, Value, Value)> {
        let row = |control: &Value| {
            (control["name"].clone(), control["status"].clone(), control["fix"].clone())
        };
        report["controls"].as_array().unwrap().iter().map(row).collect()
    };
    assert_eq!(rows(&told), rows(&doctor));
}

#[test]
fn status_counts_running_runs_and_uptime() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "2").start();
    let live = service.live("sleep 30");
    assert_eq!(status(&service)["slots"]["in_use"], 1);
    live.abort();
    let in_use = || status(&service)["slots"]["in_use"] == 0;
    wait_until("the slot", Duration::from_secs(10), in_use);
    let until = Instant::now() + Duration::from_millis(1100);
    std::thread::sleep(until - Instant::now());
    assert!(status(&service)["uptime_seconds"].as_u64().unwrap() >= 1);
    // A language that turns out to be unavailable is no longer listed.
    std::fs::remove_file(service.workspace().path().join("Makefile")).unwrap();
    assert_eq!(service.run("true").status, 503);
    assert!(!status(&service)["languages"].as_array().unwrap().contains(&"python".into()));
}

#[test]
fn status_has_jobs_only_if_they_are_enabled() {
    assert!(status(&Setup::shell().env("JOBS", "off").start()).get("jobs").is_none());
    let store = tempfile::tempdir().unwrap();
    let service = Setup::shell().env("JOBS_STORE_DIR", store.path()).env("JOBS_WORKERS", "3");
    let told = status(&service.start());
    assert_eq!(told["jobs"], serde_json::json!({"queued": 0, "running": 0, "workers": 3}));
}

#[test]
fn status_answers_within_100_ms_with_every_slot_busy_and_during_a_drain() {
    let _alone = alone();
    let service = Setup::shell().env("RUN_CONCURRENCY", "2").start();
    let busy = [0, 1].map(|_| service.live("while :; do :; done"));
    let ask = |draining: bool| {
        let start = Instant::now();
        let told = status(&service);
        let took = start.elapsed();
        assert_eq!(told["draining"], draining, "{told}");
        assert_eq!(told["slots"]["in_use"], 2, "{told}");
        took
    };
    best_of_three(Duration::from_millis(100), || ask(false));
    service.signal(Signal::SIGTERM);
    service.wait_draining();
    best_of_three(Duration::from_millis(100), || ask(true));
    drop(busy);
}

#[test]
fn status_contains_no_host_path_and_no_secret() {
    let service =
        Setup::shell().env("RUN_ENV_ALLOW", "OPERATORS").env("OPERATORS", "s3cret").start();
    let answer = service.get("/status");
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    let workspace = service.workspace().path().display().to_string();
    for private in [workspace.as_str(), "s3cret", "/run/cofferdam"] {
        assert!(!answer.body.contains(private), "{private}: {}", answer.body);
    }
    let reasons = told["controls"].as_array().unwrap().iter().map(|control| &control["reason"]);
    for reason in reasons.chain(told["not_enforced"].as_array().unwrap()) {
        assert!(!reason.as_str().unwrap().contains("/sys/fs/cgroup/"), "{reason}");
    }
}

#[test]
fn status_allows_get_and_head_from_any_origin() {
    let service = Setup::shell().start();
    let with_origin = request("GET", "/status", "origin: https://evil.example\r\n");
    let answer: Answer = service.ask(with_origin);
    assert_eq!(answer.status, 200);
    let named = answer.head.to_lowercase();
    assert!(!named.contains("access-control-allow-origin"), "{named}");
    let mut client = service.connect();
    client.send(request("HEAD", "/status", ""));
    assert_eq!(client.head().status, 200);
    let refused = service.ask(request("POST", "/status", "content-length: 0\r\n"));
    refused.assert_json(405, r#"{"error":"method not allowed"}"#);
    assert_eq!(refused.header("allow"), Some("GET,HEAD"));
}
