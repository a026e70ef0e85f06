//! Processes that multiply, outlive their run, send signals and evade time limits.

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
        guarantee: "a run ends with its program, even if a process in another session holds its stdout",
        attack: leftovers::holding_stdout,
    },
    Row {
        id: "B20",
        guarantee: "no process of a run survives to write to its answer or into the next run",
        attack: leftovers::writing_late,
    },
    Row {
        id: "B21",
        guarantee: "a program that ignores every signal is killed at its timeout, and cannot kill its init",
        attack: leftovers::deaf_to_signals,
    },
    Row {
        id: "B22",
        guarantee: "a run whose processes stop themselves in different ways is killed at its timeout",
        attack: leftovers::stopped,
    },
    Row {
        id: "B23",
        guarantee: "a fork bomb is bounded and leaves concurrent runs their processes and time",
        attack: bombs::forks,
    },
    Row {
        id: "B24",
        guarantee: "a bomb that multiplies through sessions leaves no process, whether or not its program exits",
        attack: bombs::sessions,
    },
    Row {
        id: "B25",
        guarantee: "threads and programs that execute themselves are bounded like processes",
        attack: bombs::threads,
    },
    Row {
        id: "B26",
        guarantee: "a signal to every process reaches only processes of the same run",
        attack: signals::to_everybody,
    },
    Row {
        id: "B27",
        guarantee: "a run gets no more time than it asked for, idle, in many processes or in many threads",
        attack: clocks::time_is_up,
    },
    Row {
        id: "B28",
        guarantee: "all CPU time is counted, even of processes that the program does not reap",
        attack: clocks::unreaped_time,
    },
    Row {
        id: "B29",
        guarantee: "a run sets no clock and gets no clock of its own",
        attack: clocks::moved_clocks,
    },
    Row {
        id: "B30",
        guarantee: "a malformed timeout is refused, and a timeout of zero ends the run at once",
        attack: clocks::malformed_timeouts,
    },
    Row {
        id: "B31",
        guarantee: "the run of a disconnected client is killed and its slot is free within 200 ms",
        attack: ends::client_gone,
    },
    Row {
        id: "B32",
        guarantee: "every run ends within a second of its server's death, and the next start removes its leftovers",
        attack: ends::server_killed,
    },
    Row {
        id: "B33",
        guarantee: "a compiler that reads files, grows or spins is confined like a run",
        attack: compile::attacks,
    },
];

/// How late an answer may come on a loaded machine.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Runs a program that lasts until its timeout, and asserts that it timed out
/// and that the answer came in time. Gives the program more time if a loaded
/// machine kept it from printing `lines` lines before it waits.
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

/// A number in a header of an answer.
#[track_caller]
fn figure(answer: &Answer, name: &str) -> u64 {
    let found = answer.header(name).and_then(|figure| figure.parse().ok());
    found.unwrap_or_else(|| panic!("no {name}: {answer:?}"))
}
