//! The system calls of one run of the service.

use std::time::{SystemTime, UNIX_EPOCH};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{post, solution};
use cofferdam_test_server::service::Setup;

use crate::ceilings::{Ceilings, RUN, RUN_WITHOUT_STANDBY};
use crate::counts::{Counts, Window};
use crate::strace::{Attached, can_trace};

/// The number of runs per median.
const RUNS: usize = 21;
/// Runs before them, which do the work that is done once.
const WARM_UP_RUNS: usize = 3;

#[test]
fn a_run_stays_below_its_system_call_ceiling() {
    hold("POST /run of `:`", Setup::shell(), &RUN);
}

#[test]
fn a_run_without_a_prepared_sandbox_stays_below_its_system_call_ceiling() {
    let setup = Setup::shell().env("STANDBY_MAX", "0");
    hold("POST /run, STANDBY_MAX=0", setup, &RUN_WITHOUT_STANDBY);
}

#[track_caller]
fn hold(name: &str, setup: Setup, ceilings: &Ceilings) {
    if !can_trace() {
        return;
    }
    let _alone = alone();
    let service = setup.start();
    let mut client = service.connect();
    let request = post("", solution(":").to_string());
    let mut run = || assert_eq!(client.ask(&request).stdout(), "");
    (0..WARM_UP_RUNS).for_each(|_| run());
    let strace = Attached::to(service.pid());
    let mut windows = Vec::new();
    for _ in 0..RUNS {
        strace.wait_settled();
        let began = now();
        run();
        let answered = now();
        strace.wait_settled();
        windows.push(Window { began, answered, over: now() });
    }
    let trace = strace.end();
    Counts::of(&trace.calls, &windows).hold(name, ceilings);
}

/// Seconds since the epoch, as `strace` counts them.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}
