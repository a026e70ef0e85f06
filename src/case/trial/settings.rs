//! What a run of a Case is given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::case::cell::{CellExecutorKind, CellTrees};
use crate::case::file::Case;
use crate::case::harness::InlineJobs;
use crate::egress::EgressTerms;
use crate::evaluation::repository::{Repositories, RepositoryRoots};
use crate::evaluation::trees::EvaluationRoot;
use cofferdam_core::NetworkObject;

/// What a run of a Case is given.
#[derive(Debug, Clone)]
pub struct TrialSettings {
    /// The Case.
    pub case: Case,
    /// Its file, with every link followed.
    pub case_path: PathBuf,
    /// Which executor its Cells have.
    pub executor: CellExecutorKind,
    /// Whether Cells keep their files.
    pub keep: bool,
    /// The variables of the caller.
    pub variables: BTreeMap<String, String>,
    /// Those that provisioning sees besides the ones that name indexes and certificates.
    pub provision_env: Vec<String>,
    /// Rules over what provisioning sends.
    pub provision_network: NetworkObject,
    /// What holds for everything that is reached.
    pub egress: EgressTerms,
    /// Whose caches and secrets are used: the name of a token, or nothing on the command line.
    pub owner: String,
    /// Whether the hosts that the Case names may have private addresses, as on the command line.
    pub trusts_case: bool,
    /// A directory of this process, which others cannot read, for copies of sources and of the Case.
    pub scratch: PathBuf,
    /// The program `cofferdam`, which runs above the commands of Cells that are directories.
    pub helper: PathBuf,
    /// Directories that no copy of the Case's directory has: the store.
    pub left_out: Vec<PathBuf>,
}

impl TrialSettings {
    /// The directory of the Case.
    pub fn directory(&self) -> &Path {
        self.case_path.parent().unwrap_or(Path::new("/"))
    }
}

/// What trials work with on this host.
#[derive(Debug)]
pub struct TrialParts {
    /// Makes the files of Cells, and runs their commands.
    pub trees: CellTrees,
    /// Clones repositories.
    pub repositories: Arc<Repositories>,
    /// The root file system in which git runs.
    pub root: EvaluationRoot,
    /// Directories below which repositories of this host may be cloned.
    pub local: RepositoryRoots,
    /// Runs the jobs of harnesses in place of our own runner.
    pub jobs: Option<Arc<dyn InlineJobs>>,
}

/// Variables by which those of a step differ from the executor's own; `None` removes one.
pub type EnvChanges = BTreeMap<String, Option<String>>;

/// A time of a Case, in seconds.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
