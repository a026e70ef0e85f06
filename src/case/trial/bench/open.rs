//! What a bench needs of this host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::TrialBenchError;
use crate::case::cell::CellExecutorKind;
use crate::case::file::Case;
use crate::case::source::repository_hosts;
use crate::case::trial::hosts::{RunHost, RunHostRequest, TrialHosts, TrialHostsSettings};
use crate::case::trial::own::OwnParts;
use crate::config::CaseConfig;
use crate::egress::{AllowList, EgressTerms, ServiceEgress};
use crate::executor::SandboxExecutor;
use cofferdam_core::SetupFailure;
use cofferdam_sandbox::engine::{RootSource, SandboxConfig, SandboxHost, builtin_profile};

const PROFILE: &str = "default";
/// Sandboxes that one Cell has at the same time.
const HOST_IDS: usize = 4;

/// What a bench is opened with.
#[derive(Debug)]
pub(super) struct BenchPlan<'a> {
    pub(super) case: &'a Case,
    pub(super) case_path: &'a Path,
    /// Absolute.
    pub(super) store: &'a Path,
    pub(super) variables: &'a BTreeMap<String, String>,
    pub(super) helper: &'a Path,
    pub(super) keep: bool,
}

/// What the Cells of a bench share. It is dropped before the files that are in the directory of this process.
pub(super) fn open(
    plan: &BenchPlan<'_>,
    own: OwnParts,
) -> Result<(RunHost, TrialHosts), TrialBenchError> {
    let variables = plan.variables.iter().map(|(name, value)| (name.into(), value.into()));
    let (config, problems) = CaseConfig::read(variables);
    let config = problems
        .none_or(config)
        .map_err(|problems| TrialBenchError::Variables(problems.to_string()))?;
    let mut private = config.network_files.clone();
    private.push(plan.store.to_owned());
    let executor = Arc::new(sandboxes(private)?);
    let settings = TrialHostsSettings {
        store_dir: plan.store.to_owned(),
        cache_bytes_max: config.cache_bytes_max,
        egress: terms(&config, plan.case)?,
        clone_network: config.clone_network,
        provision_network: config.provision_network,
        provision_env: config.provision_env,
        root_name: String::new(),
        variables: plan.variables.clone(),
        trusts_case: true,
        helper: plan.helper.to_owned(),
        local_roots: vec![PathBuf::from("/")],
    };
    let hosts = TrialHosts::open(settings, &executor)?;
    let request = RunHostRequest {
        case: plan.case,
        case_path: plan.case_path,
        executor: CellExecutorKind::of(plan.case, None),
        keep: plan.keep,
        owner: "",
    };
    Ok((hosts.host_with(&request, own)?, hosts))
}

/// What may be reached. The repositories that the Case names need no public address.
fn terms(config: &CaseConfig, case: &Case) -> Result<EgressTerms, TrialBenchError> {
    let hosts = [config.private_hosts.entries(), &repository_hosts(case)].concat();
    Ok(EgressTerms {
        private_hosts: AllowList::parse(&hosts)
            .map_err(|error| TrialBenchError::Variables(error.to_string()))?,
        service: ServiceEgress::default(),
        bytes_max: config.egress.bytes_max,
        roots: config.egress.roots.clone(),
        log_paths: config.egress.log_paths,
    })
}

/// The sandboxes of one Cell at a time.
fn sandboxes(private: Vec<PathBuf>) -> Result<SandboxExecutor, SetupFailure> {
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let config = SandboxConfig { profile, root: RootSource::Host, private, strict: false };
    let mut executor = SandboxExecutor::new(SandboxHost::open(config)?);
    executor.prepare_for(HOST_IDS, 1)?;
    Ok(executor)
}
