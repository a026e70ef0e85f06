//! Jobs of other processes that are followed from here: nothing tells of their progress but their
//! files, which are looked at again and again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::job::api::JobProgress;
use crate::store::{RunStore, StoreError};
use cofferdam_core::Stream;
use cofferdam_core::job::JobId;

/// One for each such job that somebody follows.
#[derive(Debug, Default)]
pub struct ForeignJobs(Mutex<BTreeMap<JobId, watch::Sender<JobProgress>>>);

impl ForeignJobs {
    fn followed(&self) -> MutexGuard<'_, BTreeMap<JobId, watch::Sender<JobProgress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody follows any.
    pub fn is_empty(&self) -> bool {
        self.followed().is_empty()
    }

    /// Word of a job that is as far as `now` tells.
    pub fn follow(&self, id: &JobId, now: JobProgress) -> watch::Receiver<JobProgress> {
        let mut followed = self.followed();
        followed.entry(id.clone()).or_insert_with(|| watch::Sender::new(now)).subscribe()
    }

    /// Looks at each once, and tells of it. Lets go of those that are over, are gone, or that
    /// nobody follows any more.
    pub fn look(&self, store: &RunStore) {
        let ids: Vec<JobId> = self.followed().keys().cloned().collect();
        for id in ids {
            let progress = progress_of(store, &id);
            let mut followed = self.followed();
            let Some(sender) = followed.get(&id) else { continue };
            let goes_on = match progress {
                Ok(Some(progress)) => {
                    sender.send_if_modified(|told| {
                        let before = std::mem::replace(told, progress);
                        before != progress
                    });
                    !progress.status.is_terminal()
                }
                Ok(None) => false,
                // The next look may see more.
                Err(_) => true,
            };
            if !goes_on || sender.receiver_count() == 0 {
                followed.remove(&id);
            }
        }
    }

    /// Lets go of all.
    pub fn clear(&self) {
        self.followed().clear();
    }
}

/// How far a job is by its files.
pub fn progress_of(store: &RunStore, id: &JobId) -> Result<Option<JobProgress>, StoreError> {
    // First: once it is over its outputs are whole.
    let Some(line) = store.line(id)? else { return Ok(None) };
    Ok(Some(JobProgress {
        status: line.status,
        stdout_bytes: store.stream_bytes(id, Stream::Stdout)?,
        stderr_bytes: store.stream_bytes(id, Stream::Stderr)?,
    }))
}
