//! Jobs of agents: from a request over policy, snapshot, run and artifacts to a record.

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

pub use api::{JobFeed, JobPage, JobProgress, JobQuery, JobView, Jobs, OpenArtifact, Submitted};
pub use builder::{BuildError, Missing, RunnerBuilder};
pub use control::JobControl;
pub use metrics::{JobMetrics, JobsStatus};
pub(crate) use run::tree::JobTree;
pub(crate) use runner::ValidJob;
pub use runner::{Runner, RunnerSettings};
pub use service::JobService;
pub use service::lazy::{LazyJobs, StartError};
