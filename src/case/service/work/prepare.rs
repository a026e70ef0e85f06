//! Prepares a run: reads its Case once more, and makes the runner of its Cells.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::input::{locate, readable};
use super::live::LiveRun;
use super::shared::{Shared, now_text, words_of};
use super::state::Phase;
use crate::case::cell::CellExecutorKind;
use crate::case::file::load_case_with_text;
use crate::case::run::{CaseRunError, CellRunner, CellStatus, LockedRun, PlannedCell};
use crate::case::service::api::{CaseRunFault, CaseRunStatus};
use crate::case::service::record::ServiceFile;
use crate::case::service::runners::RunnerRequest;
use crate::case::trial::UnavailableRunner;

/// A run whose Cells can be run.
struct PreparedRun {
    runner: Arc<dyn CellRunner>,
    source_digest: String,
    cells: Vec<(PlannedCell, u64)>,
}

impl Shared {
    /// Prepares `live`, and opens it for workers; ends it if its Case is not what it was.
    pub(super) fn prepare(&self, live: &LiveRun) {
        let Some(file) = self.state().file(&live.id).cloned() else { return };
        let prepared = self.prepared(live, &file);
        let ends = {
            let mut state = self.state();
            let is_interrupting = state.is_interrupting;
            let Some(file) = state.file_mut(&live.id) else { return };
            let mut cells = Vec::new();
            match prepared {
                Ok(prepared) => {
                    live.set_runner(prepared.runner);
                    cells = prepared.cells;
                    file.source_digest = Some(prepared.source_digest);
                }
                Err(_) if is_interrupting && !file.is_canceling => {
                    if let Some(entry) = state.live_of(&live.id) {
                        entry.phase = Phase::Waiting;
                    }
                    return;
                }
                Err(fault) => {
                    // One that a client cancels fails for no reason of its own.
                    file.error = (!file.is_canceling).then_some(fault);
                    file.is_canceling = true;
                }
            }
            let ends = file.is_canceling || cells.is_empty();
            if !ends {
                file.status = CaseRunStatus::Running;
                file.started_at.get_or_insert_with(now_text);
            }
            let Some(entry) = state.live_of(&live.id) else { return };
            entry.phase = if ends { Phase::Ending } else { Phase::Open };
            entry.waiting = if ends { Vec::new() } else { cells };
            ends
        };
        if ends { self.end(live) } else { self.note_start(live) }
    }

    /// Records that the run has begun.
    fn note_start(&self, live: &LiveRun) {
        self.save(live);
        let Some(file) = self.state().file(&live.id).cloned() else { return };
        live.events().append("status", &json!({ "status": file.status, "cells": file.cells }));
    }

    /// Writes `service.json`, unless the run is being ended, which writes it as well.
    pub(super) fn save(&self, live: &LiveRun) {
        let latest = || {
            let mut state = self.state();
            let file = state.file(&live.id).cloned()?;
            state.live_of(&live.id).filter(|entry| entry.phase != Phase::Ending).map(|_| file)
        };
        if let Err(error) = live.save(latest) {
            log::error!(run = live.id.as_str(), reason = error.to_string(); "service.json not written");
        }
    }

    fn prepared(&self, live: &LiveRun, file: &ServiceFile) -> Result<PreparedRun, CaseRunFault> {
        let case_path = &live.run.manifest().case_path;
        let (checked, yaml) = load_case_with_text(case_path)
            .map_err(|_| changed("the Case cannot be read any more, or is not valid"))?;
        live.run.check_case(&yaml).map_err(|_| changed("the case file changed"))?;
        // The files that the Case names may have been replaced by links meanwhile.
        let place = case_path.parent().unwrap_or(Path::new("/"));
        let readable =
            if file.is_uploaded { vec![place.to_owned()] } else { readable(&self.settings) };
        let is_there =
            file.is_uploaded || locate(case_path, &self.settings).is_ok_and(|at| at == *case_path);
        let denials = self.denials(&file.owner, &checked, case_path, &readable);
        if !is_there || !denials.is_empty() {
            let first = denials.first().map_or("path", |denial| denial.path.as_str());
            return Err(changed(&format!("the Case is not allowed any more: {first}")));
        }
        let executor = CellExecutorKind::of(&checked.case, None);
        let request = RunnerRequest { checked: &checked, case_path, executor, owner: &file.owner };
        let source_digest = self.runners.source_digest(&request, &live.stop);
        let source_digest = source_digest.map_err(|words| changed(&words))?;
        if file.source_digest.as_ref().is_some_and(|known| *known != source_digest) {
            return Err(changed("the source changed"));
        }
        let runner: Arc<dyn CellRunner> = match self.runners.cell_runner(&request) {
            Ok(runner) => Arc::from(runner),
            Err(reason) => Arc::new(UnavailableRunner { reason }),
        };
        let cells = pending_cells(&live.run).map_err(|error| CaseRunFault {
            code: "case.store_failed".to_owned(),
            message: words_of(&error),
        })?;
        Ok(PreparedRun { runner, source_digest, cells })
    }
}

/// The Cells that have not ended, the last one first, with the number of their next attempt.
fn pending_cells(run: &LockedRun) -> Result<Vec<(PlannedCell, u64)>, CaseRunError> {
    let mut cells = Vec::new();
    for cell in run.manifest().cells.iter().rev() {
        let result = run.live_result(cell)?;
        if result.end.status == CellStatus::Pending {
            cells.push((cell.clone(), result.attempt.saturating_add(1)));
        }
    }
    Ok(cells)
}

fn changed(words: &str) -> CaseRunFault {
    CaseRunFault { code: "case.changed".to_owned(), message: words.to_owned() }
}
