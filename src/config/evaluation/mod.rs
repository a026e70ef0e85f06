//! The configuration of evaluations.

mod cases;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::network::{EgressConfig, NetworkConfig, network_files, optional_network};
use super::parse::{
    parse_allow_list, parse_count, parse_decimal, parse_roots, parse_some_bytes,
    parse_some_duration, parse_switch,
};
use super::reader::VariableReader;
use super::table::{self, Variable};
use crate::egress::AllowList;
use cofferdam_core::NetworkObject;
use cofferdam_core::values::cpus::parse_cpus_milli;
use cofferdam_core::values::names::is_variable_name;

pub use cases::{CaseConfig, CaseServiceConfig};

/// The most evaluations at once.
const EVALUATIONS_MAX: usize = 256;
/// Sandboxes and file systems of one evaluation that have a host id of their own at the same time.
const HOST_IDS: usize = 8;
/// The longest time of a step, seconds.
const SECONDS_MAX: u64 = 31_536_000;
/// The most that the agent, and each test, may write, MiB.
const DISK_MIB_MAX: u64 = 16 << 20;

/// Whether there are evaluations, how many, and how much each may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationConfig {
    /// Whether `/evaluate` exists.
    pub enabled: bool,
    /// Evaluations at the same time, at least one.
    pub capacity: usize,
    /// The longest program of an agent, bytes.
    pub agent_code_bytes_max: u64,
    /// Where their files are while they run, absolute.
    pub workspace_base: PathBuf,
    /// Root file systems that requests may name.
    pub rootfs_dir: Option<PathBuf>,
    /// Directories below which tasks may name repositories, absolute.
    pub repository_roots: Vec<PathBuf>,
    /// What each sandbox may use.
    pub sandbox: EvaluationSandbox,
    /// How much of everything there may be.
    pub sizes: EvaluationSizes,
    /// How long each step may take.
    pub times: EvaluationTimes,
    /// The cache.
    pub cache: EvaluationCacheConfig,
    /// What agents may reach.
    pub network: NetworkConfig,
    /// What an agent may reach whose request names nothing; `None` for all that agents may.
    pub agent_network: Option<NetworkObject>,
    /// What the commands of install may reach.
    pub install_network: NetworkObject,
    /// Rules over what git sends to the host of a repository, and the hosts of repositories, if it names any.
    pub clone_network: NetworkObject,
    /// The files with these, absolute. They may hold secrets, so that no sandbox shows them.
    pub network_files: Vec<PathBuf>,
    /// Variables of install besides those of the task.
    pub install_env: BTreeMap<String, String>,
    /// The most evaluations of one batch.
    pub batch_max: usize,
    /// The longest request for a batch, bytes.
    pub batch_body_bytes_max: u64,
    /// What needs no token.
    pub public: PublicRoutes,
}

/// What each sandbox of an evaluation may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvaluationSandbox {
    /// Bytes of memory.
    pub memory_bytes_max: u64,
    /// Processes and threads.
    pub processes_max: u64,
    /// CPUs in thousandths; `None` for no limit.
    pub cpus_milli_max: Option<u64>,
}

/// How much of everything there may be, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvaluationSizes {
    /// What the agent, and each test, may write.
    pub disk_bytes_max: u64,
    /// A repository with what is installed for it.
    pub base_bytes_max: u64,
    /// An archive.
    pub archive_bytes_max: u64,
    /// The files in an archive.
    pub unpacked_bytes_max: u64,
    /// What git may fetch.
    pub repository_bytes_max: u64,
    /// A patch.
    pub patch_bytes_max: u64,
    /// The output of the agent, and of each test, that is kept.
    pub output_bytes_max: usize,
}

/// How long things may take, and how long they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvaluationTimes {
    /// An evaluation.
    pub session: Duration,
    /// git.
    pub clone: Duration,
    /// All commands of install.
    pub install: Duration,
    /// The agent.
    pub agent: Duration,
    /// A test.
    pub test: Duration,
    /// How long a record is kept after `session`.
    pub retention: Duration,
}

/// The cache of archives, repositories and bases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationCacheConfig {
    /// Where it is; `None` for a directory of the store.
    pub directory: Option<PathBuf>,
    /// The most bytes of each kind.
    pub bytes_max: u64,
    /// Whether all tokens share it.
    pub is_shared: bool,
}

/// What needs no token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PublicRoutes {
    /// The state of evaluations in `GET /status`.
    pub status: bool,
    /// The counters of evaluations in `GET /metrics`.
    pub metrics: bool,
}

impl EvaluationConfig {
    pub(super) fn read(reader: &mut VariableReader, egress: &EgressConfig) -> Self {
        let hosts = [&table::EVAL_AGENT_HOSTS, &table::EVAL_HOSTS_ALLOW];
        let network = NetworkConfig::read(reader, hosts, egress);
        let capacity = reader.value(&table::MAX_CONCURRENT_EVALS, |text| {
            parse_count(text).filter(|count| *count <= EVALUATIONS_MAX)
        });
        let roots = reader.optional(&table::EVAL_REPO_ROOTS, parse_roots);
        Self {
            enabled: reader.value(&table::EVAL, parse_switch),
            capacity,
            agent_code_bytes_max: reader.value(&table::MAX_AGENT_CODE_BYTES, parse_some_bytes),
            workspace_base: reader.absolute(&table::WORKSPACE_BASE).unwrap_or_default(),
            rootfs_dir: reader.directory(&table::EVAL_ROOTFS_DIR),
            repository_roots: roots.unwrap_or_default(),
            sandbox: sandbox(reader),
            sizes: EvaluationSizes::read(reader),
            times: EvaluationTimes::read(reader),
            cache: EvaluationCacheConfig {
                directory: reader.directory(&table::EVAL_CACHE_DIR),
                bytes_max: reader.value(&table::EVAL_CACHE_MAX, parse_some_bytes),
                is_shared: reader.value(&table::CACHE_SHARED, parse_switch),
            },
            agent_network: narrowed(reader, &table::EVAL_AGENT_NETWORK, &network.hosts),
            network,
            install_network: install_network(reader),
            clone_network: optional_network(reader, &table::EVAL_CLONE_NETWORK).unwrap_or_default(),
            network_files: network_files(
                reader,
                [
                    &table::EVAL_AGENT_NETWORK,
                    &table::EVAL_INSTALL_NETWORK,
                    &table::EVAL_CLONE_NETWORK,
                ],
            ),
            install_env: install_env(reader),
            batch_max: reader.value(&table::EVAL_BATCH_MAX, parse_count),
            batch_body_bytes_max: reader.value(&table::EVAL_BATCH_BODY_MAX, parse_some_bytes),
            public: reader.value(&table::AUTH_PUBLIC, PublicRoutes::parse),
        }
    }

    /// How many host ids evaluations may use at once.
    pub fn sandboxes(&self) -> usize {
        if self.enabled { self.host_ids() } else { 0 }
    }

    /// How many host ids so many evaluations use.
    pub fn host_ids(&self) -> usize {
        self.capacity.saturating_mul(HOST_IDS)
    }
}

impl EvaluationSizes {
    fn read(reader: &mut VariableReader) -> Self {
        let disk_mib = reader.value(&table::DISK_QUOTA_MB, |text| {
            parse_decimal::<u64>(text).filter(|mib| (1..=DISK_MIB_MAX).contains(mib))
        });
        Self {
            disk_bytes_max: disk_mib << 20,
            base_bytes_max: reader.value(&table::EVAL_BASE_MAX, parse_some_bytes),
            archive_bytes_max: reader.value(&table::EVAL_ARCHIVE_MAX, parse_some_bytes),
            unpacked_bytes_max: reader.value(&table::EVAL_UNPACKED_MAX, parse_some_bytes),
            repository_bytes_max: reader.value(&table::EVAL_REPO_MAX, parse_some_bytes),
            patch_bytes_max: reader.value(&table::EVAL_PATCH_MAX, parse_some_bytes),
            output_bytes_max: reader.value(&table::MAX_OUTPUT_BYTES, |text| {
                parse_some_bytes(text).and_then(|bytes| usize::try_from(bytes).ok())
            }),
        }
    }
}

impl EvaluationTimes {
    fn read(reader: &mut VariableReader) -> Self {
        Self {
            session: reader.value(&table::SESSION_TTL_SECS, parse_seconds),
            clone: reader.value(&table::CLONE_TIMEOUT_SECS, parse_seconds),
            install: reader.value(&table::EVAL_INSTALL_TIMEOUT_SECS, parse_seconds),
            agent: reader.value(&table::AGENT_TIMEOUT_SECS, parse_seconds),
            test: reader.value(&table::TEST_TIMEOUT_SECS, parse_seconds),
            retention: reader.value(&table::EVAL_RETENTION, parse_some_duration),
        }
    }
}

impl PublicRoutes {
    fn parse(text: &str) -> Option<Self> {
        let mut public = Self::default();
        if text == "none" {
            return Some(public);
        }
        for name in text.split(',').map(str::trim) {
            match name {
                "status" => public.status = true,
                "metrics" => public.metrics = true,
                _ => return None,
            }
        }
        Some(public)
    }
}

fn sandbox(reader: &mut VariableReader) -> EvaluationSandbox {
    EvaluationSandbox {
        memory_bytes_max: reader.value(&table::EVAL_MEMORY_MAX, parse_some_bytes),
        processes_max: reader
            .value(&table::EVAL_PIDS_MAX, |text| parse_decimal(text).filter(|count| *count > 0)),
        cpus_milli_max: reader.optional(&table::EVAL_CPUS, |text| parse_cpus_milli(text).ok()),
    }
}

fn install_network(reader: &mut VariableReader) -> NetworkObject {
    let all = reader.value(&table::EVAL_INSTALL_HOSTS, parse_allow_list);
    let narrowed = narrowed(reader, &table::EVAL_INSTALL_NETWORK, &all);
    narrowed.unwrap_or_else(|| NetworkObject::of_hosts(all.entries().to_vec()))
}

/// The network object in `variable`, whose hosts lie within `maximum`.
fn narrowed(
    reader: &mut VariableReader,
    variable: &Variable,
    maximum: &AllowList,
) -> Option<NetworkObject> {
    let network = optional_network(reader, variable)?;
    let hosts = AllowList::parse(&network.hosts()).map_err(|error| error.to_string());
    let outside = |entry| format!("{entry:?} is not within the hosts that are allowed");
    match hosts.and_then(|hosts| hosts.is_within(maximum).map_err(outside)) {
        Ok(()) => Some(network),
        Err(fault) => {
            reader.problem(format!("{}: {fault}", variable.name));
            Some(NetworkObject::default())
        }
    }
}

/// Variables of install: given with their values, or taken from the service's own.
fn install_env(reader: &mut VariableReader) -> BTreeMap<String, String> {
    let variable = &table::EVAL_INSTALL_ENV;
    let entries = reader.optional(variable, parse_assignments).unwrap_or_default();
    let mut env = BTreeMap::new();
    for (name, value) in entries {
        let own = || reader.any_text(&name).map(str::to_owned);
        match value.or_else(own) {
            Some(value) => {
                env.insert(name, value);
            }
            None => reader.refuse_value(variable.name, variable.wanted, &name),
        }
    }
    env
}

/// `NAME=VALUE` or `NAME`, divided by commas or spaces.
fn parse_assignments(text: &str) -> Option<Vec<(String, Option<String>)>> {
    let entries = text.split([',', ' ', '\n']).filter(|entry| !entry.is_empty());
    let parsed = entries.map(|entry| match entry.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (entry.to_owned(), None),
    });
    parsed.map(|entry| is_variable_name(&entry.0).then_some(entry)).collect()
}

fn parse_seconds(text: &str) -> Option<Duration> {
    let seconds = parse_decimal(text).filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    seconds.map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
