//! Hashes that two runs of the same request share: without times, job ids and paths of the host.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};

use cofferdam_core::job::{Artifact, RunJobRequest, RunJobResult, StreamRecord, Trace};
use cofferdam_core::values::digest::{sha256_of, tagged_hash};

/// The version of the hashes.
const TAG: &str = "v1";

/// Hashes a request as canonical JSON without `job_id`, `trace` and `workspace.path`.
pub fn request_hash(request: &RunJobRequest) -> String {
    let mut plain = request.clone();
    plain.job_id = None;
    plain.trace = Trace::new();
    plain.workspace.path = PathBuf::new();
    let mut value = serde_json::to_value(&plain).unwrap_or_default();
    if let Some(request) = value.as_object_mut() {
        request.remove("trace");
        if let Some(workspace) = request.get_mut("workspace").and_then(Value::as_object_mut) {
            workspace.remove("path");
        }
    }
    hash(&value)
}

/// The hash of a snapshot with that digest.
pub fn snapshot_hash(digest: &str) -> String {
    format!("{TAG}:{digest}")
}

/// Hashes a result. Call it before [`truncate`](crate::store::truncate), which changes the hash when it
/// truncates a stream.
pub fn result_hash(result: &RunJobResult) -> String {
    let stream = |stream: &StreamRecord| json!({ "bytes": stream.bytes, "sha256": stream.sha256, "truncated": stream.truncated });
    let artifact = |artifact: &Artifact| {
        let Artifact { path, bytes, sha256, truncated, uri: _ } = artifact;
        json!({ "path": path, "bytes": bytes, "sha256": sha256, "truncated": truncated })
    };
    let executable = result.command.executable.as_ref().map(|executable| &executable.sha256);
    hash(&json!({
        "status": result.status,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "error": result.error.as_ref().map(|error| error.code),
        "stdout": stream(&result.stdout),
        "stderr": stream(&result.stderr),
        "artifacts": result.artifacts.iter().map(artifact).collect::<Vec<_>>(),
        "policy": { "version": result.policy.version, "decision": result.policy.decision },
        "executable": executable,
    }))
}

fn hash(value: &impl Serialize) -> String {
    // These values always become JSON.
    tagged_hash(TAG, value).unwrap_or_else(|_| format!("{TAG}:{}", sha256_of(b"")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::tests::fixtures::{artifact, id, request, result};
    use cofferdam_core::job::{ErrorCode, JobError, JobStatus};

    #[test]
    fn a_request_is_hashed_without_id_trace_and_path() {
        let plain = request();
        let value = json!({
            "backend": {"kind": "local_process"},
            "command": {"argv": ["python3", "main.py"], "cwd": ".", "env": {}, "stdin": ""},
            "limits": plain.limits,
            "policy": plain.policy,
            "workspace": {"source": "local_path", "include": ["**"], "exclude": []},
        });
        assert_eq!(request_hash(&plain), tagged_hash("v1", &value).unwrap());
        let mut other = plain.clone();
        other.job_id = Some(id("x"));
        other.trace.clear();
        other.workspace.path = Path::new("/elsewhere").into();
        assert_eq!(request_hash(&other), request_hash(&plain));
        other.command.stdin.push('x');
        assert_ne!(request_hash(&other), request_hash(&plain));
        assert_eq!(snapshot_hash("ab"), "v1:ab");
    }

    #[test]
    fn a_result_is_hashed_without_ids_times_and_paths() {
        let mut plain = result("a", 0);
        plain.artifacts = vec![artifact("x")];
        let mut other = plain.clone();
        (other.job_id, other.timing) = (id("b"), result("b", 9).timing);
        other.artifacts[0].uri = "file:///elsewhere".to_owned();
        other.trace.clear();
        other.stdout.text.clear();
        assert_eq!(result_hash(&other), result_hash(&plain));
        let changes: [fn(&mut RunJobResult); 9] = [
            |it| it.status = JobStatus::Failed,
            |it| it.exit_code = Some(1),
            |it| it.signal = Some(9),
            |it| it.error = Some(JobError::new(ErrorCode::TimedOut, "")),
            |it| it.stdout.bytes += 1,
            |it| it.stderr.truncated = true,
            |it| it.artifacts[0].path.push('y'),
            |it| it.artifacts.clear(),
            |it| it.policy.version.push('y'),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut other = plain.clone();
            change(&mut other);
            assert_ne!(result_hash(&other), result_hash(&plain), "change {index}");
        }
    }
}
