//! Fixtures of the tests of the store.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::store::{Recovered, RunStore, StoreSettings};
use cofferdam_core::job::{
    Artifact, CommandEcho, Decision, JobId, JobStatus, Network, PolicyDecision, ReplayHashes,
    RunJobRequest, RunJobResult, Sha256, StreamRecord, TextEncoding, Timing,
};
use cofferdam_core::values::digest::sha256_of;
use cofferdam_core::values::utc::rfc3339;

/// A new store and its directory.
pub(crate) fn store() -> (TempDir, RunStore) {
    let place = tempfile::tempdir().unwrap();
    let store = opened(place.path());
    (place, store)
}

/// Opens the store once more.
pub(crate) fn opened(directory: &Path) -> RunStore {
    RunStore::open_shared(directory, StoreSettings::default()).unwrap()
}

pub(crate) fn id(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

/// The time `seconds` after the start of all tests.
pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

pub(crate) fn request() -> RunJobRequest {
    serde_json::from_value(json!({
        "trace": {"trace_id": "t"},
        "workspace": {"source": "local_path", "path": "/w"},
        "command": {"argv": ["python3", "main.py"]},
    }))
    .unwrap()
}

pub(crate) fn stream(text: &str) -> StreamRecord {
    StreamRecord {
        text: text.to_owned(),
        truncated: false,
        bytes: text.len().try_into().unwrap(),
        sha256: Sha256::parse(&sha256_of(text.as_bytes())).unwrap(),
        encoding: TextEncoding::Utf8,
    }
}

/// The result of a job that was accepted at `at(seconds)` and ended a second later.
pub(crate) fn result(name: &str, seconds: u64) -> RunJobResult {
    RunJobResult {
        job_id: id(name),
        status: JobStatus::Completed,
        trace: request().trace,
        command: CommandEcho {
            argv: request().command.argv,
            cwd: ".".to_owned(),
            executable: None,
        },
        exit_code: Some(0),
        signal: None,
        stdout: stream("out"),
        stderr: stream(""),
        artifacts: Vec::new(),
        artifacts_omitted: Vec::new(),
        snapshot: None,
        policy: PolicyDecision {
            decision: Decision::Allowed,
            reasons: Vec::new(),
            version: "v1:x".to_owned(),
            network: Network::None,
            network_enforced: true,
        },
        egress: Vec::new(),
        usage: None,
        enforced: BTreeMap::new(),
        not_enforced: Vec::new(),
        replay: ReplayHashes {
            request: "v1:a".to_owned(),
            snapshot: None,
            result: "v1:b".to_owned(),
        },
        timing: Timing {
            queued_at: rfc3339(at(seconds)),
            started_at: Some(rfc3339(at(seconds))),
            finished_at: rfc3339(at(seconds + 1)),
            duration_ms: 1000,
        },
        error: None,
        not_recorded: Vec::new(),
    }
}

pub(crate) fn artifact(path: &str) -> Artifact {
    let sha256 = Sha256::parse(&sha256_of(path.as_bytes())).unwrap();
    let uri = format!("file:///store/{path}");
    Artifact { path: path.to_owned(), bytes: 1, sha256, uri, truncated: false }
}

/// Records the job `name` from start to end.
pub(crate) fn run(store: &RunStore, name: &str, seconds: u64) {
    let mut record = store.create(&id(name), &request(), at(seconds)).unwrap();
    record.started(at(seconds)).unwrap();
    record.finish(&result(name, seconds)).unwrap();
}

/// The directory of a job.
pub(crate) fn place_of(store: &Path, name: &str) -> PathBuf {
    store.join("runs").join(name)
}

/// The names in `directory` of the store, in order.
pub(crate) fn names(store: &Path, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(store.join(directory)).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Opens the store as a service, which recovers it.
pub(crate) fn reopened(directory: &Path) -> (RunStore, Recovered) {
    RunStore::open(directory, StoreSettings::default()).unwrap()
}

/// Edits a JSON file in place.
pub(crate) fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}
