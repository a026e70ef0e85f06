//! The graders of a Case, and what of the agent's work they do not get.

use std::fs;
use std::path::Path;

use crate::case::cell::DifferenceRules;
use crate::case::file::{Case, CaseOracle};
use crate::case::grade::{GradeError, Grader, built_in_grader, python_grader, restored_patterns};
use crate::evaluation::task::solution::changed_paths;

/// The longest patch of an oracle that is read for its paths, bytes.
const PATCH_BYTES_MAX: u64 = 64 << 20;

/// The graders of `case`, in their order.
pub fn graders_of(case: &Case) -> Vec<Box<dyn Grader>> {
    let made = |written| built_in_grader(written).or_else(|| python_grader(written));
    case.graders.iter().filter_map(made).collect()
}

/// What graders do not get: protected files, reports of tests and the places of hidden files. What the oracle's patch in
/// `directory` changes is not protected.
///
/// # Errors
/// A pattern of reports is malformed.
pub fn difference_rules(case: &Case, directory: &Path) -> Result<DifferenceRules, GradeError> {
    let kinds = case.graders.iter().filter_map(|grader| grader.kind.as_ref());
    let always = kinds.map(restored_patterns).collect::<Result<Vec<_>, _>>()?.concat();
    Ok(DifferenceRules {
        protect: case.protect.clone(),
        unprotect: case.unprotect.clone(),
        solution: solution_paths(case, directory),
        always,
        patch_bytes_max: u64::try_from(case.limits.patch_bytes).unwrap_or(0),
    })
}

fn solution_paths(case: &Case, directory: &Path) -> Vec<String> {
    let Some(CaseOracle::Patch(patch)) = &case.oracle else { return Vec::new() };
    let path = directory.join(patch);
    let is_short = fs::metadata(&path).is_ok_and(|found| found.len() <= PATCH_BYTES_MAX);
    // The oracle says what is wrong with its patch; until then nothing is left unprotected for it.
    let bytes = if is_short { fs::read(&path).unwrap_or_default() } else { Vec::new() };
    changed_paths(&String::from_utf8_lossy(&bytes))
}
