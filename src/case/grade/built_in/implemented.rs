//! `implemented`: no function raises `NotImplementedError` any more.

use std::path::PathBuf;

use aho_corasick::AhoCorasick;
use serde_json::json;

use crate::case::cell::{CellExecutor, ExecCode, ExecError};
use crate::case::grade::files::{find_files, is_about_file};
use crate::case::grade::grader::{GradeError, GradeInputs, Grader};
use crate::case::grade::score::{GraderScore, GraderWeight};

/// What may not be left.
const MARK: &str = "NotImplementedError";
/// Directories whose files are of others.
const NOT_ENTERED: [&str; 4] = [".git", ".venv", "__pycache__", "node_modules"];
/// The most paths in the details of a score.
const PATHS_MAX: usize = 20;

/// Looks for functions that are still stubs.
#[derive(Debug)]
pub(super) struct ImplementedGrader {
    pub(super) counts: GraderWeight,
    /// The files; all `*.py` but `test_*` if none.
    pub(super) files: Vec<PathBuf>,
}

impl Grader for ImplementedGrader {
    fn grade(
        &self,
        cell: &dyn CellExecutor,
        _: &GradeInputs,
    ) -> Result<Vec<GraderScore>, GradeError> {
        match self.unfinished(cell) {
            Ok((searched, left)) => Ok(vec![self.score(searched, &left)]),
            Err(error) if error.code == ExecCode::TooLarge => {
                let verdict = (0.0, false);
                Ok(vec![GraderScore::new("implemented", self.counts, verdict, error.message)])
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl ImplementedGrader {
    /// How many files were searched, and those that are not finished: they have the mark, or cannot be read.
    fn unfinished(&self, cell: &dyn CellExecutor) -> Result<(usize, Vec<String>), ExecError> {
        let files = self.searched(cell)?;
        // Its one pattern is short.
        let search = AhoCorasick::new([MARK]);
        let search =
            search.map_err(|error| ExecError::new(ExecCode::BackendFailed, error.to_string()))?;
        let mut left = Vec::new();
        for path in &files {
            let is_finished = match cell.get(path) {
                Ok(content) => !search.is_match(&content),
                Err(error) if is_about_file(error.code) => false,
                Err(error) => return Err(error),
            };
            if !is_finished {
                left.push(path.clone());
            }
        }
        Ok((files.len(), left))
    }

    fn searched(&self, cell: &dyn CellExecutor) -> Result<Vec<String>, ExecError> {
        if !self.files.is_empty() {
            return Ok(self.files.iter().map(|path| path.display().to_string()).collect());
        }
        let entered = |name: &str| !NOT_ENTERED.contains(&name);
        let mut found = find_files(cell, ".", &entered, &is_source)?;
        found.sort();
        Ok(found.into_iter().map(|file| file.path).collect())
    }

    fn score(&self, searched: usize, left: &[String]) -> GraderScore {
        let passed = left.is_empty() && searched > 0;
        let explanation = match (searched, left.len()) {
            (0, _) => "there are no files to search".to_owned(),
            (_, 0) => format!("no {MARK} is left"),
            (_, count) => format!("{MARK} is left in {count} files, or they cannot be read"),
        };
        let value = f64::from(u8::from(passed));
        let shown: Vec<&String> = left.iter().take(PATHS_MAX).collect();
        GraderScore::new("implemented", self.counts, (value, passed), explanation)
            .with("files_searched", searched)
            .with("left", json!(shown))
    }
}

/// Whether a file is Python and no test.
fn is_source(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".py").is_some_and(|stem| !stem.starts_with("test_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_files_are_sources_unless_they_are_tests() {
        for (path, is_one) in [
            ("a.py", true),
            ("tests/a.py", true),
            ("a/test_b.py", false),
            ("test_a.py", false),
            ("a_test.py", true),
            ("a.pyc", false),
            ("a.txt", false),
        ] {
            assert_eq!(is_source(path), is_one, "{path}");
        }
    }

    #[test]
    fn nothing_to_search_is_no_pass() {
        let counts = GraderWeight { weight: 1.0, gate: false };
        let grader = ImplementedGrader { counts, files: Vec::new() };
        assert!(!grader.score(0, &[]).passed);
        assert!(grader.score(2, &[]).passed);
        assert!(!grader.score(2, &["a.py".to_owned()]).passed);
    }
}
