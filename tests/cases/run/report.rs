//! `cofferdam case report`: the reports of a run whose results are there.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

const HOSTILE: &str = "</pre><script>alert('x')</script>";

/// A store with the run `r` of the Case `case`: a passed, a failed, a running Cell and one without a result.
fn scene() -> TempDir {
    let scene = tempfile::tempdir().unwrap();
    let case = scene.path().join("case");
    fs::create_dir(&case).unwrap();
    fs::write(case.join("case.yaml"), "id: c\n").unwrap();
    let cells: Vec<Value> = (1..=4).map(cell).collect();
    let run = scene.path().join("store/cases/r");
    fs::create_dir_all(&run).unwrap();
    let manifest = json!({
        "version": 1, "run_id": "r", "case": "c", "created_at": "2026-01-01T00:00:00.000Z",
        "case_path": case.join("case.yaml").canonicalize().unwrap(),
        "digests": {"case": "d", "source": "d"},
        "options": {"executor": null, "keep": false},
        "cells": cells,
    });
    fs::write(run.join("manifest.json"), manifest.to_string()).unwrap();
    write_cell(&run, 1, &json!({"status": "done", "overall_score": 1.0, "overall_passed": true}));
    let fault =
        json!({"code": "setup.failed", "step": "setup", "message": HOSTILE, "tail": HOSTILE});
    write_cell(&run, 2, &json!({"status": "failed", "error": fault}));
    write_cell(&run, 3, &json!({"status": "running"}));
    scene
}

fn cell(trial: u64) -> Value {
    json!({"id": format!("c__mine__m__t{trial}"), "case": "c", "harness": "mine", "model": "m", "trial": trial})
}

fn write_cell(run: &Path, trial: u64, end: &Value) {
    let mut result = json!({
        "attempt": 1, "overall_score": null, "overall_passed": null, "scores": [], "agent": null,
        "provision": null, "executor": null, "warnings": [], "error": null, "skipped_reason": null,
        "timing": {"started_at": null, "finished_at": null, "wall_ms": 1500, "steps_ms": {}},
    });
    for part in [&cell(trial), end] {
        result.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    }
    let directory = run.join(format!("cells/c__mine__m__t{trial}"));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("result.json"), result.to_string()).unwrap();
    fs::write(directory.join("output.txt"), HOSTILE).unwrap();
}

/// The exit code, stdout and stderr of a report about `word`.
fn report(scene: &Path, word: &Path) -> (i32, String, String) {
    let binary =
        env::var_os("COFFERDAM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_cofferdam").into());
    let output = Command::new(binary)
        .args(["case", "report"])
        .arg(word)
        .arg("--store-dir")
        .arg(scene.join("store"))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn reports_are_made_of_the_results_by_the_run_its_directory_or_its_case() {
    let scene = scene();
    let run = scene.path().join("store/cases/r");
    let directory = run.canonicalize().unwrap();
    let wanted = json!({
        "run_id": "r", "dir": directory, "cells": {"done": 1, "failed": 1, "skipped": 0, "pending": 2},
        "passed": 1, "not_passed": 0,
    });
    for word in [Path::new("r"), run.as_path(), &scene.path().join("case")] {
        let (code, stdout, stderr) = report(scene.path(), word);
        assert_eq!((code, stderr.as_str()), (0, ""), "{}", word.display());
        assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap(), wanted);
        for name in ["results.jsonl", "junit.xml", "report.html"] {
            let text = fs::read_to_string(run.join(name)).unwrap();
            assert!(name == "results.jsonl" || !text.contains("<script"), "{name}");
            fs::remove_file(run.join(name)).unwrap();
        }
    }
}

#[test]
fn results_are_in_the_order_of_the_run_and_a_cell_that_nobody_runs_is_pending() {
    let scene = scene();
    assert_eq!(report(scene.path(), Path::new("r")).0, 0);
    let text = fs::read_to_string(scene.path().join("store/cases/r/results.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<(Option<u64>, Option<&str>, Option<u64>)> = lines
        .iter()
        .map(|line| (line["trial"].as_u64(), line["status"].as_str(), line["attempt"].as_u64()))
        .collect();
    let wanted = [(1, "done", 1), (2, "failed", 1), (3, "pending", 1), (4, "pending", 0)];
    assert_eq!(
        found,
        wanted.map(|(trial, status, attempt)| (Some(trial), Some(status), Some(attempt)))
    );
}

#[test]
fn a_run_that_is_not_there_or_in_use_is_refused() {
    let scene = scene();
    let (code, stdout, stderr) = report(scene.path(), Path::new("gone"));
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.starts_with("cofferdam: no run \"gone\""), "{stderr}");
    let file = fs::File::create(scene.path().join("store/cases/r/lock")).unwrap();
    file.lock().unwrap();
    let (code, _, stderr) = report(scene.path(), Path::new("r"));
    assert_eq!(code, 2);
    assert!(stderr.contains("the run r is in use by"), "{stderr}");
}
