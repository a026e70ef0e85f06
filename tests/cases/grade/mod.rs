//! Graders over the files of a Cell, by every executor.

mod expected;
mod injected;
mod rows;
mod runs;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use cofferdam::case::file::load_case;
use cofferdam::case::grade::{ReportPatterns, remove_reports};
use cofferdam::cases::{
    ExecRequest, Executor, GradeError, GradeInputs, GraderScore, built_in_grader,
};

use crate::conformance::doors::{Scene, WITHOUT_IMAGE, by_library};
use crate::conformance::{exited, has};
use rows::{GradeRow, table};

/// The hidden files.
const HIDDEN: [(&str, &str); 5] = [
    ("hidden/check.sh", "echo 'hidden: 2 passed in 0.1s' | cut -c9-"),
    ("hidden/tree/one", "1\n"),
    ("hidden/tree/deep/two", "2\n"),
    ("expected/kept.txt", "kept\n"),
    ("expected/dir/inner", "other\n"),
];

/// A Case that has those.
fn hidden_case() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for (path, content) in HIDDEN {
        let path = place.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    place
}

/// What the grader `written` says of `cell`.
fn graded(cell: &dyn Executor, case: &Path, written: &str) -> Result<Vec<GraderScore>, GradeError> {
    let head = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";
    fs::write(case.join("case.yaml"), format!("{head}graders: [{written}]\n")).unwrap();
    let case_file = load_case(case).unwrap().case;
    let grader = built_in_grader(&case_file.graders[0]).unwrap();
    let env = [("FROM_PROVISION".to_owned(), Some("yes".to_owned()))].into();
    grader.grade(cell, &GradeInputs { env, hidden: case.to_owned() })
}

fn run_all(rows: &[GradeRow]) {
    let Some(scene) = Scene::new() else { return };
    let case = hidden_case();
    let mut wrong = Vec::new();
    for kind in WITHOUT_IMAGE {
        for row in rows {
            let cell = scene.started(kind, "limits: {stdout_bytes: 100000}");
            if !row.before.is_empty() {
                let before = by_library(cell.as_ref(), &ExecRequest::new(["sh", "-c", row.before]));
                assert!(has(&before, &exited(0, "")), "{}: {before}", row.guarantee);
            }
            let scores = graded(cell.as_ref(), case.path(), row.grader);
            let score = match scores.as_deref() {
                Ok([score]) => serde_json::to_value(score).unwrap(),
                other => Value::from(format!("{other:?}")),
            };
            let fits = score["value"] == row.value
                && score["passed"] == row.passed
                && has(&score["details"], &row.details);
            if !fits {
                wrong.push(format!("{kind:?}: {}: {score}", row.guarantee));
            }
            cell.stop();
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_command_and_its_tests_are_graded_by_what_they_do() {
    run_all(&table(runs::ROWS));
}

#[test]
fn hidden_files_replace_what_stands_at_their_destinations_or_above() {
    run_all(&table(injected::ROWS));
}

#[test]
fn files_are_graded_without_a_command() {
    run_all(&table(expected::ROWS));
}

#[test]
fn reports_that_were_there_before_can_be_removed() {
    let Some(scene) = Scene::new() else { return };
    let patterns = ReportPatterns::parse(&["out/**/*.xml".to_owned()]).unwrap();
    for kind in WITHOUT_IMAGE {
        let cell = scene.started(kind, "");
        let plant =
            "mkdir -p out/a; echo > out/a/r.xml; echo > out/s.xml; echo > out/t.txt; echo > u.xml";
        cell.run(&ExecRequest::new(["sh", "-c", plant])).unwrap();
        remove_reports(cell.as_ref(), &patterns).unwrap();
        let left = by_library(cell.as_ref(), &ExecRequest::new(["sh", "-c", "ls out/a out u.xml"]));
        assert!(has(&left, &exited(0, "u.xml\n\nout:\na\nt.txt\n\nout/a:\n")), "{kind:?}: {left}");
    }
}

#[test]
fn what_cannot_be_graded_is_an_error_and_no_score() {
    let Some(scene) = Scene::new() else { return };
    let case = hidden_case();
    for kind in WITHOUT_IMAGE {
        let cell = scene.started(kind, "");
        let written = "{type: tests, cmd: 'true', junit_xml: '[z'}";
        let error = graded(cell.as_ref(), case.path(), written).unwrap_err();
        assert!(matches!(error, GradeError::Pattern { .. }), "{kind:?}: {error}");
        let written = "{type: tests, cmd: 'true', inject: [{src: hidden/tree, dest: a}, {src: hidden/check.sh, dest: a/one/b}]}";
        let error = graded(cell.as_ref(), case.path(), written).unwrap_err();
        assert!(matches!(error, GradeError::Inject { .. }), "{kind:?}: {error}");
        cell.stop();
        let error = graded(cell.as_ref(), case.path(), "{type: command, cmd: 'true'}").unwrap_err();
        assert!(matches!(error, GradeError::Exec(_)), "{kind:?}: {error}");
    }
}
