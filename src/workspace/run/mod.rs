//! Programs in workspaces: each in a sandbox of its own over the workspace's files.

mod prepared;
pub(super) mod report;
mod request;
mod run_dir;
pub(super) mod shared;

pub use prepared::PreparedRun;
pub(super) use prepared::no_sandbox;
pub use report::ProgramReport;
pub(super) use report::{spawn_failed, texts};
pub(super) use request::ProgramSettings;
pub use request::RunRequest;

/// What [`PreparedRun`] needs of the service.
pub(super) use prepared::RunTerms;
