//! `cofferdam job run` as an unprivileged user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{NOBODY, has_user_namespaces, setpriv};

/// A directory of that user with the binary, a workspace and a request for a job on it. `None`, with
/// a message, if the host has no unprivileged user namespaces.
fn place() -> Option<TempDir> {
    if !has_user_namespaces() {
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().join("workspace");
    fs::copy(env!("CARGO_BIN_EXE_cofferdam"), place.path().join("cofferdam")).unwrap();
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("main.py"), "import os\nprint(os.getuid())\nopen('out', 'w')\n")
        .unwrap();
    for path in [place.path(), &workspace, &workspace.join("main.py")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let request = json!({
        "job_id": "job_1",
        "workspace": {"source": "local_path", "path": workspace},
        "command": {"argv": ["python3", "main.py"]},
        "policy": {"allowed_commands": ["python3"], "artifacts": {"include": ["out"]}},
    });
    fs::write(place.path().join("request.json"), request.to_string()).unwrap();
    Some(place)
}

/// `cofferdam job` in that directory as that user, with `words` split at spaces.
fn job(place: &TempDir, groups: &str, words: &str) -> Output {
    let mut command = setpriv(groups);
    command.arg(place.path().join("cofferdam")).arg("job").args(words.split(' '));
    command.current_dir(place.path()).output().unwrap()
}

#[test]
fn a_job_of_an_unprivileged_user_runs_and_its_record_belongs_to_them() {
    let Some(place) = place() else { return };
    let done = job(&place, "--clear-groups", "run request.json");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result["stdout"]["text"], "10001\n");
    assert_eq!(result["artifacts"][0]["path"], "out");
    let again = job(&place, "--clear-groups", "result job_1");
    assert_eq!(again.stdout, done.stdout, "{again:?}");
}

#[test]
fn without_a_sandbox_the_backend_is_unavailable_and_advice_is_printed() {
    let Some(place) = place() else { return };
    // Every run would have that group, so the sandbox refuses to open.
    let done = job(&place, "--groups=4", "run request.json");
    assert_eq!(done.status.code(), Some(5), "{done:?}");
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result["status"], "backend_unavailable", "{result}");
    assert_eq!(result["error"]["code"], "backend.unavailable");
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(stderr.lines().count() == 1 && stderr.contains("cofferdam doctor"), "{stderr}");
}
