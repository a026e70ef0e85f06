//! The state that every handler shares.

use std::sync::Arc;
use std::time::Duration;

use super::checks::Checks;
use super::jobs::state::JobsState;
use super::metrics::registry::Metrics;
use super::request::body::BodyReader;
use super::run::threads::RunThreads;
use super::server::shutdown::ShutdownHandle;
use crate::config::{OnDisconnect, Tokens};

/// What every handler may use.
pub struct AppState {
    /// The check service.
    pub checks: Arc<dyn Checks>,
    /// The threads that runs have.
    pub run_threads: RunThreads,
    /// What is exposed, wherever that is.
    pub metrics: Metrics,
    /// Stops the server.
    pub shutdown: ShutdownHandle,
    /// The longest body, bytes; none for no limit.
    pub input_bytes_max: Option<u64>,
    /// Whether some figure bounds a run's output.
    pub output_bounded: bool,
    /// The timeout of a request that names none.
    pub timeout_default: Duration,
    /// The longest timeout a request may ask for.
    pub timeout_max: Duration,
    /// How bodies are read.
    pub bodies: BodyReader,
    /// Between two signs of life on an event stream.
    pub ping_every: Duration,
    /// What becomes of a run whose client has gone.
    pub on_disconnect: OnDisconnect,
    /// Origins whose pages may post.
    pub origins_allow: Vec<String>,
    /// Names that the service answers to without a token, beside those that are always good.
    pub hosts_allow: Vec<String>,
    /// Who may ask.
    pub tokens: Tokens,
    /// Agents' jobs, where there are any.
    pub jobs: Option<Arc<JobsState>>,
}
