//! A run has its own time limits, whatever limits its sandbox was prepared for.

use std::time::Duration;

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{Answer, solution_within};
use cofferdam_test_server::service::{Service, wait_until};
use serde_json::Value;

use crate::ready::{run_in_ready, shell_with, wait_ready};

/// How much later than its limit a run may end on a loaded machine and still not have the limit of
/// another run.
const LATE_MAX: Duration = Duration::from_millis(900);
/// Reaches its CPU limit if it gets enough CPU: two threads that compute.
const COMPUTE: &str = "exec python3 -Sc '
import hashlib, threading
def compute():
    while True: hashlib.pbkdf2_hmac(\"sha256\", b\"\", b\"\", 10000)
for _ in range(2): threading.Thread(target=compute).start()
'";

/// Runs `body` when one sandbox is prepared, and waits for the end of that sandbox.
fn taken(service: &Service, body: &Value) -> Answer {
    let ready = wait_ready(service, 1);
    let answer = service.post(body);
    wait_until("the sandbox to end", crate::ready::PATIENCE, || !ready[0].is_alive());
    answer
}

#[test]
fn a_run_is_timed_out_by_its_own_timeout() {
    let _alone = alone();
    let service = shell_with(1).start();
    assert_eq!(service.post(&solution_within("30s", "echo hi")).stdout(), "hi\n");
    for (timeout, seconds) in [("1s", 1), ("2s", 2), ("1s", 1), ("2s", 2)] {
        let answer = taken(&service, &solution_within(timeout, "sleep 60"));
        assert_eq!(answer.header("x-run-outcome"), Some("timed_out"), "{answer:?}");
        let wall_ms: u64 = answer.header("x-run-wall-ms").unwrap().parse().unwrap();
        let (wall, own) = (Duration::from_millis(wall_ms), Duration::from_secs(seconds));
        assert!(wall >= own && wall < own + LATE_MAX, "{timeout}: {wall:?}");
    }
}

#[test]
fn a_run_that_only_computes_ends_at_its_own_limit() {
    let _alone = alone();
    let service = shell_with(1).start();
    assert_eq!(service.post(&solution_within("30s", "echo hi")).stdout(), "hi\n");
    for (timeout, seconds) in [("1s", 1), ("2s", 2), ("1s", 1)] {
        let answer = taken(&service, &solution_within(timeout, "while :; do :; done"));
        let outcome = answer.header("x-run-outcome").unwrap();
        assert!(["timed_out", "cpu_limit"].contains(&outcome), "{answer:?}");
        let wall_ms: u64 = answer.header("x-run-wall-ms").unwrap().parse().unwrap();
        let (wall, own) = (Duration::from_millis(wall_ms), Duration::from_secs(seconds));
        // The kernel counts CPU time by ticks.
        assert!(wall * 5 >= own * 4 && wall < own + LATE_MAX, "{timeout}: {wall:?}");
    }
}

#[test]
fn a_run_has_its_own_cpu_seconds() {
    let service = shell_with(1).start();
    assert_eq!(service.post(&solution_within("30s", "echo hi")).stdout(), "hi\n");
    for (timeout, seconds) in [("1s", 1), ("2s", 2), ("1500ms", 2), ("1m", 60), ("1s", 1)] {
        let answer = run_in_ready(&service, &solution_within(timeout, "ulimit -St; ulimit -Ht"));
        assert_eq!(answer.stdout(), format!("{seconds}\n{}\n", seconds + 1), "{timeout}");
    }
}

#[test]
fn a_run_ends_when_its_own_cpu_seconds_are_used_up() {
    let service = shell_with(1).start();
    assert_eq!(service.post(&solution_within("30s", "echo hi")).stdout(), "hi\n");
    // The shell does not lower the limit: the timeout of one second sets it.
    let stood = "ulimit -St 1; while :; do :; done";
    let answer = taken(&service, &solution_within("20s", stood));
    assert_eq!(answer.header("x-run-outcome"), Some("cpu_limit"), "{answer:?}");
    for (timeout, least) in [("1s", 1), ("2s", 2)] {
        let answer = taken(&service, &solution_within(timeout, COMPUTE));
        let outcome = answer.header("x-run-outcome").unwrap();
        // On a loaded machine it may not get both CPUs. The measured time is that of the whole
        // sandbox, and the kernel checks the time of a process at each tick.
        let cpu_ms: u64 = answer.header("x-run-cpu-ms").unwrap().parse().unwrap();
        let met = cpu_ms >= least * 1000 + 100;
        assert!(outcome == "cpu_limit" || (outcome == "timed_out" && !met), "{answer:?}");
    }
}
