//! `cofferdam job run`: one job from its request to its result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::super::boxes::root_source;
use super::super::failure::Failure;
use super::super::signals::Signals;
use super::super::virtual_machines::VirtualMachines;
use super::fault::{Fault, say};
use super::input::read_request;
use super::output::{exit_code, print_attended};
use super::place::{Place, config};
use super::progress::ProgressLine;
use super::run_there::run_there;
use super::stored::with_path;
use crate::config::{Config, Isolation};
use crate::job::{BuildError, JobControl, Missing, Runner};
use crate::store::StoreSettings;
use cofferdam_core::job::{ErrorCode, JobError, JobId, JobStatus, RunJobRequest, RunJobResult};

/// How often the line on the terminal is drawn anew, and the store asked for a cancel.
const TICK: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  cofferdam job run request.json
  cofferdam job run - --store-dir runs <request.json | jq .stdout.text
  cofferdam job run request.json --server http://127.0.0.1:4040 --token-file token

Without --server the job runs here, and its record is in the store afterwards; with it, the
workspace's path is one of the server's host.
SIGINT or SIGTERM cancels the job, here or on the server; the result tells what there was by then.
Exit codes: 0 completed; 1 failed; 3 policy_denied; 4 setup_failed; 5 backend_unavailable;
  124 timed_out; 130 canceled, 143 by SIGTERM; 2 bad request or usage; 1 also without a result";

/// Runs a job and prints its result: laid out on a terminal, in one line otherwise.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// The request, as `cofferdam schema request` has it; `-` for stdin
    #[arg(value_name = "FILE")]
    request: PathBuf,
    /// The root file system of the box instead of the host's [SANDBOX_ROOTFS]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    rootfs: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

impl Run {
    /// Runs it to its end; the exit code is the contract's.
    pub fn run(self) -> Result<u8, Fault> {
        let config = config(self.rootfs)?;
        root_source(config.rootfs.as_deref()).map_err(Failure::Usage)?;
        let request = read_request(&self.request, config.jobs.input_bytes_max)?;
        match self.place.client()? {
            Some(client) => run_there(client, request),
            None => run_here(&config, &self.place.store_dir(&config), request),
        }
    }
}

fn run_here(config: &Config, store_dir: &Path, mut request: RunJobRequest) -> Result<u8, Fault> {
    let id = request.job_id.get_or_insert_with(JobId::random).clone();
    let control = JobControl::new().map_err(|error| Fault::cannot("eventfd", &error))?;
    let control = Arc::new(control);
    let raised = Arc::clone(&control);
    let signals = Signals::on_each(move || raised.cancel())
        .map_err(|error| Fault::cannot("signals", &error))?;
    // Before there is a box: a request above the maxima needs none.
    request.check_maxima(&config.jobs.maxima)?;
    let runner = runner(config, store_dir)?;
    let result = attend(&runner, request, &id, &control)?;
    print_attended(&result, &signals)?;
    let by_signal = signals.exit_code().filter(|_| result.status == JobStatus::Canceled);
    Ok(by_signal.unwrap_or_else(|| exit_code(result.status)))
}

/// A runner as the environment would have it. A host that can make no box is told by the result.
fn runner(config: &Config, store_dir: &Path) -> Result<Runner, Fault> {
    let jobs = &config.jobs;
    let builder = Runner::builder(store_dir)
        .allow_env(&jobs.allowed_env)
        .maxima(jobs.maxima)
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
            let VirtualMachines { backend, private } = VirtualMachines::of(machines)?;
            builder.firecracker(backend).private(private)
        }
        None => builder,
    };
    let built = match builder.clone().build() {
        Err(BuildError::Sandbox(failure)) => {
            // With the advice that a result has no place for.
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

/// Runs the job on a thread of its own and looks after it from this one.
fn attend(
    runner: &Runner,
    request: RunJobRequest,
    id: &JobId,
    control: &JobControl,
) -> Result<RunJobResult, Fault> {
    let (sender, ended) = channel();
    thread::scope(|scope| {
        let job = thread::Builder::new().name("job".to_owned());
        job.spawn_scoped(scope, move || {
            // The other end is there until this thread is done.
            let _ = sender.send(runner.run_with(request, control));
        })
        .map_err(|error| Fault::cannot("thread", &error))?;
        let mut line = ProgressLine::begin();
        loop {
            match ended.recv_timeout(TICK) {
                Ok(ended) => return Ok(ended?),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(JobError::new(ErrorCode::IoFailed, "the job's thread died").into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            // Another process's `job cancel`.
            if runner.store().cancel_requested(id) {
                control.cancel();
            }
            line.draw(&control.progress().borrow());
        }
    })
}
