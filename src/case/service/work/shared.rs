//! What the threads of the service share, and its workers.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::state::{State, WorkUnit};
use crate::case::run::{CaseRunError, RunFolder};
use crate::case::service::error::CaseRunsError;
use crate::case::service::runners::CaseRunners;
use crate::case::service::settings::CaseServiceSettings;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::utc::rfc3339;

/// When a client that was refused may ask again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the threads of the service share.
pub struct Shared {
    pub(super) settings: CaseServiceSettings,
    pub(super) runners: Arc<dyn CaseRunners>,
    state: Mutex<State>,
    /// The runs of the store, once there is one.
    folder: Mutex<Option<Arc<RunFolder>>>,
    /// Notified when a worker or a run has ended, and when the service ends.
    pub(super) changed: Condvar,
    /// Held while a request with a key is admitted.
    pub(super) admitting: Mutex<()>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    /// Without any run.
    pub fn new(settings: CaseServiceSettings, runners: Arc<dyn CaseRunners>) -> Self {
        Self {
            settings,
            runners,
            state: Mutex::default(),
            folder: Mutex::default(),
            changed: Condvar::new(),
            admitting: Mutex::default(),
        }
    }

    /// Locks the state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `CASES_WORKERS`.
    pub fn workers(&self) -> usize {
        self.settings.workers.max(1)
    }

    /// The runs of the store, which is made if it is missing.
    pub(super) fn folder(&self) -> Result<Arc<RunFolder>, CaseRunsError> {
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*folder {
            return Ok(Arc::clone(opened));
        }
        let opened = RunFolder::open_or_create(&self.settings.store_dir);
        let opened = Arc::new(opened.map_err(|error| store_failed(&error))?);
        *folder = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Uses `opened` as the runs of the store.
    pub(super) fn use_folder(&self, opened: &Arc<RunFolder>) {
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(opened));
    }

    /// Starts a worker for every piece of work, as many as there may be.
    ///
    /// # Errors
    /// There are no threads. The work waits for the next worker that ends something.
    pub fn start_workers(self: &Arc<Self>) -> io::Result<()> {
        loop {
            let unit = {
                let mut state = self.state();
                if state.active >= self.workers() {
                    return Ok(());
                }
                let Some(unit) = state.next_unit() else { return Ok(()) };
                state.active += 1;
                unit
            };
            let (shared, begun) = (Arc::clone(self), unit.clone());
            let named = thread::Builder::new().name("case-cell".to_owned());
            if let Err(error) = named.spawn(move || shared.work(begun)) {
                let mut state = self.state();
                state.give_back(unit);
                state.active -= 1;
                return Err(error);
            }
        }
    }

    /// Does `unit`, and then whatever is next, until there is nothing.
    fn work(self: &Arc<Self>, first: WorkUnit) {
        let mut unit = Some(first);
        while let Some(next) = unit.take() {
            let run = match &next {
                WorkUnit::Prepare(run) | WorkUnit::Cell(run, ..) => Arc::clone(run),
            };
            if catch_unwind(AssertUnwindSafe(|| self.perform(next))).is_err() {
                self.give_up(&run);
            }
            drop(run);
            let mut state = self.state();
            unit = state.next_unit();
            if unit.is_none() {
                state.active -= 1;
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn perform(self: &Arc<Self>, unit: WorkUnit) {
        match unit {
            WorkUnit::Prepare(run) => {
                self.prepare(&run);
                // Its Cells are work for others too. Without more threads it takes longer.
                if let Err(error) = self.start_workers() {
                    log::warn!(reason = error.to_string(); "no thread for a Cell");
                }
            }
            WorkUnit::Cell(run, cell, attempt) => self.run_cell(&run, &cell, attempt),
        }
    }

    /// Refuses new runs, and begins no Cell.
    pub fn start_draining(&self) {
        self.state().is_draining = true;
        self.changed.notify_all();
    }

    /// Ends the Cells that run; they are pending.
    pub fn interrupt_all(&self) {
        let mut state = self.state();
        (state.is_draining, state.is_interrupting) = (true, true);
        state.live.values().for_each(|entry| entry.run.stop.cancel());
        drop(state);
        self.changed.notify_all();
    }

    /// Gives up the locks of all runs, for the next service.
    pub fn release_runs(&self) {
        let live = std::mem::take(&mut self.state().live);
        drop(live);
    }

    /// Waits until no worker works; false if the deadline passed first.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        let state = self.state();
        let is_busy = |state: &mut State| state.active > 0;
        let waited = self.changed.wait_timeout_while(state, deadline.remaining(), is_busy);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.active == 0
    }
}

/// Now, as records have it.
pub(super) fn now_text() -> String {
    rfc3339(SystemTime::now())
}

/// Now, as orders have it.
pub(super) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What a client is told of a failure of the store: nothing about paths.
pub(super) fn words_of(error: &CaseRunError) -> String {
    log::error!(reason = error.to_string(); "the store of runs of Cases failed");
    match error {
        CaseRunError::Store(error) => error.without_paths(),
        error => error.to_string(),
    }
}

/// Logs a failure of the store with its paths; returns it without.
pub(super) fn store_failed(error: &CaseRunError) -> CaseRunsError {
    CaseRunsError::Store(words_of(error))
}
