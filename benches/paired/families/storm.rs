//! How long after its limit a run of 250 processes is answered.

use cofferdam_test_server::client::solution_within;
use cofferdam_test_server::service::{Service, Setup};

use crate::report::Report;
use crate::stats::{Spread, median, millis};

const PROCESSES: usize = 250;
const LIMIT_MS: f64 = 1_000.0;
/// Of a storm that the machine was too busy to let grow up in time.
const TRIES: usize = 10;

/// Each waits until all are there: busy ones would not let the others come up.
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
            None => report.leave_out(key, "too busy a machine to start 250 processes in a second"),
        }
    }
}

/// Milliseconds until the answer to a storm that was whole before its limit.
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
