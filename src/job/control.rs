//! Cancels a job and reports its progress.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::watch;

use crate::job::api::JobProgress;
use crate::job::outcome::JobOutcome;
use cofferdam_core::job::JobStatus;
use cofferdam_core::sync::cancel::CancelToken;

/// Not asked to end.
const NOT_ASKED: u8 = 0;
/// Canceled by a caller.
const CANCELED: u8 = 1;
/// Interrupted by the end of the service.
const INTERRUPTED: u8 = 2;

/// Shared by the runner of a job and its observers.
#[derive(Debug)]
pub struct JobControl {
    cancel: CancelToken,
    asked: AtomicU8,
    progress: watch::Sender<JobProgress>,
}

impl JobControl {
    /// The control of a waiting job.
    pub fn new() -> io::Result<Self> {
        CancelToken::new().map(Self::over)
    }

    /// The same with a token that others raise too: then the program is killed, and the job is canceled.
    pub(crate) fn over(cancel: CancelToken) -> Self {
        let progress = JobProgress { status: JobStatus::Queued, stdout_bytes: 0, stderr_bytes: 0 };
        let (asked, progress) = (AtomicU8::new(NOT_ASKED), watch::Sender::new(progress));
        Self { cancel, asked, progress }
    }

    /// Cancels the job.
    pub fn cancel(&self) {
        self.end(CANCELED);
    }

    /// Interrupts the job because the service ends.
    pub fn interrupt(&self) {
        self.end(INTERRUPTED);
    }

    /// The first call decides how the job ends.
    fn end(&self, why: u8) {
        let _ = self.asked.compare_exchange(NOT_ASKED, why, Ordering::SeqCst, Ordering::SeqCst);
        self.cancel.cancel();
    }

    /// Whether the job was asked to end.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst) != NOT_ASKED
    }

    /// The outcome of the job, if it was asked to end.
    pub fn asked(&self) -> Option<JobOutcome> {
        match self.asked.load(Ordering::SeqCst) {
            CANCELED => Some(JobOutcome::canceled()),
            INTERRUPTED => Some(JobOutcome::interrupted()),
            _ => None,
        }
    }

    /// The token that the run watches.
    pub fn token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Sends the progress to the followers.
    pub fn progress(&self) -> &watch::Sender<JobProgress> {
        &self.progress
    }

    /// Sets the state of the job.
    pub fn enter(&self, status: JobStatus) {
        self.progress.send_modify(|progress| progress.status = status);
    }
}
