//! The times of a run are its own, whichever run its box was made for.

use std::time::Duration;

use cofferdam_test_server::client::{Answer, solution_within};
use cofferdam_test_server::host::alone;
use cofferdam_test_server::service::{Service, wait_until};
use serde_json::Value;

use crate::ready::{LINGER, run_in_ready, shell_with, wait_ready};

/// How much later than its limit a run may end on a loaded machine, and not be another's.
const LATE_MAX: Duration = Duration::from_millis(900);
/// Ends by its CPU seconds, where it gets that much: two threads that compute at once.
const COMPUTE: &str = "exec python3 -Sc '
import hashlib, threading
def compute():
    while True: hashlib.pbkdf2_hmac(\"sha256\", b\"\", b\"\", 10000)
for _ in range(2): threading.Thread(target=compute).start()
'";

/// The answer of a run of `body` for which a box stood.
fn taken(service: &Service, body: &Value) -> Answer {
    let ready = wait_ready(service, 1);
    let answer = service.post(body);
    wait_until("the end of the box", crate::ready::PATIENCE, || !ready[0].is_alive());
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
    let script = format!("ulimit -St; ulimit -Ht; {LINGER}");
    for (timeout, seconds) in [("1s", 1), ("2s", 2), ("1500ms", 2), ("1m", 60), ("1s", 1)] {
        let answer = run_in_ready(&service, &solution_within(timeout, &script));
        assert_eq!(answer.stdout(), format!("{seconds}\n{}\n", seconds + 1), "{timeout}");
    }
}

#[test]
fn a_run_ends_when_its_own_cpu_seconds_are_used_up() {
    let service = shell_with(1).start();
    assert_eq!(service.post(&solution_within("30s", "echo hi")).stdout(), "hi\n");
    // Its shell lowers nothing: a second is what its timeout gives.
    let stood = "ulimit -St 1; while :; do :; done";
    let answer = taken(&service, &solution_within("20s", stood));
    assert_eq!(answer.header("x-run-outcome"), Some("cpu_limit"), "{answer:?}");
    for (timeout, least) in [("1s", 1), ("2s", 2)] {
        let answer = taken(&service, &solution_within(timeout, COMPUTE));
        let outcome = answer.header("x-run-outcome").unwrap();
        // On a machine that others load it may not get both CPUs. The figure is of the whole
        // sandbox, and the kernel looks at a process's own time by ticks.
        let cpu_ms: u64 = answer.header("x-run-cpu-ms").unwrap().parse().unwrap();
        let met = cpu_ms >= least * 1000 + 100;
        assert!(outcome == "cpu_limit" || (outcome == "timed_out" && !met), "{answer:?}");
    }
}
