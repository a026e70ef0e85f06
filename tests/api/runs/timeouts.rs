//! Row 23 of the contract: at the time limit the answer is sent, whatever the program does.

use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{Answer, solution_within};
use cofferdam_test_server::host::run_processes;
use cofferdam_test_server::service::{Service, Setup, best_of_three, wait_until};

/// How long after the limit an answer may come.
const LATE_MAX: Duration = Duration::from_millis(50);
/// How long killed processes may remain visible.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Runs `script` and returns how long after its time limit the answer came. The limit counts from
/// the start of the program, so the time before that is subtracted.
fn lateness(service: &Service, limit: Duration, script: &str, check: impl Fn(&Answer)) -> Duration {
    let body = solution_within(&format!("{}ms", limit.as_millis()), script);
    let start = Instant::now();
    let answer = service.post(&body);
    let took = start.elapsed();
    assert_eq!(answer.finished().exit_code, None, "{script}: {answer:?}");
    assert_eq!(answer.header("x-run-outcome"), Some("timed_out"), "{script}");
    check(&answer);
    wait_until("the last process to die", GONE_WITHIN, || run_processes(service.pid()).is_empty());
    let before = answer.timing_ms("queue") + answer.timing_ms("prepare");
    took.saturating_sub(Duration::from_secs_f64(before / 1e3)).saturating_sub(limit)
}

#[test]
fn every_program_is_answered_within_50_ms_of_its_time_limit() {
    let _alone = alone();
    let service = Setup::shell().start();
    for script in [
        "sleep 60",
        "while :; do :; done",
        "trap '' TERM INT HUP QUIT; while :; do sleep 60; done",
        "kill -STOP $$",
        "setsid sleep 60 & setsid sleep 60 & sleep 60",
        "( ( setsid sleep 60 & ) & ); sleep 60",
        "sleep 60 & sleep 60 & sleep 60 & exec sleep 60",
        "sh -c 'kill -STOP $$' & sleep 60",
        "exec >&- 2>&-; sleep 60",
    ] {
        best_of_three(LATE_MAX, || lateness(&service, Duration::from_millis(300), script, |_| ()));
    }
}

#[test]
fn a_program_of_256_processes_is_answered_within_50_ms_of_its_time_limit() {
    let _alone = alone();
    let service = Setup::shell().start();
    let script = "i=1; while [ $i -lt 256 ]; do sleep 60 & i=$((i+1)); done; echo 256; wait";
    best_of_three(LATE_MAX, || {
        lateness(&service, Duration::from_secs(3), script, |answer| {
            assert_eq!(answer.finished().stdout, "256\n", "{answer:?}");
        })
    });
}

#[test]
fn a_timed_out_run_returns_its_output_so_far() {
    let service = Setup::shell().start();
    let answer = service.post(&solution_within("3s", "echo out; echo err >&2; sleep 60"));
    answer.assert_json(200, r#"{"exit_code":null,"stdout":"out\n","stderr":"err\n"}"#);
}

#[test]
fn the_time_limit_starts_with_the_program() {
    let service = Setup::shell().start();
    let answer = service.post(&solution_within("1s", "sleep 60"));
    let wall_ms: u64 = answer.header("x-run-wall-ms").unwrap().parse().unwrap();
    assert!(wall_ms >= 1000, "{}", answer.head);
    assert!(answer.timing_ms("run") >= 1000.0, "{}", answer.head);
}
