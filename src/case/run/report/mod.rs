//! `results.jsonl`, `junit.xml` and `report.html`, made from the results of the Cells alone.

mod junit;
mod log_text;
mod matrix;
mod page;
mod pass_at;
mod row;

use super::result::CellResult;
use super::store::{CaseRunError, LockedRun};
use super::summary::RunSummary;
use row::ReportRow;

const RESULTS: &str = "results.jsonl";
const JUNIT: &str = "junit.xml";
const PAGE: &str = "report.html";

/// Writes the reports of a run; returns what it has come to. The results themselves are only read, one at a time.
///
/// # Errors
/// A result cannot be read, or a report cannot be written.
pub fn write_reports(run: &LockedRun) -> Result<RunSummary, CaseRunError> {
    let mut summary = RunSummary::default();
    let mut rows = Vec::new();
    run.replace(RESULTS, |out| {
        for cell in &run.manifest().cells {
            let result = run.result(cell)?;
            let line = line_of(&result);
            out.write_all(&line).map_err(|error| run.write_error(RESULTS, &error))?;
            summary.add(&result);
            rows.push(ReportRow::of(&result));
        }
        Ok(())
    })?;
    let xml = junit::xml(run.manifest(), &rows);
    run.replace(JUNIT, |out| {
        out.write_all(xml.as_bytes()).map_err(|error| run.write_error(JUNIT, &error))
    })?;
    let page = page::html(run, &summary, &rows)?;
    run.replace(PAGE, |out| {
        out.write_all(page.as_bytes()).map_err(|error| run.write_error(PAGE, &error))
    })?;
    Ok(summary)
}

fn line_of(result: &CellResult) -> Vec<u8> {
    // Every result has a JSON form: it was read from one.
    result.to_line().unwrap_or_default()
}
