//! A run that has not ended.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::case::run::{CaseRunError, CellRunner, LockedRun, write_reports};
use crate::case::service::record::{EventLog, SERVICE_FILE, ServiceFile};
use crate::store::StoreError;
use cofferdam_core::sync::cancel::CancelToken;

/// A run that has not ended, with its lock.
pub struct LiveRun {
    /// Its id.
    pub id: String,
    /// The run on disk.
    pub run: LockedRun,
    /// Ends what runs of it.
    pub stop: CancelToken,
    events: Mutex<EventLog>,
    runner: Mutex<Option<Arc<dyn CellRunner>>>,
    /// How many results have come.
    version: AtomicU64,
    /// Those that are in the reports, if they were written. Held while they are written.
    reported: Mutex<Option<u64>>,
    /// Held while `service.json` is written.
    writing: Mutex<()>,
}

impl fmt::Debug for LiveRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LiveRun").field("id", &self.id).finish_non_exhaustive()
    }
}

impl LiveRun {
    /// The run `run`, whose events go on in `events`.
    pub fn new(id: &str, run: LockedRun, events: EventLog, stop: CancelToken) -> Self {
        Self {
            id: id.to_owned(),
            run,
            stop,
            events: Mutex::new(events),
            runner: Mutex::default(),
            version: AtomicU64::new(0),
            reported: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// Its events.
    pub fn events(&self) -> MutexGuard<'_, EventLog> {
        locked(&self.events)
    }

    /// Sets the runner of its Cells.
    pub fn set_runner(&self, runner: Arc<dyn CellRunner>) {
        *locked(&self.runner) = Some(runner);
    }

    /// The runner of its Cells, once it is prepared.
    pub fn runner(&self) -> Option<Arc<dyn CellRunner>> {
        locked(&self.runner).clone()
    }

    /// Drops the runner with all that it has prepared.
    pub fn drop_runner(&self) {
        let runner = locked(&self.runner).take();
        drop(runner);
    }

    /// Notes that a result has come.
    pub fn note_result(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the reports, unless they have every result already.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn report(&self) -> Result<(), CaseRunError> {
        let mut reported = locked(&self.reported);
        let version = self.version.load(Ordering::Relaxed);
        if *reported != Some(version) {
            write_reports(&self.run)?;
            *reported = Some(version);
        }
        Ok(())
    }

    /// Writes `service.json` as `latest` has it when its turn comes.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, latest: impl FnOnce() -> Option<ServiceFile>) -> Result<(), CaseRunError> {
        let _writing = locked(&self.writing);
        let Some(file) = latest() else { return Ok(()) };
        let json = serde_json::to_vec(&file).map_err(|error| StoreError::NotRecordable {
            path: self.run.path().join(SERVICE_FILE),
            reason: error.to_string(),
        })?;
        self.run.write_file(SERVICE_FILE, &json)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
