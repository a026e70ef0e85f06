//! `cofferdam job run --server`: runs one job on a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::failure::JobFailure;
use super::follow::{FollowEvent, follow};
use super::output::{CANCELED, exit_code, print_unless_signaled};
use super::records::Records;
use super::remote::RemoteRecords;
use crate::cli::foreground::progress::ProgressLine;
use crate::cli::foreground::signals::Signals;
use crate::cli::remote::client::ServerClient;
use crate::cli::stdio::say;
use crate::job::JobProgress;
use cofferdam_core::job::{JobId, JobStatus, RunJobResult, ValidRequest};

/// How often the progress line is redrawn and signals are checked.
const TICK: Duration = Duration::from_millis(100);
/// How long the server may take to end a canceled job.
const END_MAX: Duration = Duration::from_secs(10);

/// Submits `request`, waits for its end and prints the result; returns the exit code of the contract.
pub fn run_remote(client: ServerClient, mut request: ValidRequest) -> Result<u8, JobFailure> {
    // The id is set here, so that the job can be canceled even if the response is lost.
    let id = request.id_or_generate();
    let signaled = Arc::new(AtomicU32::new(0));
    let raised = Arc::clone(&signaled);
    let signals = Signals::on_each(move || {
        raised.fetch_add(1, Ordering::SeqCst);
    })
    .map_err(|error| JobFailure::cannot("signals", &error))?;
    let remote = RemoteRecords::new(client);
    let (sender, heard) = channel();
    let (asking, asked) = (remote.clone(), id.clone());
    thread::Builder::new()
        .name("follow".to_owned())
        .spawn(move || follow(&asking, &request, &asked, &sender))
        .map_err(|error| JobFailure::cannot("thread", &error))?;
    let attending =
        RemoteRun { remote, id, signaled: &signaled, cancel_sent: false, accepted: false };
    match attending.until_over(&heard)? {
        Some(result) => {
            print_unless_signaled(&result, &signals)?;
            let canceled = result.status == JobStatus::Canceled;
            let by_signal = signals.exit_code().filter(|_| canceled);
            Ok(by_signal.unwrap_or_else(|| exit_code(result.status)))
        }
        None => Ok(signals.exit_code().unwrap_or(CANCELED)),
    }
}

/// A job on a server, followed by another thread.
struct RemoteRun<'a> {
    remote: RemoteRecords,
    id: JobId,
    /// How many signals arrived.
    signaled: &'a AtomicU32,
    cancel_sent: bool,
    accepted: bool,
}

impl RemoteRun<'_> {
    /// The result; `None` if a signal arrived and the server has not reported the end of the job.
    fn until_over(
        mut self,
        heard: &Receiver<FollowEvent>,
    ) -> Result<Option<Box<RunJobResult>>, JobFailure> {
        let mut line = ProgressLine::begin();
        let mut progress =
            JobProgress { status: JobStatus::Queued, stdout_bytes: 0, stderr_bytes: 0 };
        let mut signaled_at = None;
        loop {
            match heard.recv_timeout(TICK) {
                Ok(FollowEvent::Accepted) => self.accepted = true,
                Ok(FollowEvent::Progressed(further)) => progress = further,
                Ok(FollowEvent::Ended(result)) => return Ok(Some(result)),
                Ok(FollowEvent::Lost(fault)) => return Err(fault),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(JobFailure::Server(
                        "the thread that asked the server died".to_owned(),
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            line.draw(&progress);
            let signals = self.signaled.load(Ordering::SeqCst);
            if signals == 0 {
                continue;
            }
            let since = *signaled_at.get_or_insert_with(Instant::now);
            self.cancel_once();
            if signals > 1 || since.elapsed() > END_MAX {
                drop(line);
                say(&format!(
                    "cofferdam: the server has not reported the end of {}; see `cofferdam job status`",
                    self.id
                ));
                return Ok(None);
            }
        }
    }

    /// Cancels the job once, after the server has accepted it. The result shows the effect.
    fn cancel_once(&mut self) {
        if self.accepted && !self.cancel_sent {
            self.cancel_sent = true;
            if let Err(fault @ JobFailure::Server(_)) = self.remote.cancel(&self.id) {
                say(&format!("cofferdam: {fault}"));
            }
        }
    }
}
