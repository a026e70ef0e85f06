//! Reads the directory of a job and decides what state the job is in.

use nix::sys::stat::SFlag;
use serde::de::DeserializeOwned;

use super::directory::{StoreDir, file_type};
use super::status_file::{StatusFile, parse_time};
use crate::store::error::{ReadFault, StoreError};
use cofferdam_core::job::{JobId, JobLine, RunJobRequest, RunJobResult};

/// The files of a record.
pub(crate) const REQUEST: &str = "request.json";
pub(crate) const STATUS: &str = "status.json";
pub(crate) const RESULT: &str = "result.json";
pub(crate) const SNAPSHOT: &str = "snapshot.json";
pub(crate) const ARTIFACTS: &str = "artifacts";
pub(crate) const CANCEL: &str = "cancel";

/// The largest request that is accepted and read, bytes.
pub(crate) const REQUEST_BYTES_MAX: u64 = 64 << 20;
/// The largest status that is read, bytes.
const STATUS_BYTES_MAX: u64 = 1 << 20;
/// The largest result that is written and read, bytes.
pub(crate) const RESULT_BYTES_MAX: u64 = 64 << 20;
/// The block size of the disk.
const BLOCK_BYTES: u64 = 4096;

/// The state of a job by its directory.
#[derive(Debug)]
pub(crate) enum RecordState {
    /// It has ended, and every file agrees.
    Over(Box<StatusFile>),
    /// It has ended by its result, but its status is older.
    StaleStatus(Box<StatusFile>),
    /// It has not ended.
    Live(Box<StatusFile>, Box<RunJobRequest>),
}

/// Inspects the job `id`. Reads every file while `budget_bytes` lasts. After that the files of ended
/// jobs are only checked for existence; damage shows when they are read.
pub(crate) fn inspect(
    directory: &StoreDir,
    id: &JobId,
    budget_bytes: &mut u64,
) -> Result<RecordState, ReadFault> {
    check_shapes(directory)?;
    let status = match read_status(directory, id) {
        Ok(status) => Some(status),
        Err(ReadFault::Absent) => None,
        Err(fault) => return Err(named(STATUS, fault)),
    };
    let says_ended = status.as_ref().is_some_and(|status| status.line.status.is_terminal());
    if says_ended
        && *budget_bytes == 0
        && let Some(status) = status.as_ref()
        && directory.open_file(RESULT).is_ok()
    {
        return Ok(RecordState::Over(Box::new(status.clone())));
    }
    let request = read_request(directory, id).map_err(|fault| named(REQUEST, fault))?;
    let result = match read_result(directory, id) {
        Ok(result) => Some(result),
        Err(ReadFault::Absent) => None,
        Err(fault) => return Err(named(RESULT, fault)),
    };
    *budget_bytes = budget_bytes.saturating_sub(size_of_file(directory, REQUEST));
    *budget_bytes = budget_bytes.saturating_sub(size_of_file(directory, RESULT));
    match (status, result) {
        (Some(status), Some(result)) if status.line == JobLine::from(&result) => {
            Ok(RecordState::Over(Box::new(status)))
        }
        (status, Some(result)) => {
            let bytes = record_bytes(directory, &result);
            let status = StatusFile::over(&result, status.as_ref(), bytes);
            Ok(RecordState::StaleStatus(Box::new(status)))
        }
        (Some(status), None) => Ok(RecordState::Live(Box::new(status), Box::new(request))),
        (None, None) => Err(ReadFault::Corrupt(format!("{STATUS}: missing"))),
    }
}

/// Checks that each name of a record is a file, or a directory for the artifacts.
fn check_shapes(directory: &StoreDir) -> Result<(), ReadFault> {
    for (name, kind) in [
        ("stdout", SFlag::S_IFREG),
        ("stderr", SFlag::S_IFREG),
        (SNAPSHOT, SFlag::S_IFREG),
        (ARTIFACTS, SFlag::S_IFDIR),
    ] {
        let entry = directory.entry(name).map_err(ReadFault::System)?;
        if entry.is_some_and(|stat| file_type(&stat) != kind) {
            return Err(ReadFault::Corrupt(format!("{name}: not the expected kind of file")));
        }
    }
    Ok(())
}

/// Reads the status of the job `id`.
pub(crate) fn read_status(directory: &StoreDir, id: &JobId) -> Result<StatusFile, ReadFault> {
    let status: StatusFile = parsed(&directory.read(STATUS, STATUS_BYTES_MAX)?)?;
    match status.fault(id) {
        Some(fault) => Err(ReadFault::Corrupt(fault.to_owned())),
        None => Ok(status),
    }
}

/// Reads the result of the job `id`.
pub(crate) fn read_result(directory: &StoreDir, id: &JobId) -> Result<RunJobResult, ReadFault> {
    let result: RunJobResult = parsed(&directory.read(RESULT, RESULT_BYTES_MAX)?)?;
    match result_fault(&result, id) {
        Some(fault) => Err(ReadFault::Corrupt(fault.to_owned())),
        None => Ok(result),
    }
}

/// Why a result cannot be that of the job `id`.
pub(crate) fn result_fault(result: &RunJobResult, id: &JobId) -> Option<&'static str> {
    let JobLine { queued_at, started_at, finished_at, .. } = &JobLine::from(result);
    let times = [Some(queued_at), started_at.as_ref(), finished_at.as_ref()];
    if result.job_id != *id {
        Some("of another job")
    } else if !result.status.is_terminal() {
        Some("of a job that has not ended")
    } else if !times.into_iter().flatten().all(|time| parse_time(time).is_some()) {
        Some("a time is not valid")
    } else {
        None
    }
}

fn read_request(directory: &StoreDir, id: &JobId) -> Result<RunJobRequest, ReadFault> {
    let request: RunJobRequest = parsed(&directory.read(REQUEST, REQUEST_BYTES_MAX)?)?;
    match &request.job_id {
        Some(other) if other != id => Err(ReadFault::Corrupt("of another job".to_owned())),
        _ => Ok(request),
    }
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ReadFault> {
    serde_json::from_slice(bytes).map_err(|error| ReadFault::Corrupt(error.to_string()))
}

/// Adds the name of the file to a fault. A missing file is a fault too.
fn named(name: &str, fault: ReadFault) -> ReadFault {
    match fault {
        ReadFault::Absent => ReadFault::Corrupt(format!("{name}: missing")),
        ReadFault::Corrupt(reason) => ReadFault::Corrupt(format!("{name}: {reason}")),
        system @ ReadFault::System(_) => system,
    }
}

/// The size of the record of an ended job on the disk, bytes. The result tells the sizes of the
/// artifacts.
pub(crate) fn record_bytes(directory: &StoreDir, result: &RunJobResult) -> u64 {
    let blocks = |bytes: u64| bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
    // The directory, and the status that is about to be written.
    let mut total = 2 * BLOCK_BYTES;
    for name in [REQUEST, RESULT, SNAPSHOT, "stdout", "stderr"] {
        total = total.saturating_add(blocks(size_of_file(directory, name)));
    }
    result
        .artifacts
        .iter()
        .fold(total, |total, artifact| total.saturating_add(blocks(artifact.bytes)))
}

fn size_of_file(directory: &StoreDir, name: &str) -> u64 {
    let entry = directory.entry(name).ok().flatten();
    entry.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}

/// The error of a record that could not be read.
pub(crate) fn error_at(directory: &StoreDir, name: &str, fault: ReadFault) -> StoreError {
    fault.at(directory.path_of(name))
}
