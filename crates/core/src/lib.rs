//! The vocabulary of Cofferdam: what to run, within which limits, and how it ended.
//!
//! - [`RunSpec`] describes one program to run, [`Limits`] its bounds, [`RunReport`] the result.
//! - [`executor::Executor`] is the trait that each backend implements: a sandbox, a virtual machine.
//! - [`job`] holds the request and the result of an agent's job, as JSON has them, and
//!   [`job::parse_request`], which validates a request.
//! - [`json`] reads requests strictly.
//! - [`values`] are plain data with parsers: sizes, durations, relative paths, globs, digests.
//! - [`sync`] holds what threads share: cancel tokens, permits, counters, request ids.
//! - [`weakened`] removes walls in builds that only tests use.
//!
//! The crate starts no process and mounts nothing. Names end with their unit (`_bytes`, `_ms`), and
//! limits with `_max`.

#![forbid(unsafe_code)]

pub mod executor;
pub mod job;
pub mod json;
mod run;
pub mod sync;
pub mod values;
pub mod weakened;

pub use run::limits::{LimitKind, Limits};
pub use run::metrics::{SandboxMetrics, StandbyMetrics, SweepCounts};
pub use run::mounted::{MountedWorkspace, WorkspacePath, WorkspacePathError};
pub use run::outcome::{NotStarted, Outcome, SetupFailure};
pub use run::output::{CapturedStream, OutputSink, Stream};
pub use run::report::{Enforced, RunReport, Timings, Usage};
pub use run::run_spec::{
    Bind, ExcessOutput, ProgramFile, RunSpec, StdinSource, Tmpfs, WorkspaceFill,
};
pub use sync::cancel::Watch;
