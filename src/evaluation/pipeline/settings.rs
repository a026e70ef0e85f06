//! What holds for all evaluations of one service.

use std::path::PathBuf;
use std::time::Duration;

use super::agent::AgentPrograms;
use crate::egress::EgressTerms;
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::download::Archives;
use crate::evaluation::repository::{Repositories, RepositoryRoots};
use crate::evaluation::task::ArchiveBounds;
use crate::evaluation::trees::EvaluationRoots;
use cofferdam_core::NetworkObject;

/// What holds for all evaluations of one service.
#[derive(Debug)]
pub struct PipelineSettings {
    /// What each sandbox may use.
    pub bounds: PhaseBounds,
    /// What the agent, and each test, may write, bytes.
    pub disk_bytes_max: u64,
    /// The longest that an agent may run.
    pub agent_timeout: Duration,
    /// The longest that a test may run.
    pub test_timeout: Duration,
    /// The longest that an evaluation may take.
    pub session_timeout: Duration,
    /// Bytes of the output of the agent, and of each test, that are kept.
    pub output_bytes_max: usize,
    /// Bytes of a patch.
    pub patch_bytes_max: u64,
    /// What bounds an archive and what is unpacked from it.
    pub archive: ArchiveBounds,
    /// The directories below which a task may name a repository by its path.
    pub repository_roots: RepositoryRoots,
    /// Hosts that agents may reach at most.
    pub agent_hosts: Vec<String>,
    /// What an agent may reach whose request says nothing; `None` for all of `agent_hosts`.
    pub agent_network: Option<NetworkObject>,
    /// What holds for all that agents reach.
    pub egress: EgressTerms,
    /// Where the files that sandboxes are shown are written, each evaluation in a directory of its own.
    pub staging: PathBuf,
    /// Whether all owners share the caches.
    pub cache_shared: bool,
}

/// What a pipeline works with. One service has one of each.
#[derive(Debug)]
pub struct PipelineParts {
    /// The root file systems.
    pub roots: EvaluationRoots,
    /// Fetches archives of tasks.
    pub archives: Archives,
    /// Makes bases.
    pub repositories: Repositories,
    /// Finds the programs that run agents.
    pub programs: AgentPrograms,
}
