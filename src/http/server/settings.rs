//! How a server is set up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::limits::{DescriptorShortage, HttpLimits, SandboxCounts, raise_descriptors};
use crate::config::{Config, MetricsPlace, OnDisconnect, Tokens};
use cofferdam_core::sync::counter::Counter;

/// How the front is to behave.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// What a client may ask of the front itself.
    pub limits: HttpLimits,
    /// The boxes there may be beside them, which need descriptors too.
    pub boxes: SandboxCounts,
    /// The longest body, bytes; none for no limit.
    pub input_bytes_max: Option<u64>,
    /// The longest request for a job, bytes.
    pub jobs_input_bytes_max: u64,
    /// The longest output, bytes; none for no limit.
    pub output_bytes_max: Option<u64>,
    /// The timeout of a request that names none.
    pub timeout_default: Duration,
    /// The longest timeout a request may ask for.
    pub timeout_max: Duration,
    /// What becomes of a run whose client has gone.
    pub on_disconnect: OnDisconnect,
    /// Whether `POST /shutdown` exists.
    pub allow_shutdown: bool,
    /// How long a drain may take before the live runs are killed.
    pub shutdown_grace: Duration,
    /// Where `GET /metrics` is.
    pub metrics: MetricsPlace,
    /// Origins whose pages may post.
    pub origins_allow: Vec<String>,
    /// Names that the service answers to without a token, beside those that are always good.
    pub hosts_allow: Vec<String>,
    /// Whether request headers are logged.
    pub log_headers: bool,
    /// Lines of the log that were dropped, for the metrics.
    pub log_dropped: Arc<Counter>,
    /// Who may ask for anything but `/health`; everybody where there is none. Metrics that have a
    /// listener of their own are whoever's who reaches it.
    pub tokens: Tokens,
}

impl From<&Config> for HttpSettings {
    fn from(config: &Config) -> Self {
        let jobs = if config.jobs.enabled { config.jobs.workers } else { 0 };
        Self {
            limits: HttpLimits {
                connections_max: config.connections_max,
                bodies_bytes_max: config.front.bodies_bytes_max,
                event_streams_max: config.jobs.followers_max,
                ..HttpLimits::default()
            },
            boxes: SandboxCounts {
                runs: config.concurrency,
                jobs,
                standby: config.standby_max,
                followers: config.jobs.followers_max,
            },
            input_bytes_max: config.input_bytes_max,
            jobs_input_bytes_max: config.jobs.input_bytes_max,
            output_bytes_max: config.limits.output_bytes_max,
            timeout_default: config.limits.wall,
            timeout_max: config.timeout_max,
            on_disconnect: config.on_disconnect,
            allow_shutdown: config.allow_shutdown,
            shutdown_grace: config.shutdown_grace,
            metrics: config.metrics,
            origins_allow: config.origins_allow.clone(),
            hosts_allow: config.front.hosts_allow.clone(),
            log_headers: config.debug,
            log_dropped: Arc::default(),
            tokens: config.tokens.clone(),
        }
    }
}

impl HttpSettings {
    /// Has this process open as many descriptors as it may need, or says what it lacks.
    pub fn raise_descriptors(&self) -> io::Result<Option<DescriptorShortage>> {
        raise_descriptors(self.limits.connections_max, self.boxes)
    }
}
