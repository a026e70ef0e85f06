//! Agents' jobs: policy, snapshot, run, artifacts, record.

mod api;
mod builder;
mod control;
mod metrics;
mod outcome;
mod run;
mod runner;
mod service;
#[cfg(test)]
mod tests;

pub use api::{Feed, JobPage, JobView, Jobs, ListAsked, OpenArtifact, Progress, Submitted};
pub use builder::{BuildError, Missing, RunnerBuilder};
pub use control::Control;
pub use metrics::{JobFigures, JobsStatus};
pub use runner::{Runner, RunnerSettings};
pub use service::JobService;
pub use service::lazy::{JobsAtFirst, NotStarted};
