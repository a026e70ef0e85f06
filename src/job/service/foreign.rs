//! Followed jobs of other processes. Their files alone show their progress, so the files are
//! polled.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::job::api::JobProgress;
use crate::store::{RunStore, StoreError};
use cofferdam_core::Stream;
use cofferdam_core::job::JobId;

/// A sender for each followed job.
#[derive(Debug, Default)]
pub struct ForeignJobs(Mutex<BTreeMap<JobId, watch::Sender<JobProgress>>>);

impl ForeignJobs {
    fn followed(&self) -> MutexGuard<'_, BTreeMap<JobId, watch::Sender<JobProgress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no job is followed.
    pub fn is_empty(&self) -> bool {
        self.followed().is_empty()
    }

    /// Follows a job whose progress is `now`.
    pub fn follow(&self, id: &JobId, now: JobProgress) -> watch::Receiver<JobProgress> {
        let mut followed = self.followed();
        followed.entry(id.clone()).or_insert_with(|| watch::Sender::new(now)).subscribe()
    }

    /// Reads the progress of each job and sends it. Stops following jobs that have ended, that are
    /// gone or that have no receiver.
    pub fn poll(&self, store: &RunStore) {
        let ids: Vec<JobId> = self.followed().keys().cloned().collect();
        for id in ids {
            let progress = progress_of(store, &id);
            let mut followed = self.followed();
            let Some(sender) = followed.get(&id) else { continue };
            let goes_on = match progress {
                Ok(Some(progress)) => {
                    sender.send_if_modified(|sent| {
                        let before = std::mem::replace(sent, progress);
                        before != progress
                    });
                    !progress.status.is_terminal()
                }
                Ok(None) => false,
                // The next poll may succeed.
                Err(_) => true,
            };
            if !goes_on || sender.receiver_count() == 0 {
                followed.remove(&id);
            }
        }
    }

    /// Stops following all jobs.
    pub fn clear(&self) {
        self.followed().clear();
    }
}

/// Reads the progress of a job from its files.
pub fn progress_of(store: &RunStore, id: &JobId) -> Result<Option<JobProgress>, StoreError> {
    // Before the outputs: once the job has ended they are complete.
    let Some(line) = store.line(id)? else { return Ok(None) };
    Ok(Some(JobProgress {
        status: line.status,
        stdout_bytes: store.stream_bytes(id, Stream::Stdout)?,
        stderr_bytes: store.stream_bytes(id, Stream::Stderr)?,
    }))
}
