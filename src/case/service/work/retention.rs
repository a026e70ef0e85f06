//! Removes runs that ended long ago.

use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use super::shared::Shared;
use crate::case::service::record::ServiceFile;

/// How often the service looks for them.
const EVERY: Duration = Duration::from_mins(1);

impl Shared {
    /// Removes them until the service ends.
    pub fn keep_tidy(&self) {
        let Some(retention) = self.settings.retention else { return };
        loop {
            self.remove_expired(retention, SystemTime::now());
            let state = self.state();
            let waits = |state: &mut super::state::State| !state.is_ending;
            let every = EVERY.min(retention.max(Duration::from_millis(100)));
            let waited = self.changed.wait_timeout_while(state, every, waits);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_ending {
                return;
            }
        }
    }

    /// Lets [`Shared::keep_tidy`] return.
    pub fn end_janitor(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    /// Removes the runs that ended more than `retention` before `now`.
    pub(super) fn remove_expired(&self, retention: Duration, now: SystemTime) {
        let expired: Vec<String> = {
            let state = self.state();
            let is_expired = |file: &&ServiceFile| {
                let ended = file.finished_at.as_deref().filter(|_| file.status.has_ended());
                let ended = ended.and_then(|text| humantime::parse_rfc3339(text).ok());
                ended
                    .is_some_and(|ended| now.duration_since(ended).is_ok_and(|age| age > retention))
            };
            state.files().filter(is_expired).map(|file| file.run_id.clone()).collect()
        };
        let Ok(folder) = (if expired.is_empty() { return } else { self.folder() }) else { return };
        for id in expired {
            match folder.remove(&id) {
                Ok(()) => self.state().remove(&id),
                Err(error) => {
                    log::warn!(run = id.as_str(), reason = error.to_string(); "run not removed");
                }
            }
        }
    }
}
