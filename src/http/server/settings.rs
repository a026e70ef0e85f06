//! Settings of the HTTP server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::limits::{DescriptorShortage, HttpLimits, SandboxCounts, raise_descriptors};
use crate::config::{Config, MetricsPlace, OnDisconnect, Tokens};
use crate::http::cases::settings::CaseHttpSettings;
use crate::http::evaluations::settings::EvaluationHttpSettings;
use cofferdam_core::sync::counter::Counter;

/// Settings of the HTTP server.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Limits for clients.
    pub limits: HttpLimits,
    /// The sandboxes, which need descriptors too.
    pub sandboxes: SandboxCounts,
    /// The maximum size of a request body in bytes; `None` for no limit.
    pub input_bytes_max: Option<u64>,
    /// The maximum size of a job request in bytes.
    pub jobs_input_bytes_max: u64,
    /// Whether the engine is enabled.
    pub engine_enabled: bool,
    /// The maximum size of a request to the engine in bytes.
    pub engine_input_bytes_max: u64,
    /// What is accepted of evaluations.
    pub evaluations: EvaluationHttpSettings,
    /// What is accepted of Cases.
    pub cases: CaseHttpSettings,
    /// The maximum size of the output in bytes; `None` for no limit.
    pub output_bytes_max: Option<u64>,
    /// The timeout of a request that names none.
    pub timeout_default: Duration,
    /// The longest timeout that a request may ask for.
    pub timeout_max: Duration,
    /// What happens to a run when its client disconnects.
    pub on_disconnect: OnDisconnect,
    /// Whether `POST /shutdown` exists.
    pub allow_shutdown: bool,
    /// How long a drain may take before live runs are killed.
    pub shutdown_grace: Duration,
    /// Where `GET /metrics` is served.
    pub metrics: MetricsPlace,
    /// The origins whose pages may post.
    pub origins_allow: Vec<String>,
    /// The origins whose pages may attach to sessions, besides those of this host.
    pub attach_origins: Vec<String>,
    /// The host names that are accepted without a token, in addition to those that are always
    /// trusted.
    pub hosts_allow: Vec<String>,
    /// Whether request headers are logged.
    pub log_headers: bool,
    /// Counts dropped log lines, for the metrics.
    pub log_dropped: Arc<Counter>,
    /// The tokens that every route except `/health` requires; everyone has access if there are
    /// none. A separate metrics listener requires none.
    pub tokens: Tokens,
}

impl From<&Config> for HttpSettings {
    fn from(config: &Config) -> Self {
        Self {
            limits: HttpLimits {
                connections_max: config.connections_max,
                bodies_bytes_max: config.front.bodies_bytes_max,
                event_streams_max: config.jobs.followers_max,
                ..HttpLimits::default()
            },
            sandboxes: SandboxCounts {
                runs: config.concurrency,
                jobs: config.jobs.sandboxes(),
                engine: config.engine.sandboxes(),
                workspaces: config.engine.workspaces(),
                standby: config.standby_max + config.prestarted_max,
                followers: config.jobs.followers_max,
            },
            input_bytes_max: config.input_bytes_max,
            jobs_input_bytes_max: config.jobs.input_bytes_max,
            engine_enabled: config.engine.enabled,
            engine_input_bytes_max: config.engine.maxima.input_bytes,
            evaluations: EvaluationHttpSettings::from(&config.evaluations),
            cases: CaseHttpSettings::from(&config.cases),
            output_bytes_max: config.limits.output_bytes_max,
            timeout_default: config.limits.wall,
            timeout_max: config.timeout_max,
            on_disconnect: config.on_disconnect,
            allow_shutdown: config.allow_shutdown,
            shutdown_grace: config.shutdown_grace,
            metrics: config.metrics,
            origins_allow: config.origins_allow.clone(),
            attach_origins: config.front.attach_origins.clone(),
            hosts_allow: config.front.hosts_allow.clone(),
            log_headers: config.debug,
            log_dropped: Arc::default(),
            tokens: config.tokens.clone(),
        }
    }
}

impl HttpSettings {
    /// Raises the soft limit of descriptors to what the server may need, or returns what is
    /// missing.
    pub fn raise_descriptors(&self) -> io::Result<Option<DescriptorShortage>> {
        raise_descriptors(self.limits.connections_max, self.sandboxes)
    }
}
