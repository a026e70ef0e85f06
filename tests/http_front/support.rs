//! A server on a free port, and a scripted check service behind it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam::check::metrics::CheckMetrics;
use cofferdam::check::request::CheckRequest;
use cofferdam::check::run::{CheckError, CheckReport};
use cofferdam::check::status::{
    Examined, HostReport, PrestartStatus, ServiceStatus, SlotsStatus, StandbyStatus,
};
use cofferdam::config::{MetricsPlace, OnDisconnect, PublicRoutes, Tokens};
use cofferdam::egress::AllowList;
use cofferdam::evaluation::service::Evaluations;
use cofferdam::http::{
    CaseHttpSettings, Checks, EvaluationHttpSettings, EvaluationRequestBounds, HttpLimits,
    HttpSettings, RunCheck, SandboxCounts, Server, Services, ShutdownHandle,
};
use cofferdam::job::Jobs;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::permits::Permits;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    CapturedStream, Enforced, Outcome, OutputSink, RunReport, Timings, Usage, Watch,
};
pub use cofferdam_test_server::client::{Answer, Client};

/// The test's closure, which replaces a sandbox.
pub type Script = dyn Fn(&CheckRequest, Watch, Option<Box<dyn OutputSink>>) -> Result<CheckReport, CheckError>
    + Send
    + Sync;

/// A check service that runs scripts.
pub struct ScriptedChecks {
    script: Box<Script>,
    slots: Arc<Permits>,
    draining: AtomicBool,
    killed: AtomicBool,
    live: Mutex<Vec<CancelToken>>,
    host: HostReport,
    /// A test holds this to block every admission.
    pub admission: Mutex<()>,
    /// The metrics to report, except whether it drains.
    pub metrics: Mutex<CheckMetrics>,
    /// The number of admitted runs.
    pub runs: AtomicUsize,
}

impl ScriptedChecks {
    pub fn new(
        slots: usize,
        script: impl Fn(
            &CheckRequest,
            Watch,
            Option<Box<dyn OutputSink>>,
        ) -> Result<CheckReport, CheckError>
        + Send
        + Sync
        + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            slots: Permits::new(slots),
            draining: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            live: Mutex::new(Vec::new()),
            host: HostReport::new(Enforced::default(), &[], Examined::default()),
            admission: Mutex::new(()),
            metrics: Mutex::default(),
            runs: AtomicUsize::new(0),
        })
    }

    /// Every run prints the solution's text and exits with 0.
    pub fn echo() -> Arc<Self> {
        Self::new(10, |request, _, _| Ok(exited(0, &request.solution_text, "")))
    }

    /// Every run lasts until it is cancelled.
    pub fn endless() -> Arc<Self> {
        Self::new(1, |_, watch, _| {
            wait_for_end(&watch);
            Ok(report(Outcome::Cancelled, "", ""))
        })
    }
}

impl Checks for ScriptedChecks {
    fn admit(self: Arc<Self>, request: CheckRequest) -> Result<RunCheck, CheckError> {
        drop(self.admission.lock().unwrap());
        if self.is_draining() {
            return Err(CheckError::Draining);
        }
        match request.lang_slug.as_str() {
            "absent" => return Err(CheckError::LanguageUnavailable("no such toolchain".into())),
            "Python" => return Err(CheckError::Invalid("unsupported lang_slug".into())),
            _ => {}
        }
        let slot = self.slots.try_enter().ok_or(CheckError::Busy)?;
        self.runs.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(move |watch, sink| {
            self.live.lock().unwrap().push(watch.cancel.clone());
            // A run that was admitted before the kill may begin after it.
            if self.killed.load(Ordering::SeqCst) {
                watch.cancel.cancel();
            }
            let report = (self.script)(&request, watch, sink);
            drop(slot);
            report
        }))
    }

    fn metrics(&self) -> CheckMetrics {
        CheckMetrics { draining: self.is_draining(), ..self.metrics.lock().unwrap().clone() }
    }

    fn start_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    fn status(&self) -> ServiceStatus<'_> {
        ServiceStatus {
            version: "0",
            uptime_seconds: 0,
            draining: self.is_draining(),
            slots: SlotsStatus { in_use: self.slots.taken(), capacity: 10 },
            standby: StandbyStatus { ready: 0, max: 0 },
            prestart: PrestartStatus::default(),
            languages: vec!["python"],
            host: &self.host,
        }
    }

    fn cancel_all(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.live.lock().unwrap().iter().for_each(CancelToken::cancel);
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        self.slots.wait_idle(deadline)
    }
}

/// Waits as the supervisor does, until the run is cancelled or its client disconnects.
pub fn wait_for_end(watch: &Watch) {
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    let mut fds = vec![PollFd::new(watch.cancel.as_fd(), PollFlags::POLLIN)];
    if let Some(client) = &watch.client {
        fds.push(PollFd::new(client.as_fd(), PollFlags::from_bits_retain(libc::POLLRDHUP)));
    }
    poll(&mut fds, PollTimeout::NONE).unwrap();
}

/// A report of a run that ended with `code`.
pub fn exited(code: u8, stdout: &str, stderr: &str) -> CheckReport {
    report(Outcome::Exited { code }, stdout, stderr)
}

pub fn report(outcome: Outcome, stdout: &str, stderr: &str) -> CheckReport {
    let captured = |text: &str| CapturedStream {
        bytes: text.as_bytes().to_vec(),
        bytes_total: text.len() as u64,
        truncated: false,
    };
    let usage = Usage {
        wall_ms: 12,
        cpu_ms: 7,
        memory_peak_bytes: 4096,
        memory_peak_source: "cgroup1",
        processes_peak: None,
        oom_kills: Some(2),
        stdout_bytes: stdout.len() as u64,
        stderr_bytes: stderr.len() as u64,
    };
    let timings = Timings {
        prepare: Duration::from_micros(1_500),
        run: Duration::from_millis(12),
        cleanup: Duration::from_micros(20),
    };
    let run = RunReport {
        outcome,
        stdout: captured(stdout),
        stderr: captured(stderr),
        usage,
        enforced: Enforced::default(),
        not_enforced: Vec::new(),
        timings,
        standby: false,
    };
    CheckReport { run, queued: Duration::from_micros(5), last_words: None }
}

/// Settings with long deadlines, one of which a test may shorten.
pub fn settings() -> HttpSettings {
    let far = Duration::from_secs(120);
    HttpSettings {
        limits: HttpLimits {
            connections_max: 1024,
            head_within: far,
            body_within: far,
            bodies_bytes_max: 1 << 30,
            answer_within: far,
            unread_bytes_max: 1 << 30,
            idle_max: far,
            linger_max: Duration::from_secs(5),
            ping_every: far,
            event_streams_max: 64,
            downloads_max: 64,
            artifact_transfers_max: 64,
        },
        sandboxes: SandboxCounts {
            runs: 2,
            jobs: 1,
            engine: 0,
            workspaces: 0,
            standby: 0,
            followers: 64,
        },
        input_bytes_max: Some(1000),
        jobs_input_bytes_max: 1000,
        engine_enabled: false,
        engine_input_bytes_max: 1000,
        evaluations: EvaluationHttpSettings {
            bounds: EvaluationRequestBounds {
                agent_code_bytes_max: 100,
                agent_timeout: Duration::from_secs(600),
                agent_hosts: AllowList::default(),
                batch_max: 10,
            },
            batch_body_bytes_max: 2000,
            public: PublicRoutes { status: true, metrics: true },
        },
        cases: CaseHttpSettings { input_bytes_max: 1000 },
        output_bytes_max: Some(1 << 20),
        timeout_default: Duration::from_secs(30),
        timeout_max: Duration::from_secs(300),
        on_disconnect: OnDisconnect::Kill,
        allow_shutdown: false,
        shutdown_grace: Duration::from_secs(30),
        metrics: MetricsPlace::SamePort,
        origins_allow: Vec::new(),
        attach_origins: Vec::new(),
        hosts_allow: Vec::new(),
        log_headers: true,
        log_dropped: Arc::default(),
        tokens: Tokens::default(),
    }
}

/// A running server; dropping this stops it and waits for its end.
pub struct Running {
    pub address: SocketAddr,
    /// The address of the metrics listener, if it is separate.
    pub metrics_address: Option<SocketAddr>,
    pub shutdown: ShutdownHandle,
    thread: Option<JoinHandle<()>>,
}

pub fn start(checks: Arc<ScriptedChecks>, settings: HttpSettings) -> Running {
    start_with(checks, None, settings)
}

/// Starts a server that also has jobs.
pub fn start_with(
    checks: Arc<ScriptedChecks>,
    jobs: Option<Arc<dyn Jobs>>,
    settings: HttpSettings,
) -> Running {
    start_all(checks, jobs, None, settings)
}

/// Starts a server that also has evaluations.
pub fn start_all(
    checks: Arc<ScriptedChecks>,
    jobs: Option<Arc<dyn Jobs>>,
    evaluations: Option<Arc<dyn Evaluations>>,
    settings: HttpSettings,
) -> Running {
    start_services(checks, settings, |services| {
        services.jobs = jobs;
        services.evaluations = evaluations;
    })
}

/// Starts a server with the services that `add` adds to the checks.
pub fn start_services(
    checks: Arc<ScriptedChecks>,
    settings: HttpSettings,
    add: impl FnOnce(&mut Services),
) -> Running {
    let mut services = Services {
        checks,
        jobs: None,
        engine: None,
        artifacts: None,
        evaluations: None,
        cases: None,
        egress: Arc::default(),
    };
    add(&mut services);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), services, settings).unwrap();
    let (address, shutdown) = (server.local_addr().unwrap(), server.shutdown_handle());
    let metrics_address = server.metrics_addr().unwrap();
    let thread = std::thread::spawn(move || server.run().unwrap());
    Running { address, metrics_address, shutdown, thread: Some(thread) }
}

/// Starts a server with echoing runs and the default [`settings`].
pub fn start_echo() -> Running {
    start(ScriptedChecks::echo(), settings())
}

impl Running {
    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends `bytes` on a new connection and reads the one answer.
    pub fn ask(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect();
        client.send(bytes);
        client.answer()
    }

    /// Waits until the server ends by itself.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.request();
        self.shutdown.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// A body that runs and prints `solution`.
pub fn body(solution: &str) -> String {
    format!(r#"{{"solution_text":"{solution}","lang_slug":"python"}}"#)
}

/// A `POST /run` of `body` with `headers` (whole lines) and its length.
pub fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /run HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
