//! What Cases reach, what their provisioning sees, and what clients may ask for.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::available_parallelism;

use crate::config::jobs::{JobsConfig, Roots, roots_for};
use crate::config::network::{EgressConfig, SecretsFile, network_files, optional_network};
use crate::config::parse::{
    parse_allow_list, parse_count, parse_names, parse_roots, parse_some_bytes, parse_switch,
};
use crate::config::reader::{Problems, VariableReader};
use crate::config::table;
use crate::egress::AllowList;
use cofferdam_core::NetworkObject;

/// The most Cells at once.
const WORKERS_MAX: usize = 256;
/// The most runs that may wait.
const QUEUE_MAX: usize = 100_000;
/// Sandboxes and file systems of one Cell that have a host id of their own at the same time.
const HOST_IDS: usize = 4;

/// The settings of Cases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseConfig {
    /// Rules over what git sends to the host of a repository, and the hosts of repositories, if it names any.
    pub clone_network: NetworkObject,
    /// Rules over what provisioning sends.
    pub provision_network: NetworkObject,
    /// The files with these, absolute. They may hold secrets, so that no sandbox shows them.
    pub network_files: Vec<PathBuf>,
    /// Variables of the caller that provisioning sees.
    pub provision_env: Vec<String>,
    /// Hosts whose address need not be public.
    pub private_hosts: AllowList,
    /// The most bytes of all caches together.
    pub cache_bytes_max: u64,
    /// What holds for programs of every kind.
    pub egress: EgressConfig,
    /// The secrets that Cases on the command line may name, if there are any; a service has its own.
    pub secrets: Option<SecretsFile>,
}

/// Whether there are Cases over HTTP, how many, and what they may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseServiceConfig {
    /// Whether `/v1/cases` exists.
    pub enabled: bool,
    /// Where Cases may be, absolute; `None` if not configured.
    pub roots: Option<Vec<PathBuf>>,
    /// Cells that run at the same time, at least one.
    pub workers: usize,
    /// Runs that may wait, at least one.
    pub queue_max: usize,
    /// The longest request, bytes.
    pub input_bytes_max: u64,
    /// Hosts that Cases may ask to reach.
    pub egress_hosts: AllowList,
    /// Variables of the service that secrets of harnesses may name.
    pub harness_env: Vec<String>,
    /// What holds on the command line too.
    pub all: CaseConfig,
}

impl CaseConfig {
    /// Reads `environment`.
    pub fn read(environment: impl IntoIterator<Item = (OsString, OsString)>) -> (Self, Problems) {
        let mut reader = VariableReader::new(environment);
        let egress = EgressConfig::read(&mut reader);
        let mut config = Self::read_from(&mut reader, egress);
        // Its warnings are for operators of a service.
        config.secrets = SecretsFile::read(&mut reader).0;
        (config, reader.into_problems())
    }

    fn read_from(reader: &mut VariableReader, egress: EgressConfig) -> Self {
        Self {
            clone_network: optional_network(reader, &table::CASES_CLONE_NETWORK)
                .unwrap_or_default(),
            provision_network: optional_network(reader, &table::CASES_PROVISION_NETWORK)
                .unwrap_or_default(),
            network_files: network_files(
                reader,
                [&table::CASES_CLONE_NETWORK, &table::CASES_PROVISION_NETWORK],
            ),
            provision_env: reader.value(&table::CASES_PROVISION_ENV, parse_names),
            private_hosts: reader.value(&table::CASES_HOSTS_ALLOW, parse_allow_list),
            cache_bytes_max: reader.value(&table::CASES_CACHE_MAX, parse_some_bytes),
            egress,
            secrets: None,
        }
    }
}

impl CaseServiceConfig {
    pub(in crate::config) fn read(reader: &mut VariableReader, egress: &EgressConfig) -> Self {
        let workers = reader.optional(&table::CASES_WORKERS, |text| {
            parse_count(text).filter(|count| *count <= WORKERS_MAX)
        });
        Self {
            enabled: reader.value(&table::CASES, parse_switch),
            roots: reader.optional(&table::CASES_ROOTS, parse_roots),
            workers: workers
                .unwrap_or_else(|| available_parallelism().map_or(1, usize::from).min(WORKERS_MAX)),
            queue_max: reader.value(&table::CASES_QUEUE_MAX, |text| {
                parse_count(text).filter(|count| *count <= QUEUE_MAX)
            }),
            input_bytes_max: reader.value(&table::CASES_INPUT_MAX, parse_some_bytes),
            egress_hosts: reader.value(&table::CASES_EGRESS_ALLOW, parse_allow_list),
            harness_env: reader.value(&table::CASES_HARNESS_ENV, parse_names),
            all: CaseConfig::read_from(reader, egress.clone()),
        }
    }

    /// How many sandboxes Cases may use at once.
    pub fn sandboxes(&self) -> usize {
        if self.enabled { self.workers.saturating_mul(HOST_IDS) } else { 0 }
    }

    /// Where the Cases of a service that listens on `address` may be: `CASES_ROOTS`, else as workspaces of jobs.
    pub fn roots_for(&self, address: SocketAddr, jobs: &JobsConfig) -> Roots {
        match &self.roots {
            Some(roots) => Roots::Only(roots.clone()),
            None => roots_for(address, jobs),
        }
    }
}
