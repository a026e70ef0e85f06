//! A run as JUnit XML: one test suite, one test case for each Cell.

use std::fmt::Write;

use super::row::ReportRow;
use crate::case::run::record::CellStatus;
use crate::case::run::store::RunManifest;
use crate::case::run::summary::is_control;
use crate::evaluation::service::junit::{escaped, seconds};

/// What a Cell is in JUnit's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestOutcome {
    Passed,
    Failure,
    Error,
    Skipped,
}

/// The document. A Cell of `nop` or `oracle` that did not pass is skipped, as it does not count in the exit code.
pub(super) fn xml(manifest: &RunManifest, rows: &[ReportRow]) -> String {
    let count = |wanted| rows.iter().filter(|row| outcome(row) == wanted).count();
    let millis = rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.wall_ms));
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String does not fail.
    let _ = writeln!(
        xml,
        "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" \
         time=\"{}\" timestamp=\"{}\">",
        escaped(&manifest.case),
        rows.len(),
        count(TestOutcome::Failure),
        count(TestOutcome::Error),
        count(TestOutcome::Skipped),
        seconds(millis),
        escaped(&manifest.created_at),
    );
    for row in rows {
        write_row(&mut xml, &manifest.case, row);
    }
    xml + "</testsuite>\n"
}

fn write_row(xml: &mut String, case: &str, row: &ReportRow) {
    let class = escaped(&format!("{case}.{}.{}", row.harness, row.model));
    let (name, time, reason) = (escaped(&row.id), seconds(row.wall_ms), escaped(&row.reason));
    let _ = write!(xml, "  <testcase name=\"{name}\" classname=\"{class}\" time=\"{time}\"");
    let _ = match outcome(row) {
        TestOutcome::Passed => writeln!(xml, "/>"),
        TestOutcome::Failure => {
            let message = format!("score {} {reason}", row.score_text());
            writeln!(xml, "><failure message=\"{}\"/></testcase>", message.trim_end())
        }
        TestOutcome::Error => {
            let code = escaped(row.code.as_deref().unwrap_or_default());
            writeln!(xml, "><error type=\"{code}\" message=\"{reason}\"/></testcase>")
        }
        TestOutcome::Skipped => {
            let message = format!("{}: {reason}", row.verdict());
            let message = message.trim_end_matches([':', ' ']);
            writeln!(xml, "><skipped message=\"{message}\"/></testcase>")
        }
    };
}

fn outcome(row: &ReportRow) -> TestOutcome {
    match row.status {
        CellStatus::Done if row.passed => TestOutcome::Passed,
        CellStatus::Done if is_control(&row.harness) => TestOutcome::Skipped,
        CellStatus::Done => TestOutcome::Failure,
        CellStatus::Failed => TestOutcome::Error,
        CellStatus::Pending | CellStatus::Running | CellStatus::Skipped => TestOutcome::Skipped,
    }
}
