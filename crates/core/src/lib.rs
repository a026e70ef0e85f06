//! The vocabulary of Cofferdam: what to run, within which limits, and how it ended.
//!
//! - [`RunSpec`] describes one program to run, [`Limits`] its bounds, [`RunReport`] the result.
//! - [`executor::Executor`] is the trait that each backend implements: a sandbox, a virtual machine.
//! - [`egress`] is what left a sandbox by the forward proxy.
//! - [`framing`] finds where messages of HTTP/1 end.
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

pub mod egress;
pub mod executor;
pub mod framing;
pub mod job;
pub mod json;
mod network;
mod run;
pub mod sync;
pub mod values;
pub mod weakened;

pub use network::object::NetworkObject;
pub use network::rule::{RuleAction, RuleObject};
pub use network::secret::{
    GivenSecret, REDACTED, SECRET_BYTES_MAX, SecretFault, SecretObject, SecretValue, is_secret_name,
};
pub use run::egress::{EGRESS_PORT, EgressService, RootFile};
pub use run::limits::{LimitKind, Limits};
pub use run::metrics::{
    PrestartMetrics, SandboxMetrics, StandbyMetrics, SweepCounts, WarmSandboxes,
};
pub use run::mounted::{MountedDirectory, MountedWorkspace, WorkspacePath, WorkspacePathError};
pub use run::outcome::{NotStarted, Outcome, SetupFailure};
pub use run::output::{CapturedStream, OutputSink, Stream};
pub use run::report::{Enforced, RunReport, Timings, Usage};
pub use run::run_spec::{
    Bind, ExcessOutput, Prestart, ProgramFile, RunSpec, StdinSource, Tmpfs, WorkspaceFill,
};
pub use sync::cancel::Watch;
