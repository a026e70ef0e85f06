//! The result of a job whose process ended without recording one.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::store::error::{ReadFault, errno_of};
use crate::store::files::directory::StoreDir;
use crate::store::files::inspect::SNAPSHOT;
use crate::store::files::status_file::{StatusFile, parse_time};
use crate::store::replay::{request_hash, result_hash};
use crate::store::truncate::truncate;
use cofferdam_core::job::{
    CommandEcho, Decision, ErrorCode, JobError, JobStatus, PolicyDecision, ReplayHashes,
    RunJobRequest, RunJobResult, Sha256, SnapshotSummary, StreamRecord, TextEncoding, Timing,
};
use cofferdam_core::values::digest::Digest;
use cofferdam_core::values::utc::rfc3339;

/// How much of an output file is read, bytes: more than any limit allows.
const STREAM_BYTES_MAX: u64 = 1 << 30;
/// How much of an output file goes into the result before truncation, bytes.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// The largest `snapshot.json` that is read, bytes.
const SNAPSHOT_BYTES_MAX: u64 = 16 << 20;

/// Builds the result of an interrupted job from its request, its outputs and the recorded decision.
/// Without a recorded decision the result says allowed, since nothing denied the job, with the
/// version `v1:unknown` and a reason that says so.
pub(crate) fn interrupted(
    directory: &StoreDir,
    request: &RunJobRequest,
    status: &StatusFile,
    now: SystemTime,
) -> Result<RunJobResult, ReadFault> {
    let RunJobRequest { trace, command, policy, limits, .. } = request;
    let state = if status.line.started_at.is_some() { "running" } else { "queued" };
    // The program may have ended before its result was lost: the files do not tell.
    let message = format!(
        "the process that had the job ended without recording a result; the last recorded state is {state}"
    );
    let error = JobError::new(ErrorCode::Interrupted, message)
        .with("reason", "interrupted")
        .with("state", state);
    let decided = || PolicyDecision {
        decision: Decision::Allowed,
        reasons: vec!["interrupted".to_owned(), "decision_not_recorded".to_owned()],
        version: "v1:unknown".to_owned(),
        network: policy.network.clone(),
        network_enforced: false,
    };
    let snapshot = snapshot(directory);
    let snapshot_hash = snapshot.as_ref().and_then(|snapshot| snapshot.hash.clone());
    let (argv, cwd) = (command.argv.clone(), command.cwd.clone());
    let mut result = RunJobResult {
        job_id: status.line.job_id.clone(),
        status: JobStatus::Failed,
        trace: trace.clone(),
        command: CommandEcho { argv, cwd, executable: status.executable.clone() },
        exit_code: None,
        signal: None,
        stdout: stream_record(directory, "stdout", limits.stdout_bytes)?,
        stderr: stream_record(directory, "stderr", limits.stderr_bytes)?,
        artifacts: Vec::new(),
        artifacts_omitted: Vec::new(),
        snapshot: snapshot.map(|snapshot| snapshot.summary),
        policy: status.policy.clone().unwrap_or_else(decided),
        egress: Vec::new(),
        usage: None,
        enforced: BTreeMap::new(),
        not_enforced: Vec::new(),
        replay: ReplayHashes {
            request: request_hash(request),
            snapshot: snapshot_hash,
            result: String::new(),
        },
        timing: timing(status, now),
        error: Some(error),
        not_recorded: Vec::new(),
    };
    result.replay.result = result_hash(&result);
    truncate(&mut result, limits.record_bytes);
    Ok(result)
}

/// The job counts as ended now, since the real time is unknown.
fn timing(status: &StatusFile, now: SystemTime) -> Timing {
    let started = status.line.started_at.as_deref().and_then(parse_time);
    let duration = started.and_then(|started| now.duration_since(started).ok());
    Timing {
        queued_at: status.line.queued_at.clone(),
        started_at: status.line.started_at.clone(),
        finished_at: rfc3339(now),
        duration_ms: duration
            .map_or(0, |duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// The part of `snapshot.json` that is read.
#[derive(Deserialize)]
struct SnapshotFile {
    #[serde(flatten)]
    summary: SnapshotSummary,
    #[serde(default)]
    hash: Option<String>,
}

fn snapshot(directory: &StoreDir) -> Option<SnapshotFile> {
    serde_json::from_slice(&directory.read(SNAPSHOT, SNAPSHOT_BYTES_MAX).ok()?).ok()
}

/// The record of a stored output. The program may have written more: `bytes` and `sha256` are those
/// of the file.
fn stream_record(
    directory: &StoreDir,
    name: &str,
    kept_bytes_max: u64,
) -> Result<StreamRecord, ReadFault> {
    let (mut kept, bytes, sha256) = match directory.open_file(name) {
        Ok((file, _)) => read_stream(file.take(STREAM_BYTES_MAX), kept_bytes_max)
            .map_err(|error| ReadFault::of("read", directory.path_of(name), errno_of(&error)))?,
        Err(ReadFault::Absent) => (Vec::new(), 0, Digest::default().finish()),
        Err(fault) => return Err(fault),
    };
    if let Err(error) = std::str::from_utf8(&kept)
        && error.error_len().is_none()
    {
        // Only the last character is incomplete.
        kept.truncate(error.valid_up_to());
    }
    let truncated = u64::try_from(kept.len()).unwrap_or(u64::MAX) < bytes;
    let (text, encoding) = match String::from_utf8(kept) {
        Ok(text) => (text, TextEncoding::Utf8),
        Err(error) => (STANDARD.encode(error.as_bytes()), TextEncoding::Base64),
    };
    let sha256 = Sha256::parse(&sha256)
        .ok_or_else(|| ReadFault::Corrupt("a digest is not valid".to_owned()))?;
    Ok(StreamRecord { text, truncated, bytes, sha256, encoding })
}

/// Reads `source`. Returns its beginning, its size and its digest.
fn read_stream(
    mut source: impl Read,
    kept_bytes_max: u64,
) -> std::io::Result<(Vec<u8>, u64, String)> {
    let kept_max = usize::try_from(kept_bytes_max.min(TEXT_BYTES_MAX)).unwrap_or(usize::MAX);
    let (mut kept, mut bytes, mut digest) = (Vec::new(), 0_u64, Digest::default());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => return Ok((kept, bytes, digest.finish())),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        let read = buffer.get(..count).unwrap_or_default();
        digest.update(read);
        bytes = bytes.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        let room = kept_max.saturating_sub(kept.len());
        kept.extend_from_slice(read.get(..room.min(count)).unwrap_or(read));
    }
}
