//! The vocabulary every layer shares: what to run, within which limits, and how it ended.

mod captured;
mod enforced;
mod figures;
pub mod job;
mod limits;
mod outcome;
mod output;
mod report;
mod run_spec;
mod watch;

pub use captured::CapturedStream;
pub use enforced::Enforced;
pub use figures::{SandboxFigures, StandbyFigures, Swept};
pub use limits::{LimitKind, Limits};
pub use outcome::{NotStarted, Outcome, SetupFailure};
pub use output::{OutputSink, Stream};
pub use report::{RunReport, Timings, Usage};
pub use run_spec::{Bind, ProgramFile, RunSpec, StdinSource, Tmpfs, WorkspaceFill};
pub use watch::Watch;
