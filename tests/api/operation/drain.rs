//! Rows 2, 5, 6 and 7 of the contract: shutting down.

use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, post, request, solution};
use cofferdam_test_server::host::{Footprint, is_running};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use nix::sys::signal::Signal;

const DRAINING: &str = r#"{"error":"draining"}"#;
/// For what must happen at once, on a loaded machine.
const SOON: Duration = Duration::from_secs(10);

/// Posts a run of `script` on its own connection and waits until it sleeps.
fn begin(service: &Service, script: &str) -> Client {
    let mut client = service.connect();
    client.send(post("", solution(script).to_string()));
    wait_until("the program", SOON, || is_running(service.pid(), "sleep"));
    client
}

#[test]
fn a_drain_by_request_ends_the_process_after_the_last_run() {
    for value in ["1", "true"] {
        let mut service = Setup::shell().env("ALLOW_SHUTDOWN", value).start();
        let mut live = begin(&service, "sleep 1; echo ended; exit 3");
        service.ask(request("POST", "/shutdown", "")).assert_text(200, "shutdown\n");
        service.run("true").assert_json(503, DRAINING);
        service.get("/health").assert_text(503, "draining\n");
        live.answer().assert_json(200, r#"{"exit_code":3,"stdout":"ended\n","stderr":""}"#);
        assert_eq!(service.wait_end(SOON).code(), Some(0));
    }
}

#[test]
fn a_drain_without_runs_ends_the_process() {
    let mut service = Setup::shell().env("ALLOW_SHUTDOWN", "1").start();
    // An idle connection does not delay the end.
    let mut idle = service.connect();
    idle.ask(request("GET", "/health", "")).assert_text(200, "ok\n");
    service.ask(request("POST", "/shutdown", "")).assert_text(200, "shutdown\n");
    assert_eq!(service.wait_end(SOON).code(), Some(0));
}

#[test]
fn a_signal_starts_the_same_drain_as_a_request() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut service = Setup::shell().start();
        let mut live = begin(&service, "sleep 1; echo ended");
        service.signal(signal);
        service.wait_draining();
        service.get("/health").assert_text(503, "draining\n");
        let refusal = service.run("true");
        refusal.assert_json(503, DRAINING);
        assert_eq!(refusal.header("retry-after"), Some("1"));
        assert_eq!(live.answer().stdout(), "ended\n");
        assert_eq!(service.wait_end(SOON).code(), Some(0));
    }
}

#[test]
fn runs_are_cancelled_after_the_grace_period_and_leave_nothing() {
    let mut service = Setup::shell().env("SHUTDOWN_GRACE", "300ms").start();
    let footprint = Footprint::of(service.pid());
    let mut live = begin(&service, "trap '' TERM; setsid sleep 60 & sleep 60");
    service.signal(Signal::SIGTERM);
    let answer = live.answer();
    answer.assert_json(200, r#"{"exit_code":null,"stdout":"","stderr":""}"#);
    assert_eq!(answer.header("x-run-outcome"), Some("cancelled"));
    assert_eq!(service.wait_end(SOON).code(), Some(0));
    footprint.assert_gone();
}

#[test]
fn the_default_grace_period_is_several_seconds() {
    let mut service = Setup::shell().start();
    let mut live = begin(&service, "sleep 3; echo ended");
    service.signal(Signal::SIGTERM);
    assert_eq!(live.answer().stdout(), "ended\n");
    assert_eq!(service.wait_end(SOON).code(), Some(0));
}

#[test]
fn a_second_signal_kills_at_once() {
    for (first, second) in [(Signal::SIGTERM, Signal::SIGTERM), (Signal::SIGINT, Signal::SIGTERM)] {
        let mut service = Setup::shell().start();
        let footprint = Footprint::of(service.pid());
        let mut live = begin(&service, "sleep 60");
        service.signal(first);
        service.wait_draining();
        let start = Instant::now();
        service.signal(second);
        let answer = live.answer();
        assert_eq!(answer.header("x-run-outcome"), Some("cancelled"), "{answer:?}");
        assert_eq!(service.wait_end(SOON).code(), Some(0));
        assert!(start.elapsed() < SOON);
        footprint.assert_gone();
    }
}
