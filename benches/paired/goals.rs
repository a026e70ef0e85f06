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
    Megabytes,
    Kibibytes,
    MegabytesPerSecond,
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

const fn amount(key: &'static str, name: &'static str, unit: Unit, at_most: f64) -> Row {
    Row { key, name, unit, figure: Figure::Amount, goal: Some(AtMost(at_most)) }
}

const fn speed(key: &'static str, name: &'static str, at_least: f64) -> Row {
    let (unit, figure) = (Unit::MegabytesPerSecond, Figure::Ratio);
    Row { key, name, unit, figure, goal: Some(AtLeast(at_least)) }
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
    millis("storm_loopers", "answer to 250 busy processes − their time limit", Some(AtMost(25.0))),
    millis("storm_sleepers", "answer to 250 sleepers − their time limit", Some(AtMost(25.0))),
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
    ratio("engine_run_true", "`/bin/true` in a workspace ÷ plain `/run`", Some(AtMost(1.2))),
    ratio("engine_run_sh", "`sh -c :` in a workspace ÷ plain `/run`", Some(AtMost(1.2))),
    ratio(
        "engine_run_python",
        "`python3 -c pass` in a workspace ÷ plain `/run`",
        Some(AtMost(1.2)),
    ),
    millis("engine_create", "create a workspace (B: `/health`)", Some(AtMost(1.0))),
    millis("engine_time_limit", "everything dead − the time limit", Some(AtMost(50.0))),
    ratio("engine_living_new", "`true` in a living sandbox ÷ in a new one", Some(AtMost(0.6))),
    ratio(
        "engine_living_prepared",
        "`true` in a living sandbox ÷ in a prepared one",
        Some(AtMost(1.1)),
    ),
    millis("engine_echo", "echo of a terminal, 99th percentile (B: median)", Some(AtMost(2.0))),
    millis("engine_context", "`1+1` in a live Python context (B: `/health`)", Some(AtMost(1.5))),
    millis(
        "engine_fork_100mb",
        "fork of 100 MiB after a change (B: of nothing)",
        Some(AtMost(2.0)),
    ),
    millis("engine_fork_1gb", "fork of 1 GiB after a change (B: of nothing)", Some(AtMost(2.0))),
    ratio("engine_fork_deep", "fork at a depth of 60 ÷ at depth 1", Some(AtMost(2.0))),
    ratio(
        "engine_python_deep",
        "`python3 -c pass` at a depth of 60 ÷ at depth 1",
        Some(AtMost(1.3)),
    ),
    millis(
        "engine_fork_running",
        "fork beside a program that changed 10 MB in 100 files (B: at rest)",
        Some(AtMost(20.0)),
    ),
    ratio(
        "engine_forks",
        "`true` in each of 200 forks, 8 at a time ÷ 200 plain runs",
        Some(AtMost(1.3)),
    ),
    amount(
        "engine_save",
        "written by a save after 1 MB changed in 1 GiB (B: the change)",
        Unit::Megabytes,
        4.0,
    ),
    amount(
        "engine_idle_service",
        "service memory of an idle workspace (A: with 1,000, B: with none, for each)",
        Unit::Kibibytes,
        16.0,
    ),
    amount(
        "engine_idle_kernel",
        "memory of an idle workspace with the kernel's (B: without)",
        Unit::Kibibytes,
        32.0,
    ),
    amount(
        "engine_output",
        "peak of service memory for 60 MB of a session's output − before",
        Unit::Mebibytes,
        8.0,
    ),
    amount(
        "engine_tar_bomb",
        "peak of service memory for a tar bomb of 1 GiB − before",
        Unit::Mebibytes,
        16.0,
    ),
    millis("egress_first", "first request of a connection, by rules − direct", Some(AtMost(5.0))),
    millis("egress_later", "later request of a connection, by rules − direct", Some(AtMost(0.3))),
    millis(
        "egress_event",
        "line of an event stream, by rules, the slowest (B: median)",
        Some(AtMost(50.0)),
    ),
    speed("egress_rule", "256 MiB by rules, HTTP/2 ÷ plain tunnel", 0.5),
    speed("egress_search", "256 MiB by rules with the search, HTTP/2 ÷ plain tunnel", 0.35),
    speed("egress_rule_http1", "256 MiB by rules, HTTP/1.1 ÷ plain tunnel", 0.5),
    speed("egress_search_http1", "256 MiB by rules with the search, HTTP/1.1 ÷ plain tunnel", 0.35),
    amount(
        "egress_streams",
        "peak of service memory for 64 streams by rules, HTTP/2 − before",
        Unit::Mebibytes,
        16.0,
    ),
    amount(
        "egress_streams_http1",
        "peak of service memory for 64 streams by rules, HTTP/1.1 − before",
        Unit::Mebibytes,
        16.0,
    ),
    millis(
        "evaluation_start",
        "POST to the agent's start, second evaluation of a task",
        Some(AtMost(25.0)),
    ),
    millis(
        "evaluation_first",
        "an evaluation without its programs, the first",
        Some(AtMost(300.0)),
    ),
    millis("evaluation_cached", "an evaluation without its programs, later", Some(AtMost(80.0))),
    millis(
        "evaluation_difference",
        "100,000 files with 3 changed: compared, and given to a test",
        Some(AtMost(150.0)),
    ),
    millis(
        "evaluation_delete",
        "DELETE to the end, at any step (A: longest, B: median)",
        Some(AtMost(1000.0)),
    ),
    amount(
        "evaluation_archive",
        "the service's memory on an archive of 100 MiB (B: before)",
        Unit::Mebibytes,
        24.0,
    ),
    ratio("case_run_prepared", "`sh -c :` in a sandboxed Cell ÷ `/run` of `:`", Some(AtMost(1.2))),
    ratio(
        "case_run_new",
        "`sh -c :` in a sandboxed Cell ÷ `/run` of `:`, `STANDBY_MAX=0`",
        Some(AtMost(1.2)),
    ),
    ratio("case_run_local", "`sh -c :` in a local Cell ÷ in a sandboxed one", None),
    ratio("case_run_container", "`sh -c :` in a container's Cell ÷ in a sandboxed one", None),
    millis(
        "case_begin",
        "a Cell over a snapshot of 5,000 files begins (B: of 50)",
        Some(AtMost(10.0)),
    ),
    ratio(
        "case_begin_many",
        "a Cell over a snapshot of 5,000 files begins ÷ of 50",
        Some(AtMost(2.0)),
    ),
    millis(
        "case_time_sandboxed",
        "200 sessions of a command in a sandboxed Cell are dead − its time limit",
        Some(AtMost(50.0)),
    ),
    millis("case_time_local", "the same in a local Cell", Some(AtMost(200.0))),
    millis("case_time_container", "the same in a container's Cell", Some(AtMost(200.0))),
    ratio(
        "case_share",
        "trials 2 to 10 of a Case with a venv ÷ the first, which makes it",
        Some(AtMost(0.25)),
    ),
    ratio("case_source", "ten trials over 3,000 files ÷ one", Some(AtMost(2.0))),
];

/// The row of this key, and its place in the table.
pub fn find(key: &str) -> (usize, &'static Row) {
    let found = ROWS.iter().enumerate().find(|(_, row)| row.key == key);
    found.unwrap_or_else(|| panic!("no row {key}"))
}
