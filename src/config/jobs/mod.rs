//! The configuration of agents' jobs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use super::network::{EgressConfig, NetworkConfig};
use super::parse::{
    parse_count, parse_decimal, parse_milliseconds, parse_names, parse_roots, parse_some_bytes,
    parse_some_duration, parse_switch,
};
use super::reader::VariableReader;
use super::table;
use cofferdam_core::job::JobLimits;
use cofferdam_core::values::bytes::parse_bytes;
use cofferdam_sandbox::engine::SANDBOXES_MAX;

/// The most jobs that may wait: each holds its request in memory.
const QUEUE_MAX: usize = 100_000;
/// The prefix of the variables for the largest limits.
const MAXIMUM: &str = "JOBS_MAX_";

/// Whether there are jobs, how many, where, and how much each may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsConfig {
    /// Whether `/v1/jobs` exists.
    pub enabled: bool,
    /// Jobs that run at the same time, at least one.
    pub workers: usize,
    /// Jobs that may wait, at least one.
    pub queue_max: usize,
    /// Where records are kept.
    pub store_dir: PathBuf,
    /// Where workspaces may be, absolute; `None` if not configured.
    pub workspace_roots: Option<Vec<PathBuf>>,
    /// Names of variables that any job may set, besides those that its own policy allows.
    pub allowed_env: Vec<String>,
    /// What programs may reach.
    pub network: NetworkConfig,
    /// Clients that may follow jobs' events at the same time, at least one.
    pub followers_max: usize,
    /// The longest request, bytes.
    pub input_bytes_max: u64,
    /// How long the record of an ended job is kept; `None` for ever.
    pub retention: Option<Duration>,
    /// How much all records may hold, bytes; `None` for no limit.
    pub store_bytes_max: Option<u64>,
    /// The largest limits a request may name.
    pub maxima: JobLimits,
}

/// Where workspaces may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// Anywhere the service can read.
    Any,
    /// Below one of these.
    Only(Vec<PathBuf>),
}

/// Where the workspaces of a service that listens on `address` may be. If the operator does not
/// configure roots, clients of this host may use any workspace, and other clients none.
pub fn roots_for(address: SocketAddr, config: &JobsConfig) -> Roots {
    match &config.workspace_roots {
        Some(roots) => Roots::Only(roots.clone()),
        None if address.ip().to_canonical().is_loopback() => Roots::Any,
        None => Roots::Only(Vec::new()),
    }
}

impl JobsConfig {
    pub(super) fn read(reader: &mut VariableReader, egress: &EgressConfig) -> Self {
        let sandboxes_max = SANDBOXES_MAX as usize;
        let workers = reader.optional(&table::JOBS_WORKERS, |text| {
            parse_count(text).filter(|count| *count <= sandboxes_max)
        });
        Self {
            enabled: reader.value(&table::JOBS, parse_switch),
            workers: workers.unwrap_or_else(cores),
            queue_max: reader.value(&table::JOBS_QUEUE_MAX, |text| {
                parse_count(text).filter(|count| *count <= QUEUE_MAX)
            }),
            store_dir: reader.directory(&table::JOBS_STORE_DIR).unwrap_or_default(),
            workspace_roots: reader.optional(&table::JOBS_WORKSPACE_ROOTS, parse_roots),
            allowed_env: reader.value(&table::JOBS_ALLOWED_ENV, parse_names),
            network: NetworkConfig::read(
                reader,
                [&table::JOBS_NETWORK_HOSTS, &table::JOBS_HOSTS_ALLOW],
                egress,
            ),
            followers_max: reader.value(&table::JOBS_FOLLOWERS_MAX, parse_count),
            input_bytes_max: reader.value(&table::JOBS_INPUT_MAX, parse_some_bytes),
            retention: reader.optional(&table::JOBS_RETENTION, parse_some_duration),
            store_bytes_max: reader.optional(&table::JOBS_STORE_MAX, parse_some_bytes),
            maxima: maxima(reader),
        }
    }

    /// How many sandboxes jobs may use at once.
    pub fn sandboxes(&self) -> usize {
        if self.enabled { self.workers } else { 0 }
    }

    /// Whether the operator chose where records are kept.
    pub fn store_is_asked_for(&self) -> bool {
        table::JOBS_STORE_DIR.default_value().map(Path::new) != Some(&self.store_dir)
    }

    /// Requests that name no limit have the default, which a maximum below it refuses.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> + use<> {
        let presets = JobLimits::default().named();
        let below = self.maxima.named().into_iter().zip(presets);
        below.filter(|((_, max), (_, preset))| max < preset).map(|((name, _), (_, preset))| {
            let variable = name.to_ascii_uppercase();
            format!("{MAXIMUM}{variable}: below {preset}: a request has to name {name}")
        })
    }
}

/// The largest limits that a request may name.
fn maxima(reader: &mut VariableReader) -> JobLimits {
    let mut maxima = JobLimits::default();
    for variable in table::JOB_MAXIMA.variables {
        let limit = variable.name.trim_start_matches(MAXIMUM).to_ascii_lowercase();
        let (least, parse) = (JobLimits::least(&limit), parser_of(&limit));
        let max = reader.value(variable, |text| parse(text).filter(|max| *max >= least));
        if let Some(field) = maxima.named_mut(&limit) {
            *field = max;
        }
    }
    maxima
}

/// How the values of `limit` are parsed, by the unit in its name.
fn parser_of(limit: &str) -> fn(&str) -> Option<u64> {
    if limit.ends_with("_bytes") {
        |text| parse_bytes(text).ok()
    } else if limit.ends_with("_ms") {
        parse_milliseconds
    } else {
        parse_decimal
    }
}

/// The CPUs that this process may use.
fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests;
