//! `case validate --prove`: an agent that does nothing fails, and the oracle passes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::scene::{HIDDEN_TEST, Scene};
use crate::conformance::doors::binary;

const MATRIX: &str = "matrix: {harnesses: [aider], models: [m, n], trials: 3}\n";
/// A wide bound, for a busy host.
const BEGUN_WITHIN: Duration = Duration::from_secs(120);

/// `case validate CASE --prove`, whose temporary files are in `place`.
fn command(scene: &Scene, place: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["case", "validate"]).arg(scene.case()).arg("--prove").args(arguments);
    command.env("TMPDIR", place.path());
    command
}

/// The exit code and the report. Nothing is left.
fn prove(scene: &Scene, arguments: &[&str]) -> (Option<i32>, Value) {
    let place = tempfile::tempdir().unwrap();
    let output = command(scene, &place, arguments).output().unwrap();
    assert_nothing_left(place.path());
    (output.status.code(), report(&output))
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn assert_nothing_left(place: &Path) {
    let left: Vec<_> = fs::read_dir(place).unwrap().flatten().map(|one| one.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(place.to_str().unwrap()), "{mounts}");
}

#[test]
fn a_case_is_proved_by_its_oracle_and_by_doing_nothing() {
    let Some(scene) = Scene::new(&format!("{MATRIX}{HIDDEN_TEST}")) else { return };
    for arguments in [&[][..], &["--executor", "local"]] {
        let (code, report) = prove(&scene, arguments);
        assert_eq!(code, Some(0), "{report}");
        let wanted = json!({
            "nop": {"status": "done", "overall_score": 0.5, "overall_passed": false, "error": null},
            "oracle": {"status": "done", "overall_score": 1.0, "overall_passed": true, "error": null},
        });
        assert_eq!((&report["valid"], &report["cells"]), (&json!(true), &json!(6)), "{report}");
        assert_eq!(report["warnings"][0]["code"], "console_counts", "{report}");
        assert_eq!(report["proved"], wanted);
    }
}

#[test]
fn a_case_that_proves_nothing_is_exit_code_1() {
    for (blocks, nop, oracle) in [
        ("graders: [{type: command, cmd: 'true'}]\n", json!(true), json!(true)),
        ("graders: [{type: command, cmd: 'false'}]\n", json!(false), json!(false)),
        ("graders: []\n", json!(false), json!(false)),
    ] {
        let Some(scene) = Scene::new(&format!("{MATRIX}{blocks}")) else { return };
        let (code, report) = prove(&scene, &[]);
        assert_eq!(code, Some(1), "{report}");
        let proved = &report["proved"];
        let passed = (&proved["nop"]["overall_passed"], &proved["oracle"]["overall_passed"]);
        assert_eq!(passed, (&nop, &oracle), "{report}");
    }
}

#[test]
fn a_step_that_fails_is_the_error_of_both() {
    let blocks = "environment: {kind: command, commands: ['echo broken; exit 3']}\n";
    let Some(scene) = Scene::new(&format!("{MATRIX}{blocks}{HIDDEN_TEST}")) else { return };
    let (code, report) = prove(&scene, &[]);
    assert_eq!(code, Some(1), "{report}");
    for harness in ["nop", "oracle"] {
        let cell = &report["proved"][harness];
        let ended = (&cell["status"], &cell["overall_score"], &cell["overall_passed"]);
        assert_eq!(ended, (&json!("failed"), &Value::Null, &Value::Null), "{report}");
        let error = (&cell["error"]["code"], &cell["error"]["tail"]);
        assert_eq!(error, (&json!("provision.failed"), &json!("broken\n")), "{report}");
    }
}

#[test]
fn a_case_that_is_invalid_or_has_no_oracle_is_not_tried() {
    let Some(scene) = Scene::new(&format!("{MATRIX}{HIDDEN_TEST}")) else { return };
    let yaml = scene.yaml();
    for (yaml, path, code) in [
        (yaml.replace("oracle: {patch: fix.patch}\n", ""), "oracle", "missing"),
        (format!("{yaml}zzz: 1\n"), "zzz", "unknown_key"),
    ] {
        scene.write("case.yaml", &yaml);
        let (status, report) = prove(&scene, &[]);
        assert_eq!((status, &report["valid"]), (Some(2), &json!(false)), "{report}");
        let error = &report["errors"][0];
        assert_eq!((&error["path"], &error["code"]), (&json!(path), &json!(code)), "{report}");
        assert_eq!(report.get("proved"), None);
    }
    let refused = Command::new(binary())
        .args(["case", "validate", "--executor", "local"])
        .arg(scene.case())
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "--executor is for --prove");
}

#[test]
fn a_signal_ends_the_proof_and_leaves_nothing() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let began = tempfile::tempdir().unwrap();
        let mark = began.path().join("began");
        // The local executor sees the directory of the test.
        let blocks = format!("setup: {{run: ['touch {}; sleep 600']}}\n", mark.display());
        let Some(scene) = Scene::new(&format!("{MATRIX}{blocks}{HIDDEN_TEST}")) else { return };
        let place = tempfile::tempdir().unwrap();
        let mut command = command(&scene, &place, &["--executor", "local"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let since = Instant::now();
        while !mark.exists() {
            assert!(since.elapsed() < BEGUN_WITHIN, "the setup does not begin");
            thread::sleep(Duration::from_millis(20));
        }
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(report(&output)["proved"]["nop"]["status"], "pending");
        assert_nothing_left(place.path());
    }
}
