//! Some of the forgers as agents of a Case, by the built binary and Debian's pytest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use cofferdam_test_support::host;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::graded_cell::{HONEST, MODULE, NAME, TESTS};
use super::{Forger, forgers};
use crate::conformance::doors::binary;

/// One of each kind.
const NAMES: [&str; 12] = [
    "reports that are there already",
    "a pytest.py that loads the real one and changes it",
    "start files of Python",
    "options that deselect the test",
    "a report that says passed",
    "tests that do nothing",
    "another stdout, and a summary on each stream",
    "an exit handler that writes a report and ends with 0",
    "an exit with 0 in a test, after a summary",
    "reports on every descriptor",
    "a skip by call",
    "KeyboardInterrupt in a test",
];
/// Writes the files that its argument names.
const WRITE: &str = "\
import json, pathlib, sys
for name, text in json.loads(sys.argv[1]).items():
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
";

/// The results of a run in which each of `agents` worked on the same Case.
fn results(place: &TempDir, agents: &[Forger]) -> Vec<Value> {
    let harness = |agent: &Forger| {
        let mut files = agent.files.clone();
        files.insert(MODULE.to_owned(), agent.whole_module());
        json!({"kind": "command", "argv": ["python3", "-c", WRITE, json!(files).to_string()]})
    };
    let name = |index: usize| format!("agent{index}");
    let harnesses: BTreeMap<_, _> =
        agents.iter().enumerate().map(|(index, agent)| (name(index), harness(agent))).collect();
    let id = |test: &str| format!("{NAME}::{test}");
    let inject = json!([{"src": NAME, "dest": NAME}]);
    let case = json!({
        "id": "forged",
        "task": {"prompt": "Mend add."},
        "source": {"path": "src"},
        "environment": {"system_site_packages": true},
        "harnesses": harnesses,
        "matrix": {"harnesses": (0..agents.len()).map(name).collect::<Vec<_>>(), "models": ["m"]},
        "graders": [
            {
                "type": "swebench", "inject": inject,
                "fail_to_pass": [id("test_add")], "pass_to_pass": [id("test_sub"), id("test_last")],
            },
            {"type": "pytest", "inject": inject, "weight": 0},
        ],
    });
    let source = place.path().join("case/src");
    write(&source.join(MODULE), &Forger::default().whole_module());
    write(&source.with_file_name(NAME), TESTS);
    // JSON is YAML.
    write(&source.with_file_name("case.yaml"), &case.to_string());
    let mut command = Command::new(binary());
    command.args(["case", "run", "--executor", "sandboxed", "--jobs", "2", "--store-dir"]);
    let output = command.arg(place.path().join("store")).arg(place.path().join("case")).output();
    let output = output.unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let cells = Path::new(answer["dir"].as_str().unwrap()).join("cells");
    let result = |index: usize| {
        let path = cells.join(format!("forged__{}__m__t1/result.json", name(index)));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    (0..agents.len()).map(result).collect()
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn of_each_kind_of_forger_one_scores_nothing_and_an_honest_agent_passes() {
    if host().is_none() {
        return;
    }
    let mut agents: Vec<Forger> =
        forgers().into_iter().filter(|forger| NAMES.contains(&forger.name.as_str())).collect();
    assert_eq!(agents.len(), NAMES.len());
    agents.push(Forger { add: "return a + b".to_owned(), ..Forger::default() });
    let place = tempfile::tempdir().unwrap();
    let mut results = results(&place, &agents);
    let honest = results.pop().unwrap();
    assert_eq!(honest["overall_score"], 1.0, "{honest:#}");
    let pytest = |result: &Value| {
        let scores = result["scores"].as_array().unwrap();
        scores.iter().find(|score| score["grader"] == "pytest").unwrap()["value"].as_f64().unwrap()
    };
    assert_eq!(pytest(&honest), 1.0, "{honest:#}");
    for (forger, result) in agents.iter().zip(&results) {
        assert_eq!(result["agent"]["exit_code"], 0, "{}: {result:#}", forger.name);
        assert_eq!(result["overall_score"], 0.0, "{}: {result:#}", forger.name);
        // Scores have four places.
        assert!(pytest(result) <= HONEST + 1e-4, "{}: {result:#}", forger.name);
    }
}
