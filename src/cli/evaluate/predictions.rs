//! `--predictions`: ready patches for converted tasks of SWE-bench, and the report of its harness.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::failure::{Failure, error_words};
use crate::evaluation::result::{EvaluationResult, EvaluationStep, EvaluationVerdict};

/// The file of a converted task that has its `instance_id`.
const IDS_FILE: &str = "swebench.json";
/// The longest such file, bytes.
const IDS_BYTES_MAX: u64 = 64 << 20;
/// The most tasks in one directory.
const TASKS_MAX: usize = 100_000;

/// A patch that a model predicted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Prediction {
    /// The instance that it is for.
    pub instance_id: String,
    /// The patch; nothing is predicted if it is missing or empty.
    #[serde(default)]
    pub model_patch: Option<String>,
}

#[derive(Deserialize)]
struct ConvertedTask {
    instance_id: String,
}

/// The report of the harness, version 2 of its format, keys in its order.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct HarnessReport {
    total_instances: usize,
    submitted_instances: usize,
    completed_instances: usize,
    resolved_instances: usize,
    unresolved_instances: usize,
    empty_patch_instances: usize,
    error_instances: usize,
    completed_ids: BTreeSet<String>,
    incomplete_ids: BTreeSet<String>,
    empty_patch_ids: BTreeSet<String>,
    submitted_ids: BTreeSet<String>,
    resolved_ids: BTreeSet<String>,
    unresolved_ids: BTreeSet<String>,
    error_ids: BTreeSet<String>,
    schema_version: u8,
}

impl HarnessReport {
    /// The report of `tasks`, of which nothing was evaluated yet.
    pub fn new<'a>(tasks: impl Iterator<Item = &'a String>) -> Self {
        let incomplete_ids: BTreeSet<String> = tasks.cloned().collect();
        let total_instances = incomplete_ids.len();
        Self { total_instances, incomplete_ids, schema_version: 2, ..Self::default() }
    }

    /// Adds a prediction without a patch, which is not evaluated.
    pub fn add_empty(&mut self, id: &str) {
        self.submit(id);
        self.empty_patch_ids.insert(id.to_owned());
        self.empty_patch_instances = self.empty_patch_ids.len();
    }

    /// Adds an evaluation. It is an error unless its tests were graded.
    pub fn add(&mut self, id: &str, result: &EvaluationResult) {
        self.submit(id);
        if result.step != EvaluationStep::Done {
            self.error_ids.insert(id.to_owned());
        } else {
            self.completed_ids.insert(id.to_owned());
            let is_resolved = result.verdict == Some(EvaluationVerdict::Resolved);
            let ids = if is_resolved { &mut self.resolved_ids } else { &mut self.unresolved_ids };
            ids.insert(id.to_owned());
        }
        self.completed_instances = self.completed_ids.len();
        self.resolved_instances = self.resolved_ids.len();
        self.unresolved_instances = self.unresolved_ids.len();
        self.error_instances = self.error_ids.len();
    }

    /// Whether an evaluation failed for another reason than its tests.
    pub fn has_errors(&self) -> bool {
        !self.error_ids.is_empty()
    }

    /// Whether every prediction resolves its task.
    pub fn is_resolved(&self) -> bool {
        self.resolved_ids == self.submitted_ids
    }

    fn submit(&mut self, id: &str) {
        self.incomplete_ids.remove(id);
        self.submitted_ids.insert(id.to_owned());
        self.submitted_instances = self.submitted_ids.len();
    }
}

/// The predictions in `text`, a JSON object a line, each for one of `tasks`.
pub fn parse_predictions(
    text: &str,
    tasks: &BTreeMap<String, PathBuf>,
) -> Result<Vec<Prediction>, Failure> {
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    for (number, line) in (1_usize..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let fault =
            |words: String| Failure::option("--predictions", format!("line {number}: {words}"));
        let prediction: Prediction =
            serde_json::from_str(line).map_err(|error| fault(error.to_string()))?;
        let id = &prediction.instance_id;
        if !tasks.contains_key(id) {
            return Err(fault(format!("no task has the instance_id {id:?}")));
        }
        if !ids.insert(id.clone()) {
            return Err(fault(format!("the instance_id {id:?} is there twice")));
        }
        found.push(prediction);
    }
    Ok(found)
}

/// The converted tasks in `directory`, or the one that it is, by their `instance_id`.
pub fn converted_tasks(directory: &Path) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let fault =
        |path: &Path, words: &str| Failure::option("TASK", format!("{}: {words}", path.display()));
    let mut places = vec![directory.to_owned()];
    let entries = fs::read_dir(directory);
    for entry in entries.map_err(|error| fault(directory, &error_words(&error)))? {
        places.push(entry.map_err(|error| fault(directory, &error_words(&error)))?.path());
        if places.len() > TASKS_MAX {
            return Err(fault(directory, &format!("more than {TASKS_MAX} entries")));
        }
    }
    let mut tasks = BTreeMap::new();
    for place in places {
        let file = place.join(IDS_FILE);
        let id = match instance_id(&file) {
            Err(error) if is_absent(&error) => continue,
            id => id.map_err(|error| fault(&file, &error_words(&error)))?,
        };
        if let Some(other) = tasks.insert(id, place) {
            return Err(fault(&file, &format!("{} has the same instance_id", other.display())));
        }
    }
    if tasks.is_empty() {
        return Err(fault(directory, "no converted task of SWE-bench"));
    }
    Ok(tasks)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn instance_id(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(IDS_BYTES_MAX).read_to_string(&mut text)?;
    let task: ConvertedTask = serde_json::from_str(&text)?;
    Ok(task.instance_id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_has_the_keys_of_the_harness_in_their_order() {
        let ids = ["a", "b", "c", "d", "e"].map(str::to_owned);
        let mut report = HarnessReport::new(ids.iter());
        let graded = |step, verdict| EvaluationResult {
            step,
            verdict: Some(verdict),
            ..EvaluationResult::pending(String::new(), String::new())
        };
        report.add("a", &graded(EvaluationStep::Done, EvaluationVerdict::Resolved));
        assert!(report.is_resolved() && !report.has_errors());
        report.add("b", &graded(EvaluationStep::Done, EvaluationVerdict::Partial));
        report.add("c", &graded(EvaluationStep::RunningAgent, EvaluationVerdict::Unresolved));
        report.add_empty("d");
        assert!(!report.is_resolved() && report.has_errors());
        let expected = concat!(
            r#"{"total_instances":5,"submitted_instances":4,"completed_instances":2,"#,
            r#""resolved_instances":1,"unresolved_instances":1,"empty_patch_instances":1,"#,
            r#""error_instances":1,"completed_ids":["a","b"],"incomplete_ids":["e"],"#,
            r#""empty_patch_ids":["d"],"submitted_ids":["a","b","c","d"],"resolved_ids":["a"],"#,
            r#""unresolved_ids":["b"],"error_ids":["c"],"schema_version":2}"#,
        );
        assert_eq!(serde_json::to_string(&report).unwrap(), expected);
    }

    #[test]
    fn a_prediction_is_for_one_known_task_and_no_other_is() {
        let tasks = BTreeMap::from([("a".to_owned(), PathBuf::new())]);
        let line = json!({"instance_id": "a", "model_name_or_path": "m", "model_patch": null});
        let found = parse_predictions(&format!("{line}\n\n"), &tasks).unwrap();
        assert_eq!(found, [Prediction { instance_id: "a".to_owned(), model_patch: None }]);
        for (text, words) in [
            (format!("{line}\n{line}\n"), "line 2: the instance_id \"a\" is there twice"),
            (r#"{"instance_id": "b"}"#.to_owned(), "line 1: no task has the instance_id \"b\""),
            ("{}".to_owned(), "line 1: missing field `instance_id`"),
            ("\nnothing".to_owned(), "line 2: "),
        ] {
            let told = parse_predictions(&text, &tasks).unwrap_err().to_string();
            assert!(told.contains("--predictions") && told.contains(words), "{told}");
        }
    }
}
