//! What a service finds in its store when it starts.

use std::sync::Arc;

use super::admission::INPUT;
use super::live::LiveRun;
use super::shared::{Shared, store_failed};
use super::state::Phase;
use crate::case::run::{CaseRunError, CellResult, CellStatus, LockedRun, RunFolder};
use crate::case::service::api::CaseCellCounts;
use crate::case::service::error::CaseRunsError;
use crate::case::service::record::{
    EVENTS, EventLog, SERVICE_FILE, SERVICE_FILE_BYTES_MAX, ServiceFile,
};
use cofferdam_core::sync::cancel::CancelToken;

impl Shared {
    /// Lists the runs of services that are in the store, and lets those wait that have not ended. Runs of the command
    /// line, and those that another process works on, are left alone.
    ///
    /// # Errors
    /// The store cannot be read, or there is no thread.
    pub fn recover(self: &Arc<Self>) -> Result<(), CaseRunsError> {
        let opened = RunFolder::open(&self.settings.store_dir);
        let Some(folder) = opened.map_err(|error| store_failed(&error))? else { return Ok(()) };
        let folder = Arc::new(folder);
        self.use_folder(&folder);
        for name in folder.names().map_err(|error| store_failed(&error))? {
            let Some(file) = service_file(&folder, &name) else { continue };
            let recovered = if file.status.has_ended() {
                self.recover_ended(&folder, file)
            } else {
                self.recover_live(&folder, file)
            };
            if let Err(error) = recovered {
                log::error!(run = name.as_str(), reason = error.to_string(); "run not resumed");
            }
        }
        self.end_canceled();
        let begun = self.start_workers();
        begun.map_err(|error| CaseRunsError::Store(format!("thread: {error}")))
    }

    fn recover_ended(&self, folder: &RunFolder, file: ServiceFile) -> Result<(), CaseRunError> {
        let removed =
            if file.is_uploaded { folder.remove_file(&file.run_id, INPUT) } else { Ok(()) };
        self.state().put(file);
        removed
    }

    fn recover_live(&self, folder: &RunFolder, mut file: ServiceFile) -> Result<(), CaseRunError> {
        let run = folder.lock(&file.run_id)?;
        recount(&run, &mut file)?;
        let opened = EventLog::open(run.grow_file(EVENTS)?);
        let events = opened.map_err(|error| run.write_error(EVENTS, &error))?;
        let stop = CancelToken::new().map_err(|error| run.write_error("eventfd", &error))?;
        let live = Arc::new(LiveRun::new(&file.run_id, run, events, stop));
        self.insert(file, live);
        Ok(())
    }

    /// Ends the runs that were being canceled.
    fn end_canceled(&self) {
        let canceled: Vec<Arc<LiveRun>> = {
            let mut state = self.state();
            let ids: Vec<String> = state
                .files()
                .filter(|file| file.is_canceling && !file.status.has_ended())
                .map(|file| file.run_id.clone())
                .collect();
            let end = |id: &String| {
                let entry = state.live_of(id)?;
                entry.phase = Phase::Ending;
                Some(Arc::clone(&entry.run))
            };
            ids.iter().filter_map(end).collect()
        };
        canceled.iter().for_each(|live| self.end(live));
    }
}

/// The `service.json` of a run, if a service made the run.
fn service_file(folder: &RunFolder, name: &str) -> Option<ServiceFile> {
    let read = folder.read_file(name, SERVICE_FILE, SERVICE_FILE_BYTES_MAX);
    let parsed = match read {
        Ok(None) => return None,
        Ok(Some(json)) => serde_json::from_slice::<ServiceFile>(&json).map_err(|e| e.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match parsed {
        Ok(file) if file.run_id == name => Some(file),
        Ok(_) => None,
        Err(reason) => {
            log::warn!(run = name, reason; "run of a service is damaged");
            None
        }
    }
}

/// Counts the Cells of a run that no service runs. Those that a dead one ran are pending.
fn recount(run: &LockedRun, file: &mut ServiceFile) -> Result<(), CaseRunError> {
    (file.cells, file.passed, file.not_passed) = (CaseCellCounts::default(), 0, 0);
    for cell in &run.manifest().cells {
        let result = run.live_result(cell)?;
        match result.end.status {
            CellStatus::Running => {
                run.finish(&CellResult::of(cell, result.attempt, CellStatus::Pending))?;
                file.cells.pending += 1;
            }
            CellStatus::Pending => file.cells.pending += 1,
            CellStatus::Failed => file.cells.failed += 1,
            CellStatus::Skipped => file.cells.skipped += 1,
            CellStatus::Done => {
                file.cells.done += 1;
                let passed = u64::from(result.has_passed());
                file.passed += passed;
                file.not_passed += 1 - passed;
            }
        }
    }
    Ok(())
}
