//! The service's configuration: environment and options in, one checked value or every problem out.

mod choices;
mod engine;
mod evaluation;
mod firecracker;
mod jobs;
mod network;
mod pages;
mod parse;
mod reader;
mod service;
mod table;
mod tokens;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use self::parse::{
    parse_count, parse_decimal, parse_names, parse_optional_bytes, parse_origins, parse_paths,
    parse_some_bytes, parse_some_duration, parse_switch,
};
use self::reader::VariableReader;
use cofferdam_core::Limits;
use cofferdam_core::values::duration::parse_duration;
use cofferdam_sandbox::engine::SANDBOXES_MAX;

pub use self::choices::{Isolation, LogFormat, MetricsPlace, OnDisconnect, WorkspaceChoice};
pub use self::engine::{
    EngineConfig, EngineMaxima, EngineTimes, RequestRange, RequestRanges, TokenMaxima,
};
pub use self::evaluation::{
    CaseConfig, CaseServiceConfig, EvaluationCacheConfig, EvaluationConfig, EvaluationSandbox,
    EvaluationSizes, EvaluationTimes, PublicRoutes,
};
pub use self::firecracker::{FirecrackerConfig, JailerConfig};
pub use self::jobs::{JobsConfig, Roots, roots_for};
pub use self::network::{
    EgressConfig, NetworkConfig, SecretsFile, exec_terms, read_network_object,
};
pub use self::pages::{configuration_page, environment_file, variables_help};
pub use self::reader::Problems;
pub use self::service::{FrontConfig, Overrides};
pub use self::tokens::{TokenName, Tokens};

/// The checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where to listen.
    pub address: SocketAddr,
    /// Whether `POST /shutdown` exists.
    pub allow_shutdown: bool,
    /// Runs at the same time, at least one.
    pub concurrency: usize,
    /// Sandboxes prepared ahead of runs; 0 for none.
    pub standby_max: usize,
    /// Sandboxes with programs that are started ahead of runs; 0 for none.
    pub prestarted_max: usize,
    /// The memory of all these sandboxes together, bytes; an eighth of all memory if not set.
    pub standby_memory_max: Option<u64>,
    /// The longest request body, bytes; `None` for no limit.
    pub input_bytes_max: Option<u64>,
    /// The longest timeout a request may ask for.
    pub timeout_max: Duration,
    /// The limits of a run that the language table and the request do not override.
    pub limits: Limits,
    /// Names of the service's own variables that user code sees.
    pub env_allow: Vec<String>,
    /// Directories of the root that every run may write to, each run in a layer of its own; `None`
    /// if the variable is not set.
    pub writable_paths: Option<Vec<PathBuf>>,
    /// What happens to a run whose client disconnects.
    pub on_disconnect: OnDisconnect,
    /// How long a drain may take.
    pub shutdown_grace: Duration,
    /// Client connections at the same time, at least one.
    pub connections_max: usize,
    /// Origins whose pages may post, as browsers write them.
    pub origins_allow: Vec<String>,
    /// What the HTTP server accepts from clients.
    pub front: FrontConfig,
    /// Where `GET /metrics` is.
    pub metrics: MetricsPlace,
    /// What to do on a host that cannot enforce everything.
    pub isolation: Isolation,
    /// Whether request headers are logged.
    pub debug: bool,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Which workspace a request runs in.
    pub workspaces: WorkspaceChoice,
    /// The root file system of sandboxes; the host's if `None`.
    pub rootfs: Option<PathBuf>,
    /// Agents' jobs.
    pub jobs: JobsConfig,
    /// The code executor engine.
    pub engine: EngineConfig,
    /// Evaluations of agents.
    pub evaluations: EvaluationConfig,
    /// Cases over HTTP.
    pub cases: CaseServiceConfig,
    /// The virtual machines that jobs may ask for, if configured.
    pub firecracker: Option<FirecrackerConfig>,
    /// Who may send requests; everybody if there are no tokens.
    pub tokens: Tokens,
    /// The file of tokens, which no run may see.
    pub tokens_file: Option<PathBuf>,
    /// The secrets that requests may name, if there are any.
    pub secrets: Option<SecretsFile>,
    /// What is reported at the start but does not refuse it.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads `environment` (as of `std::env::vars_os`) and `overrides`. A value with a problem is
    /// replaced by its default.
    pub fn read(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        overrides: &Overrides,
    ) -> (Self, Problems) {
        let mut reader = VariableReader::new(environment);
        let config = Self::read_from(&mut reader, overrides);
        (config, reader.into_problems())
    }

    fn read_from(reader: &mut VariableReader, overrides: &Overrides) -> Self {
        let address = service::address(reader, overrides);
        let sandboxes_max = SANDBOXES_MAX as usize;
        let concurrency = reader.value(&table::RUN_CONCURRENCY, |text| {
            parse_count(text).filter(|count| *count <= sandboxes_max)
        });
        let egress = EgressConfig::read(reader);
        let jobs = JobsConfig::read(reader, &egress);
        let (tokens, token_warnings) = Tokens::read(reader);
        let (secrets, secret_warnings) = SecretsFile::read(reader);
        let engine = EngineConfig::read(reader, &egress);
        let evaluations = EvaluationConfig::read(reader, &egress);
        let cases = CaseServiceConfig::read(reader, &egress);
        let live = concurrency
            + jobs.sandboxes()
            + engine.sandboxes()
            + evaluations.sandboxes()
            + cases.sandboxes();
        let standby_max = standby_max(reader, concurrency, live);
        let prestart = reader.value(&table::PRESTART, parse_switch);
        let ids_left = sandboxes_max.saturating_sub(live + standby_max);
        let prestarted_max = if prestart { standby_max.min(ids_left) } else { 0 };
        Self {
            address,
            allow_shutdown: matches!(reader.text(&table::ALLOW_SHUTDOWN), Some("1" | "true")),
            concurrency,
            standby_max,
            prestarted_max,
            standby_memory_max: reader.optional(&table::STANDBY_MEMORY_MAX, parse_some_bytes),
            input_bytes_max: reader.value(&table::RUN_INPUT_MAX, parse_optional_bytes),
            timeout_max: reader.value(&table::RUN_TIMEOUT_MAX, parse_some_duration),
            limits: service::limits(reader),
            env_allow: reader.value(&table::RUN_ENV_ALLOW, parse_names),
            writable_paths: reader.optional(&table::RUN_WRITABLE_PATHS, parse_paths),
            on_disconnect: reader.value(&table::RUN_ON_DISCONNECT, OnDisconnect::parse),
            shutdown_grace: reader.value(&table::SHUTDOWN_GRACE, |text| parse_duration(text).ok()),
            connections_max: reader.value(&table::HTTP_CONNECTIONS_MAX, parse_count),
            origins_allow: reader.value(&table::HTTP_ORIGINS_ALLOW, parse_origins),
            front: FrontConfig::read(reader),
            metrics: reader.value(&table::METRICS_ADDR, MetricsPlace::parse),
            isolation: reader.value(&table::ISOLATION, Isolation::parse),
            debug: reader.raw(&table::DEBUG).is_some_and(|value| value != "0" && value != "false"),
            log_format: reader.value(&table::LOG_FORMAT, LogFormat::parse),
            workspaces: service::workspaces(reader, overrides),
            rootfs: overrides.rootfs.clone().or_else(|| reader.directory(&table::SANDBOX_ROOTFS)),
            warnings: unknown_names(reader)
                .chain(jobs.warnings())
                .chain(token_warnings)
                .chain(secret_warnings)
                .collect(),
            jobs,
            engine,
            evaluations,
            cases,
            firecracker: FirecrackerConfig::read(reader),
            tokens,
            tokens_file: Tokens::file(reader),
            secrets,
        }
    }
}

/// How many sandboxes to prepare. Each sandbox has a host id of its own, and those of the `live`
/// sandboxes that there may be come first.
fn standby_max(reader: &mut VariableReader, concurrency: usize, live: usize) -> usize {
    let sandboxes_max = SANDBOXES_MAX as usize;
    let wanted = reader.optional(&table::STANDBY_MAX, |text| {
        parse_decimal(text).filter(|count| *count <= sandboxes_max)
    });
    wanted.unwrap_or(concurrency).min(sandboxes_max.saturating_sub(live))
}

fn unknown_names(reader: &VariableReader) -> impl Iterator<Item = String> {
    reader.unknown_names().map(|name| format!("{name}: not a variable of ours, ignored"))
}

#[cfg(test)]
mod tests;
