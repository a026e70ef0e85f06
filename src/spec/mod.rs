//! The vocabulary every layer shares: what to run, within which limits, and how it ended.

pub mod captured;
pub mod enforced;
pub mod limits;
pub mod outcome;
pub mod output;
pub mod report;
pub mod run_spec;
pub mod watch;

pub use captured::CapturedStream;
pub use enforced::Enforced;
pub use limits::{LimitKind, Limits};
pub use outcome::{NotStarted, Outcome, SetupFailure};
pub use output::{OutputSink, Stream};
pub use report::{RunReport, Timings, Usage};
pub use run_spec::{Bind, RunSpec, StdinSource, Tmpfs, WorkspaceFill};
pub use watch::Watch;
