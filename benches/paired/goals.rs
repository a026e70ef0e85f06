//! All rows of the benchmark and their goals.
//!
//! A row compares A with B as its name states: `A ÷ B` is a ratio, `A − B` a difference, and a row
//! with one name reports A.

/// A goal for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

/// The unit of A and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Milliseconds,
    RunsPerSecond,
    Mebibytes,
}

/// How the figure relates to A and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// A ÷ B.
    Ratio,
    /// In the unit of A and B.
    Amount,
}

/// One row.
#[derive(Debug)]
pub struct Row {
    pub key: &'static str,
    /// The name in the document.
    pub name: &'static str,
    pub unit: Unit,
    pub figure: Figure,
    pub goal: Option<Goal>,
}

const fn ratio(key: &'static str, name: &'static str, goal: Option<Goal>) -> Row {
    Row { key, name, unit: Unit::Milliseconds, figure: Figure::Ratio, goal }
}

const fn millis(key: &'static str, name: &'static str, goal: Option<Goal>) -> Row {
    Row { key, name, unit: Unit::Milliseconds, figure: Figure::Amount, goal }
}

use Goal::{AtLeast, AtMost};

pub const ROWS: &[Row] = &[
    ratio("run_10", "`/run` of `:`, 10 files ÷ bare `make test`", Some(AtMost(0.7))),
    // `make` starts no process for `:`; here it starts the program, as we do.
    ratio("run_program", "`/run` of `/bin/true`, 10 files ÷ bare `make test`", None),
    ratio("run_1000", "`/run` of `:`, 1,000 files, 20 MB ÷ bare `make test`", Some(AtMost(0.9))),
    ratio("run_python", "`/run` of `python3 -c pass` ÷ bare `make test`", Some(AtMost(0.95))),
    ratio("exec_bubblewrap", "`exec -- /bin/true` ÷ bubblewrap", Some(AtMost(0.6))),
    ratio("exec_bare", "`exec -- /bin/true` ÷ bare spawn", None),
    ratio("exec_isolate", "`exec -- /bin/true` ÷ isolate, init to cleanup", None),
    ratio("exec_isolate_run", "`exec -- /bin/true` ÷ isolate, its run alone", None),
    ratio("exec_nsjail", "`exec -- /bin/true` ÷ nsjail", None),
    ratio("exec_crun", "`exec -- /bin/true` ÷ crun", None),
    ratio("idle", "`/run` after 50 ms idle ÷ back to back", Some(AtMost(1.2))),
    ratio("idle_none_prepared", "`/run` after 50 ms idle ÷ back to back, `STANDBY_MAX=0`", None),
    ratio("server_size", "`/run` by a server of 500 MB ÷ of 20 MB", Some(AtMost(1.1))),
    Row {
        key: "throughput_8",
        name: "runs a second, 8 clients ÷ bare `make test`, 8 workers",
        unit: Unit::RunsPerSecond,
        figure: Figure::Ratio,
        goal: Some(AtLeast(0.9)),
    },
    millis("storm_loopers", "answer to 250 busy processes − their time limit", Some(AtMost(50.0))),
    millis("storm_sleepers", "answer to 250 sleepers − their time limit", Some(AtMost(50.0))),
    millis("output_text", "`/run` that prints 1 MiB of text − nothing", Some(AtMost(3.0))),
    millis("output_zeros", "`/run` that prints 1 MiB of zero bytes − nothing", None),
    millis(
        "health_p99",
        "`/health`, 99th percentile, beside 8 busy runs and 400 slow clients (B: alone)",
        Some(AtMost(20.0)),
    ),
    Row {
        key: "standby_memory",
        name: "memory of a prepared sandbox (A: server with 10, B: with none)",
        unit: Unit::Mebibytes,
        figure: Figure::Amount,
        goal: None,
    },
];

/// The row of this key, and its place in the table.
pub fn find(key: &str) -> (usize, &'static Row) {
    let found = ROWS.iter().enumerate().find(|(_, row)| row.key == key);
    found.unwrap_or_else(|| panic!("no row {key}"))
}
