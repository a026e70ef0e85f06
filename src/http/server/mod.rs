//! The HTTP server: listeners, runtime and graceful shutdown.

mod accept;
pub(crate) mod app_state;
pub(crate) mod body_budget;
pub(crate) mod connection;
mod connection_state;
mod framing;
pub(crate) mod limits;
pub(crate) mod rate_limit;
mod response_budget;
pub(crate) mod settings;
pub(crate) mod shutdown;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

pub use self::accept::BindError;
use self::accept::{Listener, accept, bind, into_tokio};
use self::app_state::AppState;
use self::body_budget::BodyBudget;
use self::limits::connections_affordable;
use self::settings::HttpSettings;
use self::shutdown::ShutdownHandle;
use super::cases::state::{CasesLimits, CasesState};
use super::engine::artifacts::state::ArtifactsState;
use super::engine::helpers::HelpersState;
use super::engine::state::{EngineHttpLimits, EngineState};
use super::evaluations::state::EvaluationsState;
use super::jobs::state::{BLOCKING_THREADS_MAX, JobsLimits, JobsState};
use super::metrics::counts::HttpCounts;
use super::metrics::registry::Metrics;
use super::request::body::BodyReader;
use super::router::{Routes, router};
use super::run::threads::RunThreads;
use super::services::Services;
use crate::config::{MetricsPlace, PublicRoutes};
use cofferdam_core::sync::in_flight::InFlight;
use cofferdam_core::values::deadline::Deadline;

/// Threads that serve all connections. Runs have their own threads.
const WORKER_THREADS: usize = 2;
/// Threads that refuse runs while every permit is taken.
const ADMISSION_THREADS: usize = 4;
/// Tasks polled between two checks of the sockets.
const POLLS_PER_CHECK: u32 = 4;
/// Connections to the separate metrics listener, for a few scrapers and an operator.
const METRICS_CONNECTIONS_MAX: usize = 16;
/// How long workspaces may take to be parked. What they changed before was saved already.
const PARKED_WITHIN: Duration = Duration::from_secs(8);
/// How long killed runs may take to end.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// How long the last responses may take to reach the kernel.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A bound server.
pub struct Server {
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
    services: Services,
    settings: HttpSettings,
    shutdown: ShutdownHandle,
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, settings, .. } = self;
        out.debug_struct("Server").field("listener", listener).field("settings", settings).finish()
    }
}

impl Server {
    /// Listens on `address`, and on the metrics address if there is a separate one. Clients can
    /// connect from now on; [`Server::run`] serves them.
    pub fn bind(
        address: SocketAddr,
        services: Services,
        settings: HttpSettings,
    ) -> Result<Self, BindError> {
        let listener = bind(address)?;
        let metrics_listener = match settings.metrics {
            MetricsPlace::Own(address) => Some(bind(address)?),
            MetricsPlace::SamePort | MetricsPlace::Off => None,
        };
        let shutdown = ShutdownHandle::new(services.clone());
        Ok(Self { listener, metrics_listener, services, settings, shutdown })
    }

    /// Returns the listening address, with the port that the kernel chose if it was 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the separate metrics address, if there is one.
    pub fn metrics_addr(&self) -> io::Result<Option<SocketAddr>> {
        self.metrics_listener.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Returns a handle that stops this server.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Serves until the shutdown handle is used and the drain is over: no run is live, and all
    /// responses are written. The listener stays open meanwhile, so that probes read `draining`
    /// instead of failing to connect.
    pub fn run(self) -> io::Result<()> {
        let runtime = self.runtime()?;
        let in_flight = InFlight::default();
        let (limits, log_headers) =
            (Arc::new(self.settings.limits.clone()), self.settings.log_headers);
        let connections_max =
            connections_affordable(limits.connections_max, self.settings.sandboxes);
        let counts = Arc::default();
        let state = Arc::new(self.state(Arc::clone(&counts), connections_max));
        let serving = |routes, connections_max, counts| Listener {
            router: router(Arc::clone(&state), routes, log_headers),
            connections_max,
            limits: Arc::clone(&limits),
            in_flight: in_flight.clone(),
            counts,
        };
        let shutdown = self.settings.allow_shutdown;
        let metrics = self.settings.metrics == MetricsPlace::SamePort;
        let routes = Routes { clients: true, shutdown, metrics };
        let clients = serving(routes, connections_max, counts);
        runtime.spawn(accept(into_tokio(&runtime, &self.listener)?, clients));
        if let Some(listener) = &self.metrics_listener {
            let routes = Routes { clients: false, shutdown: false, metrics: true };
            // The metrics do not count the metrics listener's own connections.
            let scrapers = serving(routes, METRICS_CONNECTIONS_MAX, Arc::default());
            runtime.spawn(accept(into_tokio(&runtime, listener)?, scrapers));
        }
        self.shutdown.wait();
        self.drain(&in_flight);
        runtime.shutdown_timeout(LAST_ANSWERS_WITHIN);
        Ok(())
    }

    fn runtime(&self) -> io::Result<Runtime> {
        Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .thread_name("http")
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .event_interval(POLLS_PER_CHECK)
            .enable_all()
            .build()
    }

    fn state(&self, counts: Arc<HttpCounts>, connections_max: usize) -> AppState {
        let settings = &self.settings;
        let limits = &settings.limits;
        let budget = BodyBudget::new(limits.bodies_bytes_max);
        let bodies = BodyReader { within: limits.body_within, budget };
        AppState {
            metrics: Metrics::new(
                self.services.clone(),
                counts,
                connections_max,
                Arc::clone(&settings.log_dropped),
            ),
            checks: Arc::clone(&self.services.checks),
            run_threads: RunThreads::new(settings.sandboxes.runs + ADMISSION_THREADS),
            shutdown: self.shutdown.clone(),
            input_bytes_max: settings.input_bytes_max,
            output_bounded: settings.output_bytes_max.is_some(),
            timeout_default: settings.timeout_default,
            timeout_max: settings.timeout_max,
            bodies: bodies.clone(),
            ping_every: settings.limits.ping_every,
            on_disconnect: settings.on_disconnect,
            origins_allow: settings.origins_allow.clone(),
            hosts_allow: settings.hosts_allow.clone(),
            tokens: settings.tokens.clone(),
            engine: self.services.engine.as_ref().map(|engine| {
                let limits = EngineHttpLimits {
                    origins: self.attach_origins(),
                    input_bytes_max: settings.engine_input_bytes_max,
                    bodies: bodies.clone(),
                    ping_every: limits.ping_every,
                    transfers_max: limits.downloads_max.min(connections_max / 2),
                    on_disconnect: settings.on_disconnect,
                };
                Arc::new(EngineState::new(Arc::clone(engine), limits))
            }),
            artifacts: self.services.artifacts.as_ref().map(|artifacts| {
                let transfers_max = limits.artifact_transfers_max.min(connections_max / 2);
                let artifacts = Arc::clone(artifacts);
                Arc::new(ArtifactsState::new(artifacts, limits.body_within, transfers_max))
            }),
            helpers: settings.engine_enabled.then(|| {
                let input_bytes_max = settings.engine_input_bytes_max;
                Arc::new(HelpersState { input_bytes_max, bodies: bodies.clone() })
            }),
            public: self
                .services
                .evaluations
                .as_ref()
                .map_or(PublicRoutes::default(), |_| settings.evaluations.public),
            evaluations: self.services.evaluations.as_ref().map(|evaluations| {
                let streams_max = limits.event_streams_max;
                Arc::new(EvaluationsState::new(
                    Arc::clone(evaluations),
                    settings.evaluations.clone(),
                    bodies.clone(),
                    limits.ping_every,
                    streams_max.min((connections_max / 2).clamp(1, Semaphore::MAX_PERMITS)),
                ))
            }),
            cases: self.services.cases.as_ref().map(|cases| {
                let limits = self.cases_limits(connections_max, bodies.clone());
                Arc::new(CasesState::new(Arc::clone(cases), limits))
            }),
            jobs: self.services.jobs.as_ref().map(|jobs| {
                let limits = self.jobs_limits(connections_max, bodies);
                Arc::new(JobsState::new(Arc::clone(jobs), limits))
            }),
        }
    }

    /// Returns the origins whose pages may attach: those of the settings, and our own.
    fn attach_origins(&self) -> Vec<String> {
        let address = self.listener.local_addr();
        let own = address
            .into_iter()
            .flat_map(|address| ["http", "https"].map(|scheme| format!("{scheme}://{address}")));
        self.settings.attach_origins.iter().cloned().chain(own).collect()
    }

    /// Returns the limits of the job routes. Event streams and downloads each use at most half of
    /// the connections.
    fn jobs_limits(&self, connections_max: usize, bodies: BodyReader) -> JobsLimits {
        let HttpSettings { limits, jobs_input_bytes_max, .. } = &self.settings;
        let at_most = (connections_max / 2).clamp(1, Semaphore::MAX_PERMITS);
        JobsLimits {
            input_bytes_max: *jobs_input_bytes_max,
            bodies,
            ping_every: limits.ping_every,
            event_streams_max: limits.event_streams_max.min(at_most),
            downloads_max: limits.downloads_max.min(at_most),
        }
    }

    /// Returns the limits of the routes of Cases, with as many streams and downloads as jobs.
    fn cases_limits(&self, connections_max: usize, bodies: BodyReader) -> CasesLimits {
        let HttpSettings { limits, cases, .. } = &self.settings;
        let at_most = (connections_max / 2).clamp(1, Semaphore::MAX_PERMITS);
        CasesLimits {
            input_bytes_max: cases.input_bytes_max,
            bodies,
            ping_every: limits.ping_every,
            event_streams_max: limits.event_streams_max.min(at_most),
            downloads_max: limits.downloads_max.min(at_most),
        }
    }

    /// Waits for live runs and jobs, kills those that outlast the grace period, ends queued jobs,
    /// and waits for the last responses.
    fn drain(&self, in_flight: &InFlight) {
        log::info!("draining: no new runs");
        if !self.services.wait_idle(Deadline::after(self.settings.shutdown_grace)) {
            log::warn!("draining: the grace is over, killing what still runs");
            self.services.checks.cancel_all();
        }
        self.services.cancel_agents();
        if !self.services.wait_idle(Deadline::after(KILLED_WITHIN)) {
            log::error!("draining: a killed run has not ended, leaving it");
        }
        if !in_flight.wait_none(Deadline::after(LAST_ANSWERS_WITHIN)) {
            log::warn!("draining: leaving {} requests unanswered", in_flight.count());
        }
        self.services.park_all(Deadline::after(PARKED_WITHIN));
    }
}
