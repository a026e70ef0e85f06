//! The listening socket, the accept loop and the way down.

pub(crate) mod body_budget;
mod chunk_scan;
pub(crate) mod connection;
mod connection_state;
mod framing;
pub(crate) mod head;
pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod rate_limit;
pub(crate) mod response_budget;
pub(crate) mod shutdown;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use nix::sys::socket::{Backlog, listen};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use self::body_budget::BodyRooms;
use self::in_flight::InFlight;
use self::limits::{Boxes, HttpLimits, Shortage, connections_affordable, raise_descriptors};
use self::response_budget::UnreadAnswers;
use self::shutdown::ShutdownHandle;
use super::checks::Checks;
use super::jobs::{ASKING_THREADS_MAX, JobsFront, JobsLimits};
use super::metrics::Metrics;
use super::metrics::counts::FrontCounts;
use super::request::body::BodyReading;
use super::request_log::RefusalLines;
use super::router::{Front, Routes, router};
use super::run::threads::RunThreads;
use crate::config::{Config, MetricsPlace, OnDisconnect, Tokens};
use crate::job::Jobs;
use cofferdam_core::sync::counter::Counter;
use cofferdam_core::values::deadline::Deadline;

/// Threads that serve all connections together. Runs have their own.
const WORKER_THREADS: usize = 2;
/// Threads that are there to refuse runs while every slot has one.
const ADMISSION_THREADS: usize = 4;
/// Turns of connections between two looks at what the sockets have.
const TURNS_PER_LOOK: u32 = 4;
/// Connections the kernel keeps for us until we accept them.
const BACKLOG_CONNECTIONS: i32 = 1024;
/// Connections to the listener for metrics alone: a scraper or two, and who looks what is wrong.
const METRICS_CONNECTIONS_MAX: usize = 16;
/// How long accepting rests after a failure such as descriptor exhaustion.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two log lines about failing accepts.
const ACCEPT_LOG_EVERY: Duration = Duration::from_secs(5);
/// How long killed runs may take to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// How long the last answers may take to reach the kernel.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// How the front is to behave.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// What a client may ask of the front itself.
    pub limits: HttpLimits,
    /// The boxes there may be beside them, which need descriptors too.
    pub boxes: Boxes,
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
            boxes: Boxes {
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
    pub fn raise_descriptors(&self) -> io::Result<Option<Shortage>> {
        raise_descriptors(self.limits.connections_max, self.boxes)
    }
}

/// A bound server.
pub struct Server {
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
    checks: Arc<dyn Checks>,
    jobs: Option<Arc<dyn Jobs>>,
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
    /// Listens on `address`, and for metrics where they have an address of their own. Clients may connect from here on, and are served by [`Server::run`].
    /// Without `jobs` there is no `/v1/jobs`.
    pub fn bind(
        address: SocketAddr,
        checks: Arc<dyn Checks>,
        jobs: Option<Arc<dyn Jobs>>,
        settings: HttpSettings,
    ) -> Result<Self, NotBound> {
        let listener = bound(address)?;
        let metrics_listener = match settings.metrics {
            MetricsPlace::Own(address) => Some(bound(address)?),
            MetricsPlace::SamePort | MetricsPlace::Off => None,
        };
        let shutdown = ShutdownHandle::new(Arc::clone(&checks), jobs.clone());
        Ok(Self { listener, metrics_listener, checks, jobs, settings, shutdown })
    }

    /// Where it listens, with the port the kernel chose if none was asked for.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where metrics are, if they have an address of their own.
    pub fn metrics_addr(&self) -> io::Result<Option<SocketAddr>> {
        self.metrics_listener.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Stops this server.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Serves until the shutdown handle is used and the drain is over: no live
    /// run, and their answers written. The listener stays open meanwhile, so
    /// that a probe reads `draining` rather than nothing.
    pub fn run(self) -> io::Result<()> {
        let runtime = self.runtime()?;
        let in_flight = InFlight::default();
        let (limits, log_headers) =
            (Arc::new(self.settings.limits.clone()), self.settings.log_headers);
        let connections_max = connections_affordable(limits.connections_max, self.settings.boxes);
        let counts = Arc::default();
        let front = Arc::new(self.front(Arc::clone(&counts), connections_max));
        let serving = |routes, connections_max, counts| Listening {
            router: router(Arc::clone(&front), routes, log_headers),
            connections_max,
            limits: Arc::clone(&limits),
            in_flight: in_flight.clone(),
            counts,
        };
        let shutdown = self.settings.allow_shutdown;
        let metrics = self.settings.metrics == MetricsPlace::SamePort;
        let routes = Routes { clients: true, shutdown, metrics };
        let clients = serving(routes, connections_max, counts);
        runtime.spawn(accept(joining(&runtime, &self.listener)?, clients));
        if let Some(listener) = &self.metrics_listener {
            let routes = Routes { clients: false, shutdown: false, metrics: true };
            // What its own connections do is in no figure.
            let scrapers = serving(routes, METRICS_CONNECTIONS_MAX, Arc::default());
            runtime.spawn(accept(joining(&runtime, listener)?, scrapers));
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
            .max_blocking_threads(ASKING_THREADS_MAX)
            .event_interval(TURNS_PER_LOOK)
            .enable_all()
            .build()
    }

    fn front(&self, counts: Arc<FrontCounts>, connections_max: usize) -> Front {
        let settings = &self.settings;
        let limits = &settings.limits;
        let rooms = BodyRooms::new(limits.bodies_bytes_max);
        let bodies = BodyReading { within: limits.body_within, rooms };
        Front {
            metrics: Metrics::new(
                Arc::clone(&self.checks),
                self.jobs.clone(),
                counts,
                connections_max,
                Arc::clone(&settings.log_dropped),
            ),
            checks: Arc::clone(&self.checks),
            run_threads: RunThreads::new(settings.boxes.runs + ADMISSION_THREADS),
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
            jobs: self.jobs.as_ref().map(|jobs| {
                let limits = self.jobs_limits(connections_max, bodies);
                Arc::new(JobsFront::new(Arc::clone(jobs), limits))
            }),
        }
    }

    /// Neither those who follow jobs nor those who download have all connections to themselves.
    fn jobs_limits(&self, connections_max: usize, bodies: BodyReading) -> JobsLimits {
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

    /// Waits for the live runs and jobs, kills those that outlast the grace, ends the jobs that
    /// have not begun, and lets the last answers out.
    fn drain(&self, in_flight: &InFlight) {
        log::info!("draining: no new runs");
        if !self.wait_idle(Deadline::after(self.settings.shutdown_grace)) {
            log::warn!("draining: the grace is over, killing what still runs");
            self.checks.cancel_all();
        }
        if let Some(jobs) = &self.jobs {
            jobs.cancel_all();
        }
        if !self.wait_idle(Deadline::after(KILLED_WITHIN)) {
            log::error!("draining: a killed run is still there, leaving it");
        }
        if !in_flight.wait_none(Deadline::after(LAST_ANSWERS_WITHIN)) {
            log::warn!("draining: leaving {} requests unanswered", in_flight.count());
        }
    }

    /// Waits until neither a run nor a job is live; false when the deadline came first.
    fn wait_idle(&self, deadline: Deadline) -> bool {
        self.checks.wait_idle(deadline)
            && self.jobs.as_ref().is_none_or(|jobs| jobs.wait_idle(deadline))
    }
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {source}")]
pub struct NotBound {
    /// The address.
    pub address: SocketAddr,
    /// Why not.
    pub source: io::Error,
}

fn bound(address: SocketAddr) -> Result<TcpListener, NotBound> {
    let bind = || -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        listen(&listener, Backlog::new(BACKLOG_CONNECTIONS)?)?;
        Ok(listener)
    };
    bind().map_err(|source| NotBound { address, source })
}

/// The same listener for `runtime`: a socket joins the one it is made in.
fn joining(runtime: &Runtime, listener: &TcpListener) -> io::Result<tokio::net::TcpListener> {
    let _entered = runtime.enter();
    tokio::net::TcpListener::from_std(listener.try_clone()?)
}

/// What a listener serves.
struct Listening {
    router: Router,
    connections_max: usize,
    limits: Arc<HttpLimits>,
    in_flight: InFlight,
    counts: Arc<FrontCounts>,
}

/// Accepts for ever. No failure ends it: a client that has gone again costs
/// nothing, and want of descriptors passes.
async fn accept(listener: tokio::net::TcpListener, serves: Listening) {
    let Listening { router, connections_max, limits, in_flight, counts } = serves;
    let unread = UnreadAnswers::new(limits.unread_bytes_max);
    let refusals = Arc::new(RefusalLines::default());
    let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let mut logged: Option<Instant> = None;
    // The semaphore is never closed, so this loop never ends.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((socket, _)) => {
                // Here and not in its own task, which begins some time.
                let counted = counts.enter();
                let serving = connection::serve(
                    socket,
                    router.clone(),
                    limits.clone(),
                    in_flight.clone(),
                    unread.clone(),
                    Arc::clone(&counts),
                    Arc::clone(&refusals),
                );
                tokio::spawn(async move {
                    serving.await;
                    drop((counted, place));
                });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if logged.is_none_or(|at| at.elapsed() >= ACCEPT_LOG_EVERY) {
                    log::warn!("accept: {error}; trying again");
                    logged = Some(Instant::now());
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
