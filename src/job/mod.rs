//! Agents' jobs: policy, snapshot, run, artifacts, record.

mod answers;
mod at_first;
mod builder;
mod control;
mod counts;
mod door;
mod ending;
mod foreign;
mod output;
mod programs;
mod record;
mod run;
mod runner;
mod service;
mod unwritten;
mod waiting;
mod workspace;
#[cfg(test)]
mod workspace_tests;

pub use at_first::{JobsAtFirst, NotStarted};
pub use builder::{BuildError, Missing, RunnerBuilder};
pub use control::Control;
pub use counts::{JobFigures, JobsStatus};
pub use door::{Feed, JobPage, JobView, Jobs, ListAsked, OpenArtifact, Progress, Submitted};
pub use runner::{Runner, RunnerSettings};
pub use service::JobService;
