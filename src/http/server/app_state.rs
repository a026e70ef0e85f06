//! The state that all handlers share.

use std::sync::Arc;
use std::time::Duration;

use super::shutdown::ShutdownHandle;
use crate::config::{OnDisconnect, PublicRoutes, Tokens};
use crate::http::cases::state::CasesState;
use crate::http::engine::artifacts::state::ArtifactsState;
use crate::http::engine::helpers::HelpersState;
use crate::http::engine::state::EngineState;
use crate::http::evaluations::state::EvaluationsState;
use crate::http::jobs::state::JobsState;
use crate::http::metrics::registry::Metrics;
use crate::http::request::body::BodyReader;
use crate::http::run::threads::RunThreads;
use crate::http::services::Checks;

/// The state that all handlers share.
pub struct AppState {
    /// The check service.
    pub checks: Arc<dyn Checks>,
    /// The threads that runs are admitted and supervised on.
    pub run_threads: RunThreads,
    /// The metrics, whichever listener serves them.
    pub metrics: Metrics,
    /// Stops the server.
    pub shutdown: ShutdownHandle,
    /// The maximum size of a request body in bytes; `None` for no limit.
    pub input_bytes_max: Option<u64>,
    /// Whether a limit bounds a run's output.
    pub output_bounded: bool,
    /// The timeout of a request that names none.
    pub timeout_default: Duration,
    /// The longest timeout that a request may ask for.
    pub timeout_max: Duration,
    /// Reads request bodies.
    pub bodies: BodyReader,
    /// The interval between pings on an event stream.
    pub ping_every: Duration,
    /// What happens to a run when its client disconnects.
    pub on_disconnect: OnDisconnect,
    /// The origins whose pages may post.
    pub origins_allow: Vec<String>,
    /// The host names that are accepted without a token, in addition to those that are always
    /// trusted.
    pub hosts_allow: Vec<String>,
    /// The tokens that clients present.
    pub tokens: Tokens,
    /// The state of the engine's routes, if the engine is enabled.
    pub engine: Option<Arc<EngineState>>,
    /// The state of the routes of artifacts, if there are any.
    pub artifacts: Option<Arc<ArtifactsState>>,
    /// The state of the routes of helpers, if the engine is enabled.
    pub helpers: Option<Arc<HelpersState>>,
    /// The state of the job routes, if jobs are enabled.
    pub jobs: Option<Arc<JobsState>>,
    /// The state of the routes of evaluations, if there are any.
    pub evaluations: Option<Arc<EvaluationsState>>,
    /// The state of the routes of Cases, if there are any.
    pub cases: Option<Arc<CasesState>>,
    /// The routes that answer without a token; none without evaluations.
    pub public: PublicRoutes,
}
