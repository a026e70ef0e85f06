//! Whether a job may run: a pure decision over what is asked for, what the runner allows, and which
//! programs there are.
//!
//! The rules come in one order, and the first that fails is told: command, shell, environment,
//! artifacts, workspace, network. The wall around a job is its box. What is decided here is whether
//! the command it names is one that was meant: an allowed interpreter, build tool, editor or script
//! can start whatever is in the box, and a file of the workspace is what its writer made it.

mod artifact;
mod chain;
mod command;
mod environment;
mod program;
mod shell;
#[cfg(test)]
mod testing;
mod workspace_root;
mod wrapper;
mod wrapper_table;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use artifact::secret_pattern;
pub use environment::is_dangerous;
pub use program::{PATH_DIRECTORIES, Program, Programs};

use chain::Chain;
use cofferdam_core::job::{
    Decision, ErrorCode, JobError, Network, PolicyDecision, PolicyRequest, RunJobRequest, Sha256,
};
use cofferdam_core::values::digest::tagged_hash;
use cofferdam_core::values::rel_path::RelPath;
use program::Lookup;

/// Counts up with every change of what the rules here say.
const RULES_VERSION: u32 = 2;

/// What the runner, not the request, allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Variables that any request may give.
    pub allowed_env: BTreeSet<String>,
    /// Where workspaces may be.
    pub roots: WorkspaceRoots,
}

/// Where workspaces may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceRoots {
    /// Anywhere.
    Any,
    /// In or below one of these canonical directories; nowhere where there is none.
    Only(Vec<PathBuf>),
}

/// What is known of the directory that a request names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkspaceFacts<'a> {
    /// Where it is, links resolved; none where it cannot be opened.
    pub resolved: Option<&'a Path>,
    /// Whether it is the store of records, or lies in it.
    pub is_in_store: bool,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// For the result. Whether the network is enforced is for others to say: false here.
    pub decision: PolicyDecision,
    /// Why not: one of `policy.…`, or `backend.setup_failed` where the programs could not be
    /// looked at. None where the job may run.
    pub error: Option<JobError>,
    /// The command as far as it was found to be allowed, also where something else was denied.
    pub command: Option<JudgedCommand>,
}

/// An allowed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedCommand {
    /// The program that was judged; none where it is not there, so that starting it will fail,
    /// and for a file of the workspace.
    pub program: Option<Program>,
    /// Where it is.
    pub place: Place,
    /// What the executed file has to hold, one of these; any contents where there are none.
    pub pinned: Vec<Sha256>,
}

/// Where a command's file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the root file system.
    Root,
    /// In the copy of the workspace: it can be looked at only when that was made.
    Workspace(RelPath),
}

/// Judges a request that [`RunJobRequest::check`] has passed; `workspace` is of what
/// `workspace.path` names.
pub fn judge(
    request: &RunJobRequest,
    config: &PolicyConfig,
    workspace: WorkspaceFacts<'_>,
    programs: &dyn Programs,
) -> Judged {
    let mut lookup = Lookup::new(programs);
    let (command, chain, error) = judge_command(request, &mut lookup);
    let given = given_variables(request, &chain);
    let error = error
        .or_else(|| environment::check(&given, &request.policy, config).err())
        .or_else(|| artifact::check(&request.policy.artifacts.include).err())
        .or_else(|| workspace_root::check(&request.workspace.path, workspace, &config.roots).err())
        .or_else(|| check_network(request.policy.network).err());
    let dangerous = given.iter().filter(|name| is_dangerous(name));
    let reasons = error
        .iter()
        .map(|error| error.code.word().to_owned())
        .chain(dangerous.map(|name| format!("dangerous_env:{name}")))
        .collect();
    let decision = PolicyDecision {
        decision: if error.is_some() { Decision::Denied } else { Decision::Allowed },
        reasons,
        version: version(&request.policy, config),
        network: request.policy.network,
        network_enforced: false,
    };
    Judged { decision, error, command }
}

/// The first two rules.
fn judge_command(
    request: &RunJobRequest,
    lookup: &mut Lookup<'_>,
) -> (Option<JudgedCommand>, Chain, Option<JobError>) {
    let command = match command::allow(&request.command, &request.policy, lookup) {
        Ok(command) => command,
        Err(error) => return (None, Chain::default(), Some(error)),
    };
    match chain::follow(request, command.program.as_ref(), lookup) {
        Ok(chain) => {
            let shell = chain.shell.as_ref().filter(|_| !request.policy.allow_shell);
            let error = shell.map(shell::denied);
            (Some(command), chain, error)
        }
        Err(error) => (Some(command), Chain::default(), Some(error)),
    }
}

/// The names of all variables that are asked for: in `command.env`, then those that wrappers set;
/// each once.
fn given_variables(request: &RunJobRequest, chain: &Chain) -> Vec<String> {
    let mut seen = HashSet::new();
    let all = request.command.env.keys().chain(&chain.variables);
    all.filter(|name| seen.insert(name.as_str())).cloned().collect()
}

fn check_network(network: Network) -> Result<(), JobError> {
    match network {
        Network::None => Ok(()),
        Network::Host => {
            let message = "network is not allowed by policy";
            Err(JobError::new(ErrorCode::NetworkDenied, message).with("network", network.word()))
        }
    }
}

/// All that a decision depends on but the request's own wishes and the places of this host.
#[derive(Serialize)]
struct Versioned<'a> {
    rules: u32,
    policy: &'a PolicyRequest,
    allowed_env: &'a BTreeSet<String>,
}

fn version(policy: &PolicyRequest, config: &PolicyConfig) -> String {
    let all = Versioned { rules: RULES_VERSION, policy, allowed_env: &config.allowed_env };
    // Texts, flags and one small number: there is nothing in it that JSON cannot say.
    tagged_hash("v1", &all).unwrap_or_else(|_| "v1:".to_owned())
}

#[cfg(test)]
mod tests;
