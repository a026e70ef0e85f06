//! How a job is asked to end, and how it tells how far it is.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::watch;

use crate::job::api::JobProgress;
use crate::job::outcome::JobOutcome;
use cofferdam_core::job::JobStatus;
use cofferdam_core::sync::cancel::CancelToken;

/// Nobody has asked for its end.
const GOES_ON: u8 = 0;
/// Somebody has.
const CANCELED: u8 = 1;
/// The service ends.
const INTERRUPTED: u8 = 2;

/// ServiceState by a job's runner and everybody else.
#[derive(Debug)]
pub struct JobControl {
    cancel: CancelToken,
    asked: AtomicU8,
    progress: watch::Sender<JobProgress>,
}

impl JobControl {
    /// Of a job that queued.
    pub fn new() -> io::Result<Self> {
        let progress = JobProgress { status: JobStatus::Queued, stdout_bytes: 0, stderr_bytes: 0 };
        Ok(Self {
            cancel: CancelToken::new()?,
            asked: AtomicU8::new(GOES_ON),
            progress: watch::Sender::new(progress),
        })
    }

    /// Somebody wants the job's end.
    pub fn cancel(&self) {
        self.end(CANCELED);
    }

    /// The service ends, and the job with it.
    pub fn interrupt(&self) {
        self.end(INTERRUPTED);
    }

    /// The first word counts.
    fn end(&self, why: u8) {
        let _ = self.asked.compare_exchange(GOES_ON, why, Ordering::SeqCst, Ordering::SeqCst);
        self.cancel.cancel();
    }

    /// Whether somebody wants its end.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst) != GOES_ON
    }

    /// How the job is to end, if it is to.
    pub fn asked(&self) -> Option<JobOutcome> {
        match self.asked.load(Ordering::SeqCst) {
            CANCELED => Some(JobOutcome::canceled()),
            INTERRUPTED => Some(JobOutcome::interrupted()),
            _ => None,
        }
    }

    /// What a run watches.
    pub fn token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Tells everybody who follows.
    pub fn progress(&self) -> &watch::Sender<JobProgress> {
        &self.progress
    }

    /// Says where the job is.
    pub fn enter(&self, status: JobStatus) {
        self.progress.send_modify(|progress| progress.status = status);
    }
}
