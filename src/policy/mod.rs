//! Whether a job may run: a pure decision over what is asked for, what the runner allows, and which
//! programs there are.
//!
//! The rules come in one order, and the first that fails is told: command, shell, environment,
//! artifacts, workspace, network. The wall around a job is its box. What is decided here is whether
//! the command it names is one that was meant: an allowed interpreter, build tool, editor or script
//! can start whatever is in the box, and a file of the workspace is what its writer made it.

mod artifact;
mod command;
mod environment;
mod program;
mod shell;
#[cfg(test)]
mod testing;
mod workspace_root;

use std::collections::BTreeSet;

use serde::Serialize;

pub use command::{ApprovedCommand, CommandLocation};
pub use program::{ProgramFinder, ResolvedProgram};
pub use workspace_root::{WorkspaceFacts, WorkspaceRoots};

use crate::base::digest::tagged_hash;
use crate::spec::job::{
    Decision, ErrorCode, JobError, Network, PolicyDecision, PolicyRequest, RunJobRequest,
};
use environment::is_dangerous;
use program::ProgramCache;

/// Counts up with every change of what the rules here say.
const RULES_VERSION: u32 = 3;

/// What the runner, not the request, allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Variables that any request may give.
    pub allowed_env: BTreeSet<String>,
    /// Where workspaces may be.
    pub roots: WorkspaceRoots,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// For the result. Whether the network is enforced is for others to say: false here.
    pub decision: PolicyDecision,
    /// Why not: one of `policy.…`, or `backend.setup_failed` where the programs could not be
    /// looked at. None where the job may run.
    pub error: Option<JobError>,
    /// The command as far as it was found to be allowed, also where something else was denied.
    pub command: Option<ApprovedCommand>,
}

/// Judges a request that [`RunJobRequest::check`] has passed; `workspace` is of what
/// `workspace.path` names.
pub fn evaluate(
    request: &RunJobRequest,
    config: &PolicyConfig,
    workspace: WorkspaceFacts<'_>,
    programs: &dyn ProgramFinder,
) -> PolicyOutcome {
    let mut programs = ProgramCache::new(programs);
    let (command, error) = match command::approve(&request.command, &request.policy, &mut programs)
    {
        Ok(command) => {
            let error = check(request, &command, config, workspace).err();
            (Some(command), error)
        }
        Err(error) => (None, Some(error)),
    };
    let dangerous = request.command.env.keys().filter(|name| is_dangerous(name));
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
    PolicyOutcome { decision, error, command }
}

/// The rules after the first, in their order.
fn check(
    request: &RunJobRequest,
    command: &ApprovedCommand,
    config: &PolicyConfig,
    workspace: WorkspaceFacts<'_>,
) -> Result<(), JobError> {
    let policy = &request.policy;
    if !policy.allow_shell {
        let argv0 = request.command.argv.first().map_or("", String::as_str);
        shell::check(argv0, command.program.as_ref())?;
    }
    environment::check(request.command.env.keys(), &policy.allowed_env, &config.allowed_env)?;
    artifact::check(&policy.artifacts.include)?;
    workspace_root::check(&request.workspace.path, workspace, &config.roots)?;
    check_network(policy.network)
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
struct VersionInput<'a> {
    rules: u32,
    policy: &'a PolicyRequest,
    allowed_env: &'a BTreeSet<String>,
}

fn version(policy: &PolicyRequest, config: &PolicyConfig) -> String {
    let all = VersionInput { rules: RULES_VERSION, policy, allowed_env: &config.allowed_env };
    // Texts, flags and one small number: there is nothing in it that JSON cannot say.
    tagged_hash("v1", &all).unwrap_or_else(|_| "v1:".to_owned())
}

#[cfg(test)]
mod tests;
