//! A live workspace that outlives its end: what of it is saved, and when it is parked.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::state::{LiveState, WorkspaceEnd};
use super::{LiveWorkspace, not_found};
use crate::workspace::error::EngineError;
use cofferdam_core::values::deadline::Deadline;

/// How long the reaper leaves a workspace alone that it wants parked.
const PARK_AGAIN: Duration = Duration::from_secs(30);

/// The turn to save a workspace.
#[derive(Debug)]
pub struct SaveTurn<'a>(MutexGuard<'a, Option<[u8; 16]>>);

impl SaveTurn<'_> {
    /// The life of the file system.
    ///
    /// # Errors
    /// The workspace has been removed from the store.
    pub fn life(&self) -> Result<[u8; 16], EngineError> {
        self.0.ok_or_else(not_found)
    }

    /// Ends all saves for good.
    pub fn close(mut self) {
        *self.0 = None;
    }
}

impl LiveWorkspace {
    /// Whether the reaper wants it parked. It asks again only after a while.
    pub fn is_to_be_parked(&self, now: Instant) -> Option<WorkspaceEnd> {
        let mut state = self.lock();
        if state.is_over || state.reaped_at() > now {
            return None;
        }
        state.reaped_after = Some(now + PARK_AGAIN);
        Some(state.end().1)
    }

    /// Ends its end, since it could not be parked. Its programs are dead.
    pub fn resume(&self) {
        self.lock().is_over = false;
    }

    /// Waits until no request uses it. Returns false if the deadline passes first.
    pub fn wait_unused(&self, deadline: Deadline) -> bool {
        self.wait_while(deadline, |state| state.uses > 0)
    }

    /// As it was made again, of files that were saved at `saved_at`.
    #[must_use]
    pub fn woken(mut self, created_at: SystemTime, saved_at: SystemTime) -> Self {
        self.created_at = created_at;
        self.lock().saved_at = Some(saved_at);
        self
    }

    /// Lets it be saved for the first time, if it is to be kept.
    pub fn begin_saves(&self) {
        self.note_change(&mut self.lock());
    }

    /// Waits for the turn to save it. The thread that has the turn has a deadline.
    pub fn save_turn(&self) -> SaveTurn<'_> {
        // A panic of a save leaves the life as it is.
        SaveTurn(self.life.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The changes until now, for [`LiveWorkspace::note_saved`].
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Notes that the first `changes` changes are saved, as of `saved_at`.
    pub fn note_saved(&self, changes: u64, saved_at: SystemTime) {
        let mut state = self.lock();
        state.changes_saved = state.changes_saved.max(changes);
        state.saved_at = Some(saved_at);
    }

    /// When it was saved, if it has not changed since.
    pub fn unchanged_since(&self) -> Option<SystemTime> {
        let state = self.lock();
        state.saved_at.filter(|_| state.changes == state.changes_saved)
    }

    /// Notes a change of its files or settings, which the saver saves soon.
    pub(super) fn note_change(&self, state: &mut LiveState) {
        if self.settings.persist {
            state.changes += 1;
            self.saves.offer(self.number);
        }
    }
}
