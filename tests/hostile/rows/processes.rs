//! Processes that multiply, outlive, signal, and stretch time.

mod bombs;
mod clocks;
mod compile;
mod ends;
mod leftovers;
mod signals;

use std::time::{Duration, Instant};

use cofferdam_test_server::client::Answer;
use cofferdam_test_server::service::best_of_three;

use crate::Row;
use crate::probe::Probe;
use crate::target::Target;

pub const ROWS: &[Row] = &[
    Row {
        id: "B19",
        guarantee: "a run ends with its program, whatever that left in another session with its stdout",
        attack: leftovers::holding_stdout,
    },
    Row {
        id: "B20",
        guarantee: "nothing that a run left behind lives on to write, to its answer or for the next run",
        attack: leftovers::writing_late,
    },
    Row {
        id: "B21",
        guarantee: "a program that no signal moves is dead when its time is up, and the init it tried to end is not",
        attack: leftovers::deaf_to_signals,
    },
    Row {
        id: "B22",
        guarantee: "a run that has stopped itself, every process in another way, is dead when its time is up",
        attack: leftovers::stopped,
    },
    Row {
        id: "B23",
        guarantee: "a fork bomb is bounded, takes no process of another run, and a run beside it is as it was",
        attack: bombs::forks,
    },
    Row {
        id: "B24",
        guarantee: "a bomb that multiplies through sessions leaves no process, whether or not its program stays",
        attack: bombs::sessions,
    },
    Row {
        id: "B25",
        guarantee: "threads and programs that start themselves are bounded as processes are",
        attack: bombs::threads,
    },
    Row {
        id: "B26",
        guarantee: "signals to every process reach the run's own alone",
        attack: signals::to_everybody,
    },
    Row {
        id: "B27",
        guarantee: "a run has no more time than it asked for, idle, in many processes or in many threads",
        attack: clocks::time_is_up,
    },
    Row {
        id: "B28",
        guarantee: "all CPU time is counted, whoever reaps the processes that spent it",
        attack: clocks::unreaped_time,
    },
    Row {
        id: "B29",
        guarantee: "a run moves no clock and gets none of its own",
        attack: clocks::moved_clocks,
    },
    Row {
        id: "B30",
        guarantee: "a timeout that is none is refused, and one of nothing is over at once",
        attack: clocks::malformed_timeouts,
    },
    Row {
        id: "B31",
        guarantee: "the run of a client that has gone is dead and its slot free in 200 ms",
        attack: ends::client_gone,
    },
    Row {
        id: "B32",
        guarantee: "no run outlives a killed server by a second, and the next start clears what it left",
        attack: ends::server_killed,
    },
    Row {
        id: "B33",
        guarantee: "a compiler made to read, grow or spin meets the limits and the walls of a run",
        attack: compile::attacks,
    },
];

/// How late an answer may come on a loaded machine.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Runs a program that lasts until its time is up, and holds the answer to
/// that and to being in time. On a loaded machine a program gets more time
/// where it has not come to the `lines` it prints before it waits.
#[track_caller]
fn timed_out(target: &Target, probe: &Probe, lines: usize) -> Answer {
    let (mut limit_seconds, mut last) = (1, None);
    best_of_three(LATE_MAX, || {
        limit_seconds *= 2;
        let limit = Duration::from_secs(limit_seconds);
        let began = Instant::now();
        let answer = target.run(&probe.clone().within(&format!("{limit_seconds}s")));
        let took = began.elapsed();
        let finished = answer.finished();
        assert_eq!(finished.exit_code, None, "{answer:?}");
        assert_eq!(answer.header("x-run-outcome"), Some("timed_out"), "{answer:?}");
        let before = answer.timing_ms("queue") + answer.timing_ms("prepare");
        last = Some(answer);
        if finished.stdout.lines().count() < lines {
            return Duration::MAX;
        }
        took.saturating_sub(Duration::from_secs_f64(before / 1e3)).saturating_sub(limit)
    });
    last.unwrap()
}

/// A figure of an answer's head.
#[track_caller]
fn figure(answer: &Answer, name: &str) -> u64 {
    let found = answer.header(name).and_then(|figure| figure.parse().ok());
    found.unwrap_or_else(|| panic!("no {name}: {answer:?}"))
}
