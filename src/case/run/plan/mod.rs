//! Which Cells a run has, and how they are named. Pure.

mod names;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::case::file::{CaseMatrix, MatrixEntry};
use names::CellNames;

/// The most Cells of one run.
pub const CELLS_MAX: u64 = 100_000;
/// The most trials of each harness with each model.
pub const TRIALS_MAX: u64 = 10_000;
/// The longest name of a harness or a model, bytes.
const NAME_BYTES_MAX: usize = 4096;

/// A Cell of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// Its id, which is the name of its directory.
    pub id: String,
    /// The id of the Case.
    pub case: String,
    /// The harness.
    pub harness: String,
    /// The model.
    pub model: String,
    /// Which trial it is, from 1.
    pub trial: u64,
}

/// Which part of the matrix is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellFilter {
    /// Only these harnesses; all if empty.
    pub harnesses: Vec<String>,
    /// Only these models; all if empty.
    pub models: Vec<String>,
    /// So many trials instead of the Case's.
    pub trials: Option<u64>,
}

/// Why there is nothing to run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The filter names a harness that the matrix does not have.
    #[error("the matrix has no harness {0:?}")]
    UnknownHarness(String),
    /// The filter names a model that the matrix does not have.
    #[error("the matrix has no model {0:?}")]
    UnknownModel(String),
    /// No entry of the matrix has both.
    #[error("no entry of the matrix has one of these harnesses and one of these models")]
    Empty,
    /// A number of trials out of range.
    #[error("{0} trials; want 1 to {TRIALS_MAX}")]
    Trials(u64),
    /// More Cells than a run may have.
    #[error("{0} Cells; want at most {CELLS_MAX}")]
    TooManyCells(u64),
    /// A name that is too long.
    #[error("the name of a harness or a model has {0} bytes; want at most {NAME_BYTES_MAX}")]
    LongName(usize),
}

/// The Cells of a run: in the order of the matrix, the trials of one entry together.
///
/// # Errors
/// The filter does not fit the matrix, or a limit is exceeded.
pub fn plan_cells(
    case: &str,
    matrix: &CaseMatrix,
    filter: &CellFilter,
) -> Result<Vec<PlannedCell>, PlanError> {
    let entries = wanted(matrix, filter)?;
    let trials = filter.trials.unwrap_or_else(|| u64::try_from(matrix.trials).unwrap_or(0));
    if !(1..=TRIALS_MAX).contains(&trials) {
        return Err(PlanError::Trials(trials));
    }
    let count = u64::try_from(entries.len()).unwrap_or(u64::MAX).saturating_mul(trials);
    if count > CELLS_MAX {
        return Err(PlanError::TooManyCells(count));
    }
    let mut names = CellNames::default();
    let mut cells = Vec::new();
    for MatrixEntry { harness, model } in entries {
        let stem = names.stem(case, harness, model);
        cells.extend((1..=trials).map(|trial| PlannedCell {
            id: stem.of_trial(trial),
            case: case.to_owned(),
            harness: harness.clone(),
            model: model.clone(),
            trial,
        }));
    }
    Ok(cells)
}

/// The entries of the matrix that the filter wants.
fn wanted<'m>(
    matrix: &'m CaseMatrix,
    filter: &CellFilter,
) -> Result<Vec<&'m MatrixEntry>, PlanError> {
    let harnesses: BTreeSet<&str> =
        matrix.entries.iter().map(|entry| entry.harness.as_str()).collect();
    let models: BTreeSet<&str> = matrix.entries.iter().map(|entry| entry.model.as_str()).collect();
    let long = harnesses.iter().chain(&models).map(|name| name.len()).max();
    if let Some(bytes) = long.filter(|bytes| *bytes > NAME_BYTES_MAX) {
        return Err(PlanError::LongName(bytes));
    }
    if let Some(name) = filter.harnesses.iter().find(|name| !harnesses.contains(name.as_str())) {
        return Err(PlanError::UnknownHarness(name.clone()));
    }
    if let Some(name) = filter.models.iter().find(|name| !models.contains(name.as_str())) {
        return Err(PlanError::UnknownModel(name.clone()));
    }
    let fits = |names: &[String], name: &String| names.is_empty() || names.contains(name);
    let entries: Vec<&MatrixEntry> = matrix
        .entries
        .iter()
        .filter(|entry| fits(&filter.harnesses, &entry.harness))
        .filter(|entry| fits(&filter.models, &entry.model))
        .collect();
    if entries.is_empty() { Err(PlanError::Empty) } else { Ok(entries) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(entries: &[(&str, &str)], trials: i64) -> CaseMatrix {
        let entry = |(harness, model): &(&str, &str)| MatrixEntry {
            harness: (*harness).to_owned(),
            model: (*model).to_owned(),
        };
        CaseMatrix { entries: entries.iter().map(entry).collect(), trials }
    }

    fn filter(harnesses: &[&str], models: &[&str], trials: Option<u64>) -> CellFilter {
        let words = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        CellFilter { harnesses: words(harnesses), models: words(models), trials }
    }

    fn ids(matrix: &CaseMatrix, filter: &CellFilter) -> Vec<String> {
        let cells = plan_cells("c", matrix, filter).unwrap();
        cells.into_iter().map(|cell| cell.id).collect()
    }

    #[test]
    fn cells_are_in_the_order_of_the_matrix_with_the_trials_of_an_entry_together() {
        let matrix = matrix(&[("nop", "m"), ("mine", "org/m 1")], 2);
        let wanted = ["c__nop__m__t1", "c__nop__m__t2"];
        let named = ["c__mine__org-m_1__t1", "c__mine__org-m_1__t2"];
        assert_eq!(ids(&matrix, &CellFilter::default()), [wanted, named].concat());
    }

    #[test]
    fn a_filter_keeps_what_it_names() {
        let matrix = matrix(&[("a", "m"), ("a", "n"), ("b", "n")], 1);
        for (filter, wanted) in [
            (filter(&["a"], &[], None), vec!["c__a__m__t1", "c__a__n__t1"]),
            (filter(&[], &["n"], None), vec!["c__a__n__t1", "c__b__n__t1"]),
            (filter(&["b", "b"], &["n"], Some(2)), vec!["c__b__n__t1", "c__b__n__t2"]),
        ] {
            assert_eq!(ids(&matrix, &filter), wanted, "{filter:?}");
        }
    }

    #[test]
    fn a_filter_that_does_not_fit_is_an_error() {
        let matrix = matrix(&[("a", "m"), ("b", "n")], 1);
        for (filter, wanted) in [
            (filter(&["x"], &[], None), PlanError::UnknownHarness("x".to_owned())),
            (filter(&["a"], &["x"], None), PlanError::UnknownModel("x".to_owned())),
            (filter(&["a"], &["n"], None), PlanError::Empty),
            (filter(&[], &[], Some(0)), PlanError::Trials(0)),
            (filter(&[], &[], Some(10_001)), PlanError::Trials(10_001)),
        ] {
            assert_eq!(plan_cells("c", &matrix, &filter), Err(wanted), "{filter:?}");
        }
    }

    #[test]
    fn a_run_has_a_limited_number_of_cells_and_short_names() {
        let many: Vec<String> = (0..11).map(|model| format!("m{model}")).collect();
        let entries: Vec<(&str, &str)> = many.iter().map(|model| ("a", model.as_str())).collect();
        let planned = plan_cells("c", &matrix(&entries, 10_000), &CellFilter::default());
        assert_eq!(planned, Err(PlanError::TooManyCells(110_000)));
        let long = "x".repeat(4097);
        let planned = plan_cells("c", &matrix(&[("a", &long)], 1), &CellFilter::default());
        assert_eq!(planned, Err(PlanError::LongName(4097)));
    }

    #[test]
    fn hostile_names_become_safe_directories_and_none_is_there_twice() {
        let long = "x".repeat(400);
        let wide = "é".repeat(200);
        let models = [
            "a/b",
            "a-b",
            "a b",
            "a_b",
            "../../etc",
            "..",
            ".hidden",
            "a\nb",
            "a\u{1b}[0m",
            "a\0b",
            &long,
            &wide,
            "m__t1",
            "m",
        ];
        let mut entries: Vec<(&str, &str)> = models.iter().map(|model| ("h", *model)).collect();
        entries.extend([("h__m", "m"), ("h", "m__m"), ("x/../..", "m")]);
        let found = ids(&matrix(&entries, 11), &CellFilter::default());
        let unique: BTreeSet<&String> = found.iter().collect();
        assert_eq!(unique.len(), entries.len() * 11);
        for id in &found {
            let is_plain = !id.contains('/') && !id.chars().any(|c| c.is_control() || c == ' ');
            assert!(is_plain && !id.starts_with('.') && id.len() <= 255, "{id:?}");
            assert!(id.starts_with("c__h") || id.starts_with("c__x"), "{id:?}");
        }
        assert!(found.contains(&"c__h__..-..-etc__t1".to_owned()));
        assert_eq!(found, ids(&matrix(&entries, 11), &CellFilter::default()));
    }
}
