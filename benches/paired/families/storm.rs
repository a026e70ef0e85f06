//! The delay of the answer after the limit of a run with 250 processes.

use cofferdam_test_server::client::solution_within;
use cofferdam_test_server::service::{Service, Setup};

use crate::report::Report;
use crate::stats::{Spread, median, millis};

const PROCESSES: usize = 250;
const LIMIT_MS: f64 = 1_000.0;
/// Attempts, for a machine too busy to start all processes in time.
const TRIES: usize = 10;

/// Each process waits until all have started, since busy ones would delay the others.
const LOOPERS: &str = "while :; do :; done";
const SLEEPERS: &str = "exec sleep 60";

pub fn measure(report: &mut Report) {
    let service = Setup::shell().start();
    for (key, each) in [("storm_loopers", LOOPERS), ("storm_sleepers", SLEEPERS)] {
        let taken: Option<Vec<f64>> = (0..report.pairs).map(|_| grown_up(&service, each)).collect();
        match taken {
            Some(taken) => {
                let late = Spread::of(taken.iter().map(|took| took - LIMIT_MS));
                report.row(key, median(taken.into_iter()), LIMIT_MS, late);
            }
            None => {
                report.leave_out(key, "the machine is too busy to start 250 processes in a second");
            }
        }
    }
}

/// Milliseconds until the answer to a storm whose processes all started before the limit.
fn grown_up(service: &Service, each: &str) -> Option<f64> {
    let script = format!(
        "mkfifo gate; n=0
        while [ $n -lt {PROCESSES} ]; do ({each}) <gate & n=$((n + 1)); done
        echo $n; exec 3>gate; wait"
    );
    let request = solution_within("1s", &script);
    (0..TRIES).find_map(|_| {
        let mut answer = None;
        let took = millis(|| answer = Some(service.post(&request)));
        let answer = answer?;
        assert_eq!(answer.header("x-run-outcome"), Some("timed_out"), "{answer:?}");
        (answer.finished().stdout == format!("{PROCESSES}\n")).then_some(took)
    })
}
