//! Decides whether a job may run, from the request, the configuration and the programs that exist.
//!
//! The rules are checked in this order: command, shell, environment, artifacts, workspace, network.
//! The first that fails is reported. The policy checks only the command that the request names. An
//! allowed interpreter, build tool, editor or script can start any program in the sandbox, and a
//! file of the workspace can contain anything. The sandbox, not the policy, is the barrier.

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

use crate::egress::AllowList;
use cofferdam_core::job::{
    Decision, ErrorCode, JobError, Network, PolicyDecision, PolicyRequest, RunJobRequest,
};
use cofferdam_core::values::digest::tagged_hash;
use environment::is_dangerous;
use program::ProgramCache;

/// Increases with every change of the rules.
const RULES_VERSION: u32 = 4;

/// What the runner allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Variables that every request may set.
    pub allowed_env: BTreeSet<String>,
    /// Where workspaces may be.
    pub roots: WorkspaceRoots,
    /// What programs may ask to reach.
    pub network_hosts: AllowList,
}

/// The result of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// The decision for the job's result. `network_enforced` is false until a backend is chosen.
    pub decision: PolicyDecision,
    /// Why the job may not run: a code `policy.…`, or `backend.setup_failed` if the lookup of a
    /// program failed.
    pub error: Option<JobError>,
    /// The command, if the rule on commands allows it, even if another rule denies the job.
    pub command: Option<ApprovedCommand>,
}

/// Evaluates a [valid](cofferdam_core::job::ValidRequest) request. `workspace` describes the directory
/// at its `workspace.path`.
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
        network: request.policy.network.clone(),
        network_enforced: false,
    };
    PolicyOutcome { decision, error, command }
}

/// Checks the rules after the one on commands, in their order.
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
    check_network(&policy.network, &config.network_hosts)
}

fn check_network(network: &Network, allowed: &AllowList) -> Result<(), JobError> {
    let denied = |reason: &str| {
        let words = format!("network is not allowed by policy{reason}");
        JobError::new(ErrorCode::NetworkDenied, words)
    };
    match network {
        Network::None => Ok(()),
        Network::Host => Err(denied("").with("network", "host")),
        Network::Allow(network) => {
            let asked = AllowList::parse(&network.hosts())
                .map_err(|error| denied(&format!(": {error}")))?;
            asked.is_within(allowed).map_err(|reason| denied(&format!(": {reason}")))
        }
    }
}

/// What the version of a policy covers: the rules and everything that is allowed, except the workspace roots.
#[derive(Serialize)]
struct VersionInput<'a> {
    rules: u32,
    policy: &'a PolicyRequest,
    allowed_env: &'a BTreeSet<String>,
    network_hosts: &'a [String],
}

fn version(policy: &PolicyRequest, config: &PolicyConfig) -> String {
    let input = VersionInput {
        rules: RULES_VERSION,
        policy,
        allowed_env: &config.allowed_env,
        network_hosts: config.network_hosts.entries(),
    };
    // Serialization cannot fail: there are only strings, flags and one small number.
    tagged_hash("v1", &input).unwrap_or_else(|_| "v1:".to_owned())
}

#[cfg(test)]
mod tests;
