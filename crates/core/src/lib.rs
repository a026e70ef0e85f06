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

pub use crate::run::captured::CapturedStream;
pub use crate::run::enforced::Enforced;
pub use crate::run::figures::{SandboxMetrics, StandbyMetrics, SweepCounts};
pub use crate::run::limits::{LimitKind, Limits};
pub use crate::run::outcome::{NotStarted, Outcome, SetupFailure};
pub use crate::run::output::{OutputSink, Stream};
pub use crate::run::report::{RunReport, Timings, Usage};
pub use crate::run::run_spec::{Bind, ProgramFile, RunSpec, StdinSource, Tmpfs, WorkspaceFill};
pub use crate::sync::watch::Watch;
