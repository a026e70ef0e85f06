//! A service that is killed at random moments: after a restart every accepted job is over or marked
//! as interrupted, no file is torn, and no sandbox remains.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, request};
use cofferdam_test_server::host::{self, Footprint};
use cofferdam_test_support::has;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doors::{job_server, wait_for_end};
use crate::workspace::{Workspace, with};

/// The number of kills in the suite; `make soak-jobs` does more.
const KILLS: &str = "JOBS_KILLS";
const KILLS_DEFAULT: usize = 8;
/// The longest time from a service's start to its death.
const LIFE_MAX_MS: u64 = 600;

/// Posts jobs until the service is dead; returns the ids of the accepted ones.
fn post_until_dead(address: std::net::SocketAddr, requests: &[Value], life: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for (number, base) in requests.iter().cycle().enumerate() {
        let id = format!("life{life}-job{number}");
        let body = with(base.clone(), "job_id", id.as_str()).to_string();
        let head = request("POST", "/v1/jobs", &format!("content-length: {}\r\n", body.len()));
        let Some(mut client) = Client::try_connect(address) else { break };
        let Some(answer) = client.try_ask([head.as_bytes(), body.as_bytes()].concat()) else {
            break;
        };
        match answer.status {
            202 => taken.push(id),
            503 => thread::sleep(Duration::from_millis(20)),
            _ => panic!("{answer:?}"),
        }
    }
    taken
}

/// Asserts that every JSON file below `runs` is complete.
fn assert_nothing_torn(store: &Path) {
    for job in fs::read_dir(store.join("runs")).unwrap() {
        let job = job.unwrap().path();
        let name = job.file_name().unwrap().to_str().unwrap();
        assert!(!name.starts_with('.'), "{name} is left over");
        for file in ["request.json", "status.json", "result.json"] {
            let text =
                fs::read(job.join(file)).unwrap_or_else(|error| panic!("{name}/{file}: {error}"));
            let parsed: Result<Value, _> = serde_json::from_slice(&text);
            assert!(parsed.is_ok(), "{name}/{file}: {parsed:?}");
        }
        let left = fs::read_dir(&job).unwrap().map(|entry| entry.unwrap().file_name());
        for file in left {
            let known = [
                "request.json",
                "status.json",
                "result.json",
                "snapshot.json",
                "stdout",
                "stderr",
                "artifacts",
            ];
            assert!(known.contains(&file.to_str().unwrap()), "{name}/{file:?} is left over");
        }
    }
    let set_aside = store.join("quarantine");
    assert_eq!(fs::read_dir(set_aside).map_or(0, Iterator::count), 0, "records were set aside");
}

#[test]
fn every_accepted_job_is_over_or_interrupted_after_a_restart() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let kills = std::env::var(KILLS).map_or(KILLS_DEFAULT, |kills| kills.parse().unwrap());
    let store = TempDir::new().unwrap();
    let marker = format!("killed-{}", std::process::id());
    let quick = Workspace::python("print('quick'); open('out', 'w').write('x' * 1000)");
    let slow = Workspace::python(&format!(
        "import subprocess, time\nprint('slow', flush=True)\nsubprocess.Popen(['python3', '-c', 'import time; time.sleep(60)', '{marker}'], executable='/usr/bin/python3')\ntime.sleep(0.3)"
    ));
    let keep = |request| with(request, "policy.artifacts", json!({"include": ["out"]}));
    let requests = [keep(quick.run_main()), slow.run_main(), keep(quick.run_main())];
    let random = RandomState::new();
    let (mut taken, mut interrupted) = (BTreeSet::<String>::new(), 0);
    let mut footprints = Vec::new();
    let began = Instant::now();
    for life in 0..=kills {
        let mut service = job_server(store.path()).env("JOBS_WORKERS", "2").start();
        if life == kills {
            // This service is not killed and must know all jobs.
            for id in &taken {
                let result = wait_for_end(&service, id);
                match result["status"].as_str().unwrap() {
                    "completed" => {
                        assert!(result["stdout"]["text"].as_str().unwrap().ends_with('\n'));
                    }
                    "failed" => {
                        assert_eq!(result["error"]["code"], "run.interrupted", "{result}");
                        interrupted += 1;
                    }
                    _ => panic!("{id}: {result}"),
                }
            }
            footprints.push(Footprint::of(service.pid()));
            service.stop();
            break;
        }
        footprints.push(Footprint::of(service.pid()));
        let (address, requests) = (service.address, requests.clone());
        let client = thread::spawn(move || post_until_dead(address, &requests, life));
        thread::sleep(Duration::from_millis(random.hash_one(life) % LIFE_MAX_MS));
        service.kill();
        taken.extend(client.join().unwrap());
    }
    assert_nothing_torn(store.path());
    footprints.iter().for_each(Footprint::assert_gone);
    assert!(!host::has_process(&marker), "a program outlived its service");
    assert!(taken.len() >= kills, "{} jobs in {kills} lives", taken.len());
    eprintln!(
        "{} jobs taken in {kills} lives, {interrupted} interrupted, {:.0?}",
        taken.len(),
        began.elapsed()
    );
}
