//! Agents that forge the outcomes of tests, against the graders `pytest` and `swebench`.
//!
//! `make test-case-forgers` runs them all: it names a folder with the packages of pytest in `CASE_PYTEST`. With
//! `COFFERDAM_WITHOUT` in a weakened build, the forgers that need the removed wall have to gain instead.

mod graded_cell;
mod short;

use std::collections::{BTreeMap, BTreeSet};
use std::env;

use serde::Deserialize;

use cofferdam::case::cell::CellExecutorKind;
use cofferdam::evaluation::patch::entry::FileForm;
use cofferdam::evaluation::patch::{FileChange, RestoreRules, TreeChanges, withhold};
use cofferdam::evaluation::task::VerifyRules;
use cofferdam_tree::StopCheck;
use graded_cell::{GradedCell, HONEST};

const LISTS: [&str; 3] =
    [include_str!("files.toml"), include_str!("hooks.toml"), include_str!("module.toml")];
const SECURITY: &str = include_str!("../../../SECURITY.md");
/// What holds a forger: files that are restored before tests run, or a part of the runner.
const HOLDERS: [&str; 7] = ["restore", "path", "runner", "canary", "reports", "marks", "frames"];
const WALLS: [&str; 5] = ["isolated", "framed", "canary", "marked", "counted"];

#[derive(Debug, Deserialize)]
struct ForgerList {
    forger: Vec<Forger>,
}

/// What an agent leaves.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Forger {
    name: String,
    held_by: String,
    /// `honest`: the fraction that passes without it. `lower`: less. `forged`: 0, and called so. `any`: one of these.
    grade: Option<String>,
    /// Code at the beginning of the tested module.
    pub module: String,
    /// Code in the tested function.
    pub add: String,
    /// Other files.
    pub files: BTreeMap<String, String>,
    wins_without: Vec<String>,
}

impl Forger {
    /// The tested module as it leaves it.
    pub fn whole_module(&self) -> String {
        let indented: String = self.add.lines().map(|line| format!("    {line}\n")).collect();
        format!(
            "{}\n\ndef sub(a, b):\n    return a - b\n\n\ndef add(a, b):\n{indented}\n    return 0\n",
            self.module
        )
    }
}

fn forgers() -> Vec<Forger> {
    let read = |list: &str| toml::from_str::<ForgerList>(list).unwrap().forger;
    LISTS.into_iter().flat_map(read).collect()
}

/// The paths that are restored before tests run.
fn restored(files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let added = |path: &String| {
        let form = FileForm::Plain;
        (path.clone().into_bytes(), FileChange { before: None, after: Some(form) })
    };
    let changes =
        TreeChanges { files: files.keys().map(added).collect(), ..TreeChanges::default() };
    let rules = RestoreRules::new(&VerifyRules::default(), &[]).unwrap();
    let read = |path: &[u8]| {
        let path = std::str::from_utf8(path).unwrap();
        (None, files.get(path).map(|content| content.clone().into_bytes()))
    };
    let held = withhold(&changes, &rules, &BTreeSet::new(), StopCheck::never(), read).unwrap();
    held.names().into_iter().collect()
}

#[test]
fn there_are_many_forgers_and_each_says_what_holds_it() {
    let forgers = forgers();
    let names: BTreeSet<&str> = forgers.iter().map(|forger| forger.name.as_str()).collect();
    assert_eq!(names.len(), forgers.len());
    assert!(names.len() >= 25);
    for forger in &forgers {
        assert!(HOLDERS.contains(&forger.held_by.as_str()), "{forger:?}");
        assert_eq!(forger.grade.is_none(), forger.held_by == "restore", "{forger:?}");
        assert!(
            forger.wins_without.iter().all(|wall| WALLS.contains(&wall.as_str())),
            "{forger:?}"
        );
    }
    for wall in WALLS {
        assert!(
            forgers.iter().any(|forger| forger.wins_without.iter().any(|w| w == wall)),
            "{wall}"
        );
    }
}

#[test]
fn what_only_restoring_holds_is_restored() {
    for forger in forgers().iter().filter(|forger| forger.held_by == "restore") {
        let restored = restored(&forger.files);
        assert!(forger.files.keys().any(|path| restored.contains(path)), "{forger:?}");
    }
}

#[test]
#[ignore = "needs downloads: make test-case-forgers"]
fn no_forger_gains() {
    let wall = env::var("COFFERDAM_WITHOUT").ok();
    let kinds = match wall {
        Some(_) => &[CellExecutorKind::Sandboxed][..],
        None => &[CellExecutorKind::Sandboxed, CellExecutorKind::Local],
    };
    let mut wrong = Vec::new();
    for kind in kinds {
        let Some(cell) = GradedCell::new(*kind) else { return };
        for mut forger in forgers() {
            if let Some(wall) = &wall
                && !forger.wins_without.contains(wall)
            {
                continue;
            }
            if forger.held_by == "restore" {
                let restored = restored(&forger.files);
                forger.files.retain(|path, _| !restored.contains(path));
            }
            let grade = cell.pytest(&forger);
            let is_forged = grade.details.contains_key("forged");
            let is_right = match (wall.as_deref(), forger.grade.as_deref().unwrap_or("honest")) {
                (Some(_), _) => grade.value > HONEST,
                (None, "honest") => grade.value == HONEST,
                (None, "lower") => grade.value < HONEST && !is_forged,
                (None, "forged") => grade.value == 0.0 && is_forged,
                (None, _) => grade.value <= HONEST,
            };
            if !is_right {
                wrong.push(format!("{kind:?}, pytest: {}: {grade:?}", forger.name));
            }
            let grades = cell.swebench(&forger);
            if wall.is_none() && grades.fixed.value != 0.0 {
                wrong.push(format!("{kind:?}, swebench: {}: {grades:?}", forger.name));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// SECURITY.md says what cannot be held. If it is held, the document is wrong.
#[test]
#[ignore = "needs downloads: make test-case-forgers"]
fn the_example_of_what_is_not_held_gains() {
    if env::var_os("COFFERDAM_WITHOUT").is_some() {
        return;
    }
    let section = SECURITY.split_once("inside its own test process\n").unwrap().1;
    let code = section.split_once("```python test_it.py\n").unwrap().1.split_once("```").unwrap().0;
    let Some(cell) = GradedCell::new(CellExecutorKind::Sandboxed) else { return };
    let forger = Forger { module: code.to_owned(), ..Forger::default() };
    let grade = cell.pytest(&forger);
    assert_eq!(grade.value, 1.0, "{grade:?}");
    let grades = cell.swebench(&forger);
    assert!(grades.fixed.passed && grades.regression.passed, "{grades:?}");
}

#[test]
#[ignore = "needs downloads: make test-case-forgers"]
fn an_honest_solution_passes_and_none_fails() {
    if env::var_os("COFFERDAM_WITHOUT").is_some() {
        return;
    }
    for kind in [CellExecutorKind::Sandboxed, CellExecutorKind::Local] {
        let Some(cell) = GradedCell::new(kind) else { return };
        let solved = Forger { add: "return a + b".to_owned(), ..Forger::default() };
        let grade = cell.pytest(&solved);
        assert_eq!((grade.value, grade.passed), (1.0, true), "{grade:?}");
        let grades = cell.swebench(&solved);
        assert!(grades.fixed.passed && grades.regression.passed, "{grades:?}");
        let nothing = Forger::default();
        let grade = cell.pytest(&nothing);
        assert_eq!((grade.value, grade.passed), (HONEST, false), "{grade:?}");
        let grades = cell.swebench(&nothing);
        assert!(!grades.fixed.passed && grades.regression.passed, "{grades:?}");
    }
}

#[test]
#[ignore = "needs downloads: make test-case-forgers"]
fn ids_are_graded_as_pytest_names_them() {
    if env::var_os("COFFERDAM_WITHOUT").is_some() {
        return;
    }
    let Some(cell) = GradedCell::new(CellExecutorKind::Sandboxed) else { return };
    let files = BTreeMap::from([("tests/test_ids.py".to_owned(), graded_cell::IDS.to_owned())]);
    let forger = Forger { files, ..Forger::default() };
    for (id, fixed, holds) in [
        ("tests/test_ids.py::test_p[a b]", true, true),
        ("tests/test_ids.py::test_p[x::y]", true, true),
        ("tests\\test_ids.py::test_p[\u{e9}]", true, true),
        ("tests/test_ids.py::test_p[", true, true),
        ("tests/test_ids.py::TestC::test_m", true, true),
        ("tests/test_ids.py::TestC::test_skipped", false, true),
        ("tests/test_ids.py::test_xfail", true, true),
        ("tests/test_ids.py::test_skips_itself", false, false),
        ("tests/test_ids.py::test_absent", false, false),
        ("tests/test_absent.py::test_p", false, false),
    ] {
        let grades = cell.ids(&forger, &[id]);
        assert_eq!(
            (grades.fixed.passed, grades.regression.passed),
            (fixed, holds),
            "{id}: {grades:?}"
        );
    }
}
