//! `cofferdam job run`: runs one job from its request to its result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::failure::JobFailure;
use super::output::{exit_code, print_unless_signaled};
use super::records::with_path;
use super::run_remote::run_remote;
use super::target::{Target, config};
use super::validate::read_request;
use crate::cli::failure::Failure;
use crate::cli::firecracker::FirecrackerOptions;
use crate::cli::foreground::progress::ProgressLine;
use crate::cli::foreground::signals::Signals;
use crate::cli::options::file_secrets::egress_with_secrets;
use crate::cli::options::sandbox_options::root_source;
use crate::cli::stdio::say;
use crate::config::{Config, Isolation};
use crate::egress::ServiceEgress;
use crate::job::{BuildError, JobControl, Missing, Runner, ValidJob};
use crate::store::StoreSettings;
use cofferdam_core::job::{ErrorCode, JobError, JobId, JobStatus, RunJobResult, ValidRequest};

/// How often the progress line is redrawn and the store is checked for a cancellation.
const TICK: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  cofferdam job run request.json
  cofferdam job run - --store-dir runs <request.json | jq .stdout.text
  cofferdam job run request.json --server http://127.0.0.1:4040 --token-file token

Without --server, the job runs here and its record is in the store afterwards; with it, the
workspace's path is on the server's host.
SIGINT or SIGTERM cancels the job, here or on the server; the result has the output up to then.
The backend firecracker is experimental.
Exit codes: 0 completed; 1 failed; 3 policy_denied; 4 setup_failed; 5 backend_unavailable;
  124 timed_out; 130 canceled, 143 by SIGTERM; 2 bad request or usage; 1 also if there is no result";

/// Runs a job and prints its result: indented on a terminal, in one line otherwise.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct JobRunCommand {
    /// The request, as described by `cofferdam schema request`; `-` for stdin
    #[arg(value_name = "FILE")]
    request: PathBuf,
    /// The root file system of the sandbox instead of the host's [SANDBOX_ROOTFS]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    rootfs: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl JobRunCommand {
    /// Runs the job; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, JobFailure> {
        let config = config(self.rootfs)?;
        root_source(config.rootfs.as_deref()).map_err(Failure::Usage)?;
        let request = read_request(&self.request, config.jobs.input_bytes_max)?;
        match self.target.client()? {
            Some(client) => run_remote(client, request),
            None => run_here(&config, &self.target.store_dir(&config), request),
        }
    }
}

fn run_here(
    config: &Config,
    store_dir: &Path,
    mut request: ValidRequest,
) -> Result<u8, JobFailure> {
    let id = request.id_or_generate();
    let control = JobControl::new().map_err(|error| JobFailure::cannot("eventfd", &error))?;
    let control = Arc::new(control);
    let raised = Arc::clone(&control);
    let signals = Signals::on_each(move || raised.cancel())
        .map_err(|error| JobFailure::cannot("signals", &error))?;
    // Before a sandbox opens: a request that is refused does not need one.
    let (egress, secret_files) = egress_with_secrets(config.secrets.as_ref())?;
    let job = ValidJob::new(request, &config.jobs.maxima, egress.secrets())?;
    let runner = runner(config, store_dir, egress, secret_files)?;
    let result = attend(&runner, job, &id, &control)?;
    print_unless_signaled(&result, &signals)?;
    let by_signal = signals.exit_code().filter(|_| result.status == JobStatus::Canceled);
    Ok(by_signal.unwrap_or_else(|| exit_code(result.status)))
}

/// The runner that `config` asks for. If this host cannot create a sandbox, the result says so.
fn runner(
    config: &Config,
    store_dir: &Path,
    egress: ServiceEgress,
    secret_files: Vec<PathBuf>,
) -> Result<Runner, JobFailure> {
    let jobs = &config.jobs;
    let builder = Runner::builder(store_dir)
        .allow_env(&jobs.allowed_env)
        .maxima(jobs.maxima)
        .network(jobs.network.clone())
        .service_egress(egress)
        .private(secret_files)
        .private(config.evaluations.network_files.iter())
        .keep(StoreSettings { retention: jobs.retention, bytes_max: jobs.store_bytes_max })
        .private(config.tokens_file.iter())
        .strict(config.isolation == Isolation::Strict);
    let builder = match &jobs.workspace_roots {
        Some(roots) => builder.roots(roots),
        None => builder,
    };
    let builder = match &config.rootfs {
        Some(rootfs) => builder.rootfs(rootfs),
        None => builder,
    };
    let builder = match &config.firecracker {
        Some(machines) => {
            let FirecrackerOptions { backend, private } =
                FirecrackerOptions::from_config(machines)?;
            builder.firecracker(backend).private(private)
        }
        None => builder,
    };
    let built = match builder.clone().build() {
        Err(BuildError::Sandbox(failure)) => {
            // With advice, which a result does not contain.
            say(&format!("cofferdam: {}", Failure::from(failure.clone())));
            builder.local(Arc::new(Missing(failure))).build()
        }
        built => built,
    };
    built.map_err(|error| match error {
        BuildError::Root { .. } => Failure::option("JOBS_WORKSPACE_ROOTS", error).into(),
        BuildError::Store(error) => with_path(error).into(),
        error => JobError::new(ErrorCode::IoFailed, error.to_string()).into(),
    })
}

/// Runs the job on its own thread; this thread draws progress and checks for cancellation.
fn attend(
    runner: &Runner,
    job: ValidJob,
    id: &JobId,
    control: &JobControl,
) -> Result<RunJobResult, JobFailure> {
    let (sender, ended) = channel();
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("job".to_owned());
        thread
            .spawn_scoped(scope, move || {
                // The receiver lives until this thread ends.
                let _ = sender.send(runner.run_job(job, control));
            })
            .map_err(|error| JobFailure::cannot("thread", &error))?;
        let mut line = ProgressLine::begin();
        loop {
            match ended.recv_timeout(TICK) {
                Ok(ended) => return Ok(ended?),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(JobError::new(ErrorCode::IoFailed, "the job's thread died").into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            // `job cancel` of another process.
            if runner.store().cancel_requested(id) {
                control.cancel();
            }
            line.draw(&control.progress().borrow());
        }
    })
}
