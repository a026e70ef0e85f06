//! Metrics of sandboxes: the standby pool, cleanup, leftovers of killed servers, and controls.

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::host::ready_sandboxes;
use cofferdam_test_server::service::{Service, Setup, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{figure, scrape};

/// How long preparing or discarding a sandbox may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Attempts, since the server of another test may remove the leftovers first.
const TRIES: usize = 5;

/// The prepared sandboxes that are ready, created, used and dropped.
fn standby(service: &Service) -> [f64; 4] {
    let scraped = scrape(service);
    ["ready", "made_total", "used_total", "dropped_total"]
        .map(|name| scraped.get(&format!("cofferdam_standby_boxes_{name}"), &[]))
}

#[test]
fn prepared_sandboxes_are_counted_when_created_used_and_discarded() {
    let service = Setup::shell().env("STANDBY_MAX", "3").start();
    let scraped = scrape(&service);
    assert_eq!(scraped.get("cofferdam_standby_boxes_max", &[]), 3.0);
    assert_eq!(standby(&service), [0.0; 4]);
    // After the first run the server prepares a sandbox, which the second run uses.
    assert_eq!(service.run("true").status, 200);
    wait_until("a prepared sandbox", PATIENCE, || standby(&service) == [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(service.run("true").status, 200);
    wait_until("the next sandbox", PATIENCE, || standby(&service) == [1.0, 2.0, 1.0, 0.0]);
    // No run uses a dead sandbox.
    let ready = ready_sandboxes(service.pid());
    assert_eq!(ready.len(), 1);
    kill(Pid::from_raw(ready[0].pid), Signal::SIGKILL).unwrap();
    wait_until("its end", PATIENCE, || !ready[0].is_alive());
    assert_eq!(service.run("echo hi").stdout(), "hi\n");
    wait_until("another sandbox", PATIENCE, || standby(&service) == [1.0, 3.0, 1.0, 1.0]);
    assert_eq!(figure(&service, "cofferdam_standby_boxes_failed_total"), 0.0);
}

#[test]
fn without_a_standby_pool_no_prepared_sandboxes_are_reported() {
    let service = Setup::shell().env("STANDBY_MAX", "0").start();
    assert_eq!(service.run("true").status, 200);
    assert_eq!(figure(&service, "cofferdam_standby_boxes_max"), 0.0);
    assert_eq!(standby(&service), [0.0; 4]);
}

#[test]
fn dead_sandboxes_are_reported_until_cleanup() {
    let service = Setup::shell().start();
    let seen = thread::scope(|scope| {
        let load = scope.spawn(|| {
            for _ in 0..200 {
                assert_eq!(service.run("true").status, 200);
            }
        });
        let mut most = 0.0_f64;
        while !load.is_finished() {
            most = most.max(figure(&service, "cofferdam_cleanup_backlog"));
        }
        load.join().unwrap();
        most
    });
    let limit = figure(&service, "cofferdam_cleanup_backlog_max");
    // The sandbox under cleanup counts with those that wait.
    assert!(seen >= 1.0 && seen <= limit + 1.0, "{seen} of {limit}");
    wait_until("the last of them", PATIENCE, || {
        figure(&service, "cofferdam_cleanup_backlog") == 0.0
    });
    assert_eq!(figure(&service, "cofferdam_kill_failures_total"), 0.0);
}

#[test]
fn leftovers_of_a_killed_server_are_reported_by_the_server_that_removes_them() {
    let mut all = Vec::new();
    for _ in 0..TRIES {
        let mut dead = Setup::shell().env("STANDBY_MAX", "0").start();
        let live = dead.live("sleep 60 & sleep 60");
        dead.kill();
        drop(live);
        let next = Setup::shell().start();
        let scraped = scrape(&next);
        let swept = ["servers", "boxes", "processes"]
            .map(|name| scraped.get(&format!("cofferdam_swept_{name}"), &[]));
        all.push(swept);
        // Its processes may die with it, but its sandbox remains until the next start.
        if swept[0] >= 1.0 && swept[1] >= 1.0 {
            drop(next);
            return;
        }
    }
    panic!("no start has removed it: {all:?}");
}

#[test]
fn a_control_is_reported_as_enforced_unless_the_start_logged_otherwise() {
    let service = Setup::shell().start();
    let log = service.log.text();
    let scraped = scrape(&service);
    let mut controls = 0.0;
    for sample in scraped.all("cofferdam_control_enforced") {
        let control = &sample.labels["control"];
        let missing = log.contains(&format!("not enforced: {control}: "));
        assert_eq!(sample.value, f64::from(u8::from(!missing)), "{control}\n{log}");
        controls += 1.0;
    }
    let gaps = log.matches("not enforced: ").count();
    let told = controls - scraped.sum("cofferdam_control_enforced");
    assert_eq!(told, gaps as f64, "{log}");
    assert!(controls >= 8.0, "{controls}");
}

#[test]
fn the_cpu_time_of_the_server_rises_and_excludes_its_sandboxes() {
    let service = Setup::shell().start();
    let began = Instant::now();
    let before = figure(&service, "process_cpu_seconds_total");
    assert_eq!(service.run("timeout 1 sh -c 'while :; do :; done'; true").status, 200);
    while figure(&service, "process_cpu_seconds_total") <= before {
        assert!(began.elapsed() < PATIENCE, "the CPU time does not rise");
    }
    let used = figure(&service, "process_cpu_seconds_total") - before;
    assert!(used < 0.5, "{used} s, which includes the CPU time of a sandbox");
}
