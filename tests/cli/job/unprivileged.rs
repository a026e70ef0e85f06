//! `cofferdam job run` without any privilege: a user that is nobody here.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

const NOBODY: &str = "31001";

/// As a user without a capability, now or ever.
fn setpriv(groups: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, groups]);
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    command
}

/// A directory of theirs with the binary, and a request for a job over the workspace in it.
/// None where the host has no user namespaces for everybody; says so aloud.
fn place() -> Option<TempDir> {
    let there = setpriv("--clear-groups").args(["unshare", "--user", "true"]).output().unwrap();
    if !there.status.success() {
        let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        assert!(!required, "no user namespaces for everybody, and REQUIRE_PRIVILEGED=1");
        eprintln!("SKIP: no user namespaces for everybody");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let uid: u32 = NOBODY.parse().unwrap();
    let workspace = place.path().join("workspace");
    fs::copy(env!("CARGO_BIN_EXE_cofferdam"), place.path().join("cofferdam")).unwrap();
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("main.py"), "import os\nprint(os.getuid())\nopen('out', 'w')\n")
        .unwrap();
    for path in [place.path(), &workspace, &workspace.join("main.py")] {
        chown(path, Some(uid), Some(uid)).unwrap();
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

/// `cofferdam job`, `words` divided by spaces, there and as that user.
fn job(place: &TempDir, groups: &str, words: &str) -> Output {
    let mut command = setpriv(groups);
    command.arg(place.path().join("cofferdam")).arg("job").args(words.split(' '));
    command.current_dir(place.path()).output().unwrap()
}

#[test]
fn a_job_of_nobody_s_runs_and_its_record_is_theirs() {
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
fn where_no_box_can_be_made_the_backend_is_unavailable_and_there_is_advice() {
    let Some(place) = place() else { return };
    // Every program would have that group.
    let done = job(&place, "--groups=4", "run request.json");
    assert_eq!(done.status.code(), Some(5), "{done:?}");
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result["status"], "backend_unavailable", "{result}");
    assert_eq!(result["error"]["code"], "backend.unavailable");
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(stderr.lines().count() == 1 && stderr.contains("cofferdam doctor"), "{stderr}");
}
