//! The graders of a Case, and what of the agent's work they do not get.

use std::fs;
use std::path::Path;

use crate::case::cell::DifferenceRules;
use crate::case::file::{Case, CaseOracle, GraderKind, InjectedFile};
use crate::case::grade::{Grader, built_in_grader, python_grader};
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
pub fn difference_rules(case: &Case, directory: &Path) -> DifferenceRules {
    let mut always = Vec::new();
    for grader in &case.graders {
        let (reports, injected): (&[String], &[InjectedFile]) = match &grader.kind {
            Some(GraderKind::Tests { counts, .. } | GraderKind::Pytest { counts }) => {
                (&counts.junit_xml, &counts.inject)
            }
            Some(GraderKind::Swebench { inject, .. }) => (&[], inject),
            _ => (&[], &[]),
        };
        always.extend(reports.iter().cloned());
        always.extend(injected.iter().map(|file| literal(&file.destination)));
    }
    DifferenceRules {
        protect: case.protect.clone(),
        unprotect: case.unprotect.clone(),
        solution: solution_paths(case, directory),
        always,
        patch_bytes_max: u64::try_from(case.limits.patch_bytes).unwrap_or(0),
    }
}

/// The pattern that matches `path` alone.
fn literal(path: &Path) -> String {
    globset::escape(&path.to_string_lossy())
}

fn solution_paths(case: &Case, directory: &Path) -> Vec<String> {
    let Some(CaseOracle::Patch(patch)) = &case.oracle else { return Vec::new() };
    let path = directory.join(patch);
    let is_short = fs::metadata(&path).is_ok_and(|found| found.len() <= PATCH_BYTES_MAX);
    // The oracle says what is wrong with its patch; until then nothing is left unprotected for it.
    let bytes = if is_short { fs::read(&path).unwrap_or_default() } else { Vec::new() };
    changed_paths(&String::from_utf8_lossy(&bytes))
}
