//! `files`: the files that have to be there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::case::cell::{CellExecutor, ExecCode, ExecError};
use crate::case::grade::counted::CountedTests;
use crate::case::grade::files::{HiddenFiles, find_files, is_about_file};
use crate::case::grade::grader::{GradeError, GradeInputs, Grader};
use crate::case::grade::score::{GraderScore, GraderWeight};
use cofferdam_core::values::glob::Globs;

/// The most paths in the details of a score.
const PATHS_MAX: usize = 20;

/// Judges which files the sandbox has.
#[derive(Debug)]
pub(super) struct FilesGrader {
    pub(super) counts: GraderWeight,
    /// The hidden directory whose files have to be in the sandbox, byte for byte.
    pub(super) expect_dir: Option<PathBuf>,
    /// Which of them count, all if none; without a directory, patterns that a file has to match.
    pub(super) patterns: Vec<String>,
}

impl Grader for FilesGrader {
    fn grade(
        &self,
        cell: &dyn CellExecutor,
        inputs: &GradeInputs,
    ) -> Result<Vec<GraderScore>, GradeError> {
        let globs = self.globs()?;
        let missing = match &self.expect_dir {
            Some(directory) => different_files(cell, &inputs.hidden, directory, &globs)?,
            None => match unmatched_patterns(cell, &self.patterns, &globs) {
                Err(error) if error.code == ExecCode::TooLarge => {
                    let verdict = (0.0, false);
                    return Ok(vec![GraderScore::new(
                        "files",
                        self.counts,
                        verdict,
                        error.message,
                    )]);
                }
                unmatched => unmatched?,
            },
        };
        Ok(vec![self.score(&missing)])
    }
}

/// What was expected and is not there.
#[derive(Debug, Default)]
struct MissingFiles {
    expected: usize,
    missing: Vec<String>,
}

impl FilesGrader {
    /// Each pattern alone.
    fn globs(&self) -> Result<Vec<Globs>, GradeError> {
        let parse = |(index, pattern): (usize, &String)| {
            Globs::parse(&[pattern]).map_err(|bad| GradeError::Pattern {
                key: "patterns",
                index,
                reason: bad.reason,
            })
        };
        self.patterns.iter().enumerate().map(parse).collect()
    }

    fn score(&self, found: &MissingFiles) -> GraderScore {
        let MissingFiles { expected, missing } = found;
        let present = expected.saturating_sub(missing.len());
        let counted = CountedTests { passed: present as u64, failed: missing.len() as u64 };
        let explanation = match expected {
            0 => "no files are expected".to_owned(),
            expected => format!("{present} of {expected} are as expected"),
        };
        let verdict = (counted.fraction(), missing.is_empty() && *expected > 0);
        let shown: Vec<&String> = missing.iter().take(PATHS_MAX).collect();
        GraderScore::new("files", self.counts, verdict, explanation)
            .with("files_matched", present)
            .with("files_total", *expected)
            .with("missing", json!(shown))
    }
}

/// The files of the hidden `directory` that match one of `globs`, if there are any, and are not the same in the sandbox.
fn different_files(
    cell: &dyn CellExecutor,
    hidden: &Path,
    directory: &Path,
    globs: &[Globs],
) -> Result<MissingFiles, GradeError> {
    let sources = HiddenFiles::open(hidden)?;
    let mut found = MissingFiles::default();
    for path in sources.below(directory)?.unwrap_or_default() {
        if !globs.is_empty() && !globs.iter().any(|glob| glob.matches(&path)) {
            continue;
        }
        found.expected += 1;
        let expected = sources.read(&directory.join(&path))?;
        let present = path.to_str().map(|path| cell.get(path));
        let is_same = match present {
            Some(Ok(content)) => content == expected.content,
            Some(Err(error)) if !is_about_file(error.code) => return Err(error.into()),
            Some(Err(_)) | None => false,
        };
        if !is_same {
            found.missing.push(path.display().to_string());
        }
    }
    Ok(found)
}

/// The `patterns` that no file of the sandbox matches.
fn unmatched_patterns(
    cell: &dyn CellExecutor,
    patterns: &[String],
    globs: &[Globs],
) -> Result<MissingFiles, ExecError> {
    let is_matching = |path: &str| globs.iter().any(|glob| glob.matches(Path::new(path)));
    let files: BTreeSet<_> =
        find_files(cell, ".", &|_| true, &is_matching)?.into_iter().map(|file| file.path).collect();
    let is_unmatched = |glob: &Globs| !files.iter().any(|path| glob.matches(Path::new(path)));
    let unmatched = patterns.iter().zip(globs).filter(|(_, glob)| is_unmatched(glob));
    let missing = unmatched.map(|(pattern, _)| pattern.clone()).collect();
    Ok(MissingFiles { expected: patterns.len(), missing })
}
