//! The three doors (library, command line, HTTP): each turns a request into a result or an error.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam::egress::{AllowList, EgressTerms};
use cofferdam::executor::SandboxExecutor;
use cofferdam::job::{Runner, RunnerSettings};
use cofferdam::policy::{PolicyConfig, WorkspaceRoots};
use cofferdam::store::StoreSettings;
use cofferdam_core::job::{JobLimits, JobRequestError, parse_request};
use cofferdam_sandbox::engine::SandboxHost;
use cofferdam_test_server::client::{Answer, request};
use cofferdam_test_server::service::{Service, Setup, cofferdam};
use cofferdam_test_support::{has, host};
use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;

/// The longest time that a job of these tests may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// All doors on this host, shared by the tests while any test uses them.
#[derive(Debug)]
pub struct Doors {
    runner: Runner,
    service: Service,
    store: TempDir,
}

/// One way to submit a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Library,
    CommandLine,
    Http,
}

pub const EACH: [Door; 3] = [Door::Library, Door::CommandLine, Door::Http];

/// The outcome of a request.
#[derive(Debug)]
pub enum Answered {
    /// The result of an accepted job.
    Ended(Value),
    /// The error of a refused request.
    Refused(Value),
}

static SHARED: Mutex<Weak<Doors>> = Mutex::new(Weak::new());

/// The doors, or `None` if this host cannot run sandboxes.
pub fn doors() -> Option<Arc<Doors>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(doors) = shared.upgrade() {
        return Some(doors);
    }
    let doors = Arc::new(Doors::open()?);
    *shared = Arc::downgrade(&doors);
    Some(doors)
}

/// The setup of a job server over the store `directory`.
pub fn job_server(directory: &Path) -> Setup {
    Setup::shell().env("JOBS_STORE_DIR", directory).env("JOBS_ALLOWED_ENV", "ALLOWED_BY_RUNNER")
}

impl Doors {
    fn open() -> Option<Self> {
        if !has("root", geteuid().is_root()) {
            return None;
        }
        let store = TempDir::new().unwrap();
        let mut local = SandboxExecutor::new(SandboxHost::open(host::config()).unwrap());
        local.prepare_for(8, 0).unwrap();
        let settings = RunnerSettings {
            store_dir: store.path().join("library"),
            store: StoreSettings::default(),
            policy: PolicyConfig {
                allowed_env: ["ALLOWED_BY_RUNNER".to_owned()].into(),
                roots: WorkspaceRoots::Any,
                network_hosts: AllowList::default(),
            },
            egress: EgressTerms::default(),
            maxima: JobLimits::default(),
            local: Arc::new(local),
            firecracker: None,
        };
        let (runner, _) = Runner::open(settings).unwrap();
        let service = job_server(&store.path().join("http"))
            .env("JOBS_QUEUE_MAX", "1000")
            .env("JOBS_WORKERS", "4")
            .start();
        Some(Self { runner, service, store })
    }

    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The store of a door.
    pub fn store(&self, door: Door) -> PathBuf {
        self.store.path().join(match door {
            Door::Library => "library",
            Door::CommandLine => "cli",
            Door::Http => "http",
        })
    }

    /// Submits `request` and waits for the outcome.
    #[track_caller]
    pub fn ask(&self, door: Door, request: &Value) -> Answered {
        match door {
            Door::Library => self.ask_library(request),
            Door::CommandLine => self.ask_command_line(request),
            Door::Http => ask_http(&self.service, request),
        }
    }

    /// The result of `request`, which must be accepted.
    #[track_caller]
    pub fn result(&self, door: Door, request: &Value) -> Value {
        match self.ask(door, request) {
            Answered::Ended(result) => result,
            Answered::Refused(error) => panic!("{door:?} refused {request}: {error}"),
        }
    }

    /// The error of `request`, which must be refused.
    #[track_caller]
    pub fn refusal(&self, door: Door, request: &Value) -> Value {
        match self.ask(door, request) {
            Answered::Refused(error) => error,
            Answered::Ended(result) => panic!("{door:?} accepted {request}: {result}"),
        }
    }

    fn ask_library(&self, request: &Value) -> Answered {
        let parsed = parse_request(request.to_string().as_bytes());
        let ended = parsed
            .map_err(JobRequestError::into_error)
            .and_then(|request| self.runner.run(request));
        match ended {
            Ok(result) => Answered::Ended(serde_json::to_value(result).unwrap()),
            Err(error) => Answered::Refused(serde_json::to_value(error).unwrap()),
        }
    }

    fn ask_command_line(&self, request: &Value) -> Answered {
        let mut child = Command::new(cofferdam())
            .args(["job", "run", "-", "--store-dir"])
            .arg(self.store(Door::CommandLine))
            .env("JOBS_ALLOWED_ENV", "ALLOWED_BY_RUNNER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        // Results go to stdout, errors to stderr.
        let parse = |text: &[u8]| {
            serde_json::from_slice(text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
        };
        if output.stdout.is_empty() {
            Answered::Refused(parse(&output.stderr))
        } else {
            Answered::Ended(parse(&output.stdout))
        }
    }
}

/// Posts `request` and waits for its result.
#[track_caller]
pub fn ask_http(service: &Service, request: &Value) -> Answered {
    let answer = post_job(service, request);
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    if answer.status != 202 {
        return Answered::Refused(body);
    }
    assert_eq!(body["status"], "queued", "{body}");
    Answered::Ended(wait_for_end(service, body["job_id"].as_str().unwrap()))
}

/// Posts `request`.
pub fn post_job(service: &Service, request: &Value) -> Answer {
    post_to(service, "/v1/jobs", "", request.to_string())
}

/// Posts `body` to `target` with `headers` (whole lines) and its length.
pub fn post_to(service: &Service, target: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let headers = format!("{headers}content-length: {}\r\n", body.len());
    let head = request("POST", target, &headers);
    service.ask([head.as_bytes(), body].concat())
}

/// Waits until the job is over and returns its result.
#[track_caller]
pub fn wait_for_end(service: &Service, id: &str) -> Value {
    let began = Instant::now();
    loop {
        let answer = service.get(&format!("/v1/jobs/{id}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let view: Value = serde_json::from_str(&answer.body).unwrap();
        if !["queued", "running"].contains(&view["status"].as_str().unwrap()) {
            return view;
        }
        assert!(began.elapsed() < PATIENCE, "not over after {PATIENCE:?}: {view}");
        thread::sleep(Duration::from_millis(2));
    }
}
