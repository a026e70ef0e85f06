//! What the tests of the library on a real kernel share: a sandbox, programs to run in it, and
//! views of the host.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "used by tests only"
)]

pub mod host;
pub mod live;
pub mod processes;
pub mod program;
pub mod root;
pub mod task;
pub mod workspace;

use cofferdam_core::{Outcome, RunReport};

pub use host::{Host, has, host, host_with, host_without_filter, quiet_host};
pub use program::Program;
pub use root::Root;
pub use task::{Ran, TaskBuilder};
pub use workspace::MountedFiles;

pub const MIB: u64 = 1 << 20;

/// The output of a run that must have exited with code 0.
#[track_caller]
pub fn stdout_of(report: &RunReport) -> String {
    let stdout = report.stdout.text();
    assert_eq!(
        report.outcome,
        Outcome::Exited { code: 0 },
        "\nstdout: {stdout}\nstderr: {}",
        report.stderr.text()
    );
    stdout.into_owned()
}

/// The output of such a run, as trimmed lines.
#[track_caller]
pub fn lines_of(report: &RunReport) -> Vec<String> {
    stdout_of(report).lines().map(|line| line.trim().to_owned()).collect()
}

/// The word for the outcome and the exit code of a shell for it.
pub fn ending(report: &RunReport) -> (&'static str, Option<u8>) {
    (report.outcome.word(), report.outcome.shell_code())
}
