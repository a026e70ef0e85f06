//! The pass matrix: harnesses by models.

use std::collections::BTreeMap;

use super::row::ReportRow;
use crate::case::run::record::CellStatus;

/// The trials of one harness with one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TrialTally {
    /// Graded trials.
    pub(super) graded: u32,
    /// Those of them that passed.
    pub(super) passed: u32,
    /// Trials that failed.
    pub(super) failed: u32,
    /// Trials that were skipped.
    pub(super) skipped: u32,
    /// Trials that are still to be run.
    pub(super) pending: u32,
}

/// Trials by harness and model, each in the order in which it first occurs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PassMatrix<'a> {
    pub(super) harnesses: Vec<&'a str>,
    pub(super) models: Vec<&'a str>,
    /// The pairs that the run has, in its order.
    pub(super) pairs: Vec<(&'a str, &'a str)>,
    tallies: BTreeMap<(&'a str, &'a str), TrialTally>,
}

impl<'a> PassMatrix<'a> {
    /// Counts the rows.
    pub(super) fn of(rows: &'a [ReportRow]) -> Self {
        let mut matrix = Self::default();
        for row in rows {
            let pair = (row.harness.as_str(), row.model.as_str());
            if !matrix.tallies.contains_key(&pair) {
                matrix.pairs.push(pair);
            }
            matrix.tallies.entry(pair).or_default().add(row);
        }
        matrix.harnesses = first_seen(matrix.pairs.iter().map(|(harness, _)| *harness));
        matrix.models = first_seen(matrix.pairs.iter().map(|(_, model)| *model));
        matrix
    }

    /// The trials of a harness with a model; none if the run has no such pair.
    pub(super) fn tally(&self, harness: &str, model: &str) -> Option<TrialTally> {
        self.tallies.get(&(harness, model)).copied()
    }

    /// The most graded trials of any pair.
    pub(super) fn graded_max(&self) -> u32 {
        self.tallies.values().map(|tally| tally.graded).max().unwrap_or(0)
    }
}

impl TrialTally {
    fn add(&mut self, row: &ReportRow) {
        match row.status {
            CellStatus::Done => {
                self.graded += 1;
                self.passed += u32::from(row.passed);
            }
            CellStatus::Failed => self.failed += 1,
            CellStatus::Skipped => self.skipped += 1,
            CellStatus::Pending | CellStatus::Running => self.pending += 1,
        }
    }

    /// The trials that are not graded, in words.
    pub(super) fn rest(&self) -> String {
        let parts = [(self.failed, "failed"), (self.skipped, "skipped"), (self.pending, "pending")];
        let words = parts.iter().filter(|(count, _)| *count > 0);
        words.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }
}

/// Each name once.
fn first_seen<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(harness: &str, model: &str, status: CellStatus, passed: bool) -> ReportRow {
        ReportRow {
            id: String::new(),
            harness: harness.to_owned(),
            model: model.to_owned(),
            status,
            passed,
            score: None,
            wall_ms: 0,
            code: None,
            reason: String::new(),
        }
    }

    #[test]
    fn trials_are_counted_by_harness_and_model_in_the_order_of_the_run() {
        let rows = [
            row("z", "m", CellStatus::Done, true),
            row("z", "m", CellStatus::Done, false),
            row("z", "m", CellStatus::Failed, false),
            row("a", "n", CellStatus::Skipped, false),
            row("a", "m", CellStatus::Running, false),
        ];
        let matrix = PassMatrix::of(&rows);
        assert_eq!(
            (matrix.harnesses.clone(), matrix.models.clone()),
            (vec!["z", "a"], vec!["m", "n"])
        );
        let tally = matrix.tally("z", "m").unwrap();
        assert_eq!((tally.graded, tally.passed, tally.rest()), (2, 1, "1 failed".to_owned()));
        assert_eq!(matrix.tally("z", "n"), None);
        assert_eq!(matrix.tally("a", "m").unwrap().rest(), "1 pending");
        assert_eq!(matrix.graded_max(), 2);
    }
}
