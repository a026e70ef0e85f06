//! `cofferdam job run --server`: a job of a service, attended from here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::super::signals::Signals;
use super::client::Client;
use super::fault::{Fault, say};
use super::follow::{Heard, follow};
use super::output::{CANCELED, exit_code, print_attended};
use super::progress::ProgressLine;
use super::records::Records;
use super::remote::Remote;
use crate::job::JobProgress;
use cofferdam_core::job::{JobId, JobStatus, RunJobRequest, RunJobResult};

/// How often the line on the terminal is drawn anew and signals are looked for.
const TICK: Duration = Duration::from_millis(100);
/// How long the server may take for a job's end that was asked for.
const END_MAX: Duration = Duration::from_secs(10);

/// Hands `request` in, waits for its end and prints the result; the exit code is the contract's.
pub fn run_there(client: Client, mut request: RunJobRequest) -> Result<u8, Fault> {
    // Named here, so that it can be canceled whatever becomes of the answer.
    let id = request.job_id.get_or_insert_with(JobId::random).clone();
    let signaled = Arc::new(AtomicU32::new(0));
    let raised = Arc::clone(&signaled);
    let signals = Signals::on_each(move || {
        raised.fetch_add(1, Ordering::SeqCst);
    })
    .map_err(|error| Fault::cannot("signals", &error))?;
    let remote = Remote::new(client);
    let (sender, heard) = channel();
    let (asking, asked) = (remote.clone(), id.clone());
    thread::Builder::new()
        .name("follow".to_owned())
        .spawn(move || follow(&asking, &request, &asked, &sender))
        .map_err(|error| Fault::cannot("thread", &error))?;
    let attending = Attending { remote, id, signaled: &signaled, cancel_sent: false, taken: false };
    match attending.until_over(&heard)? {
        Some(result) => {
            print_attended(&result, &signals)?;
            let canceled = result.status == JobStatus::Canceled;
            let by_signal = signals.exit_code().filter(|_| canceled);
            Ok(by_signal.unwrap_or_else(|| exit_code(result.status)))
        }
        None => Ok(signals.exit_code().unwrap_or(CANCELED)),
    }
}

/// A job that is followed on another thread.
struct Attending<'a> {
    remote: Remote,
    id: JobId,
    /// How many signals there were.
    signaled: &'a AtomicU32,
    cancel_sent: bool,
    taken: bool,
}

impl Attending<'_> {
    /// The result; none where a signal came and the server has not said that the job is over.
    fn until_over(mut self, heard: &Receiver<Heard>) -> Result<Option<Box<RunJobResult>>, Fault> {
        let mut line = ProgressLine::begin();
        let mut progress =
            JobProgress { status: JobStatus::Queued, stdout_bytes: 0, stderr_bytes: 0 };
        let mut signaled_at = None;
        loop {
            match heard.recv_timeout(TICK) {
                Ok(Heard::Taken) => self.taken = true,
                Ok(Heard::At(further)) => progress = further,
                Ok(Heard::Ended(result)) => return Ok(Some(result)),
                Ok(Heard::Lost(fault)) => return Err(fault),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Fault::Server("the thread that asked the server died".to_owned()));
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
                    "cofferdam: the server has not said that {} is over; see `cofferdam job status`",
                    self.id
                ));
                return Ok(None);
            }
        }
    }

    /// Asks for the job's end, once the server has it; what it says to that is told by the result.
    fn cancel_once(&mut self) {
        if self.taken && !self.cancel_sent {
            self.cancel_sent = true;
            if let Err(fault @ Fault::Server(_)) = self.remote.cancel(&self.id) {
                say(&format!("cofferdam: {fault}"));
            }
        }
    }
}
