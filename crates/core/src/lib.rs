//! The vocabulary of Cofferdam: what to run, within which limits, and how it ended.
//!
//! `values` are plain data, `sync` is what threads share, `run` describes one run of a program, `job` is
//! an agent's job as every API takes and returns it, and [`executor::Executor`] is the trait that each
//! backend implements.

#![forbid(unsafe_code)]

pub mod executor;
pub mod job;
mod run;
pub mod sync;
pub mod values;

pub use run::limits::{LimitKind, Limits};
pub use run::metrics::{SandboxMetrics, StandbyMetrics, SweepCounts};
pub use run::outcome::{NotStarted, Outcome, SetupFailure};
pub use run::output::{CapturedStream, OutputSink, Stream};
pub use run::report::{Enforced, RunReport, Timings, Usage};
pub use run::run_spec::{Bind, ProgramFile, RunSpec, StdinSource, Tmpfs, WorkspaceFill};
pub use sync::cancel::Watch;
