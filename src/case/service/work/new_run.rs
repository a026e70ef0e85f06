//! The files of a new run.

use std::path::Path;

use serde_json::json;

use super::shared::{now_text, store_failed};
use crate::case::file::CheckedCase;
use crate::case::run::{
    LockedRun, NewRun, PlannedCell, RunDigests, RunFolder, RunOptions, UnfinishedRun,
};
use crate::case::service::api::{CaseCellCounts, CaseRunStatus};
use crate::case::service::error::CaseRunsError;
use crate::case::service::record::{EVENTS, EventLog, SERVICE_FILE, ServiceFile};
use cofferdam_core::job::{Idempotency, JobId};

/// A Case that may be run.
#[derive(Debug)]
pub struct AdmissibleCase {
    pub checked: CheckedCase,
    pub yaml: Vec<u8>,
    pub cells: Vec<PlannedCell>,
}

/// What the service has to know of a new run.
pub fn new_file(
    owner: &str,
    id: &JobId,
    order: u64,
    case: &AdmissibleCase,
    is_uploaded: bool,
    idempotency: Option<Idempotency>,
) -> ServiceFile {
    ServiceFile {
        run_id: id.to_string(),
        owner: owner.to_owned(),
        order,
        case: case.checked.case.id.clone(),
        created_at: now_text(),
        started_at: None,
        finished_at: None,
        status: CaseRunStatus::Queued,
        is_canceling: false,
        is_uploaded,
        source_digest: None,
        idempotency,
        cells: CaseCellCounts { pending: case.cells.len() as u64, ..CaseCellCounts::default() },
        passed: 0,
        not_passed: 0,
        error: None,
    }
}

/// Writes the files of a new run.
pub fn write_run(
    folder: &RunFolder,
    unfinished: UnfinishedRun,
    case: &AdmissibleCase,
    (id, case_path): (&JobId, &Path),
    file: &ServiceFile,
) -> Result<LockedRun, CaseRunsError> {
    let json = serde_json::to_vec(file).map_err(|error| CaseRunsError::Store(error.to_string()))?;
    let new = NewRun {
        id: id.clone(),
        case_path,
        case_yaml: &case.yaml,
        case: &case.checked.case.id,
        // The source is read when the run begins; `service.json` has its digest then.
        digests: RunDigests::of(&case.yaml, String::new()),
        options: RunOptions::default(),
        cells: case.cells.clone(),
    };
    let written = unfinished.write(SERVICE_FILE, &json);
    let made = written.and_then(|()| folder.complete(unfinished, &new));
    made.map_err(|error| store_failed(&error))
}

/// Opens the events of a new run.
pub fn open_events(run: &LockedRun, file: &ServiceFile) -> Result<EventLog, CaseRunsError> {
    let opened = run.grow_file(EVENTS).map_err(|error| store_failed(&error))?;
    let mut events =
        EventLog::open(opened).map_err(|error| store_failed(&run.write_error(EVENTS, &error)))?;
    events.append("status", &json!({ "status": file.status, "cells": file.cells }));
    Ok(events)
}
