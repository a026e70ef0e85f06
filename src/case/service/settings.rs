//! What holds for the service.

use std::path::PathBuf;
use std::time::Duration;

use crate::egress::{AllowList, EgressTerms};
use crate::policy::WorkspaceRoots;

/// What holds for the service.
#[derive(Debug, Clone)]
pub struct CaseServiceSettings {
    /// The store, absolute; runs lie in its directory `cases`. It is made when the first run comes.
    pub store_dir: PathBuf,
    /// Where Cases on this host may be: `CASES_ROOTS`.
    pub roots: WorkspaceRoots,
    /// Cells of all runs that run at the same time, at least one: `CASES_WORKERS`.
    pub workers: usize,
    /// Runs that may wait, at least one: `CASES_QUEUE_MAX`.
    pub queue_max: usize,
    /// The most bytes of the files of a Case that was sent, and the most of its archive: `CASES_INPUT_MAX`.
    pub input_bytes_max: u64,
    /// Hosts that a Case may name for environments and agents: `CASES_EGRESS_ALLOW`.
    pub egress_allow: AllowList,
    /// What holds for all that is reached. Its private hosts are `CASES_HOSTS_ALLOW`.
    pub egress: EgressTerms,
    /// Variables of the service that a Case may name: `CASES_HARNESS_ENV`.
    pub harness_env: Vec<String>,
    /// How long a run that has ended is kept; `None` for ever: `JOBS_RETENTION`.
    pub retention: Option<Duration>,
}
