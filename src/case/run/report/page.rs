//! `report.html`: one file without scripts or references, in which all text from outside is escaped.

use std::fmt::Write;

use super::log_text::log_text;
use super::matrix::{PassMatrix, TrialTally};
use super::pass_at::{pass_at, shown_k};
use super::row::ReportRow;
use crate::case::run::plan::PlannedCell;
use crate::case::run::record::ScoreEntry;
use crate::case::run::result::CellResult;
use crate::case::run::store::{CaseRunError, CellFile, LockedRun};
use crate::case::run::summary::RunSummary;
use crate::evaluation::service::junit::escaped;

const STYLE: &str = include_str!("style.css");
/// The shown end of an output, bytes.
const LOG_BYTES_MAX: u64 = 16 << 10;
/// Bytes of the part with the Cells. Those that come later are counted only.
const CELLS_BYTES_MAX: usize = 24 << 20;
/// Entries of a table.
const TABLE_ENTRIES_MAX: usize = 5000;
/// Scores of a Cell.
const SCORES_MAX: usize = 100;
/// The shown start of a name, bytes.
const NAME_BYTES_MAX: usize = 200;
/// The shown start of an explanation, bytes.
const TEXT_BYTES_MAX: usize = 4000;

/// The page of a run.
pub(super) fn html(
    run: &LockedRun,
    summary: &RunSummary,
    rows: &[ReportRow],
) -> Result<String, CaseRunError> {
    let matrix = PassMatrix::of(rows);
    let mut page = head(run, summary);
    page.push_str(&matrix_section(&matrix));
    page.push_str(&pass_at_section(&matrix));
    page.push_str(&cells_section(run, rows)?);
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

/// The start of the page: what was run, and the numbers.
fn head(run: &LockedRun, summary: &RunSummary) -> String {
    let manifest = run.manifest();
    let (case, id) = (escaped(&manifest.case), escaped(manifest.run_id.as_str()));
    let created = escaped(&manifest.created_at);
    let numbers = [
        ("passed", summary.passed),
        ("not passed", summary.not_passed),
        ("failed", summary.cells.failed),
        ("skipped", summary.cells.skipped),
        ("pending", summary.cells.pending),
    ];
    let items: String = numbers
        .iter()
        .map(|(word, count)| format!("<li><b class=\"{}\">{count}</b>{word}</li>", class(word)))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{case}: {id}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{case}</h1>\n<p class=\"quiet\">Run <code>{id}</code>, made {created}</p>\n\
         <ul class=\"numbers\">{items}</ul>\n"
    )
}

/// Harnesses by models: how many of the graded trials passed.
fn matrix_section(matrix: &PassMatrix<'_>) -> String {
    let mut html = String::from("<h2>Passed trials</h2>\n");
    if matrix.harnesses.len().saturating_mul(matrix.models.len()) > TABLE_ENTRIES_MAX {
        html.push_str("<p class=\"quiet\">The matrix is too large to be shown.</p>\n");
        return html;
    }
    html.push_str("<div class=\"scroll\"><table>\n<tr><th>harness</th>");
    html.extend(matrix.models.iter().map(|model| format!("<th>{}</th>", name(model))));
    html.push_str("</tr>\n");
    for harness in &matrix.harnesses {
        let cell = |model: &&str| matrix_cell(matrix.tally(harness, model));
        let cells: String = matrix.models.iter().map(cell).collect();
        // Writing to a String does not fail.
        let _ = writeln!(html, "<tr><th>{}</th>{cells}</tr>", name(harness));
    }
    html.push_str("</table></div>\n");
    html
}

fn matrix_cell(tally: Option<TrialTally>) -> String {
    let Some(tally) = tally else { return "<td></td>".to_owned() };
    let class = match (tally.passed, tally.graded) {
        (_, 0) => "pending",
        (passed, graded) if passed == graded => "passed",
        (0, _) => "not-passed",
        _ => "mixed",
    };
    let rest = match tally.rest() {
        rest if rest.is_empty() => rest,
        rest => format!("<small>{rest}</small>"),
    };
    format!("<td><b class=\"{class}\">{}/{}</b>{rest}</td>", tally.passed, tally.graded)
}

/// pass@k of each harness with each model.
fn pass_at_section(matrix: &PassMatrix<'_>) -> String {
    let columns = shown_k(matrix.graded_max());
    let mut html = String::from("<h2>pass@k</h2>\n");
    if columns.is_empty() {
        html.push_str("<p class=\"quiet\">No trial is graded.</p>\n");
        return html;
    }
    html.push_str(
        "<p class=\"quiet\">How likely it is that at least one of k trials passes: the unbiased estimate \
         1 − C(n−c, k) / C(n, k) from n graded trials of which c passed.</p>\n\
         <div class=\"scroll\"><table>\n<tr><th>harness</th><th>model</th><th>n</th><th>c</th>",
    );
    html.extend(columns.iter().map(|k| format!("<th>k = {k}</th>")));
    html.push_str("</tr>\n");
    for (harness, model) in matrix.pairs.iter().take(TABLE_ENTRIES_MAX) {
        let TrialTally { graded, passed, .. } = matrix.tally(harness, model).unwrap_or_default();
        let estimate = |k: &u32| {
            let text = pass_at(graded, passed, *k).map(|value| format!("{value:.4}"));
            format!("<td class=\"number\">{}</td>", text.unwrap_or_default())
        };
        let estimates: String = columns.iter().map(estimate).collect();
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{graded}</td>\
             <td class=\"number\">{passed}</td>{estimates}</tr>",
            name(harness),
            name(model),
        );
    }
    html.push_str("</table></div>\n");
    html
}

/// Each Cell with its scores and the end of its output.
fn cells_section(run: &LockedRun, rows: &[ReportRow]) -> Result<String, CaseRunError> {
    let mut html = String::from("<h2>Cells</h2>\n");
    let mut left = rows.len();
    for (cell, row) in run.manifest().cells.iter().zip(rows) {
        if html.len() > CELLS_BYTES_MAX {
            let _ = writeln!(html, "<p class=\"quiet\">{left} more Cells are not shown.</p>");
            break;
        }
        html.push_str(&cell_block(run, cell, row)?);
        left -= 1;
    }
    Ok(html)
}

fn cell_block(
    run: &LockedRun,
    cell: &PlannedCell,
    row: &ReportRow,
) -> Result<String, CaseRunError> {
    let (word, id) = (row.verdict(), escaped(&row.id));
    let score = row.score_text();
    let seconds = format!("{}.{} s", row.wall_ms / 1000, row.wall_ms % 1000 / 100);
    let result = run.result(cell)?;
    let inside = [facts(&result), scores(&result.end.scores), log(run, cell)].concat();
    Ok(format!(
        "<details><summary><span class=\"badge {}\">{word}</span> <code>{id}</code> \
         <span class=\"quiet\">{score} {seconds}</span></summary><div>{inside}</div></details>\n",
        class(word),
    ))
}

/// What is known of a Cell besides its scores.
fn facts(result: &CellResult) -> String {
    let end = &result.end;
    let mut html = format!("<p>Attempt {}.", result.attempt);
    if let Some(agent) = &end.agent {
        let code = agent.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
        let _ = write!(html, " The agent: {}{code}.", text(&agent.outcome));
    }
    if let Some(executor) = &end.executor {
        let _ = write!(html, " Executor: {}.", text(&executor.kind));
    }
    html.push_str("</p>");
    if let Some(reason) = &end.skipped_reason {
        let _ = write!(html, "<p>Skipped: {}</p>", text(reason));
    }
    if let Some(fault) = &end.error {
        let (code, message) = (text(&fault.code), text(&fault.message));
        let _ = write!(html, "<p class=\"failed\"><code>{code}</code> {message}</p>");
        if let Some(tail) = &fault.tail {
            let _ = write!(html, "<pre>{}</pre>", text(&log_text(tail.as_bytes())));
        }
    }
    html
}

fn scores(scores: &[ScoreEntry]) -> String {
    if scores.is_empty() {
        return String::new();
    }
    let row = |score: &ScoreEntry| {
        let word = match (score.skipped, score.passed) {
            (true, _) | (_, None) => "skipped",
            (_, Some(true)) => "passed",
            (_, Some(false)) => "not passed",
        };
        let value = score.value.map_or_else(String::new, |value| format!("{value:.4}"));
        let weight = if score.gate { "gate".to_owned() } else { score.weight.to_string() };
        format!(
            "<tr><td>{}</td><td class=\"{}\">{word}</td><td class=\"number\">{value}</td>\
             <td class=\"number\">{weight}</td><td>{}</td></tr>\n",
            name(&score.grader),
            class(word),
            text(&score.explanation),
        )
    };
    let rows: String = scores.iter().take(SCORES_MAX).map(row).collect();
    format!(
        "<div class=\"scroll\"><table>\n<tr><th>grader</th><th></th><th>value</th><th>weight</th>\
         <th></th></tr>\n{rows}</table></div>"
    )
}

/// The end of the agent's output.
fn log(run: &LockedRun, cell: &PlannedCell) -> String {
    match run.tail(cell, CellFile::Output, LOG_BYTES_MAX) {
        Some((tail, bytes)) if bytes > 0 => {
            let shown = tail.len();
            let text = escaped(&log_text(&tail));
            format!("<h3>output.txt, the last {shown} of {bytes} bytes</h3><pre>{text}</pre>")
        }
        _ => String::new(),
    }
}

/// The class of a word.
fn class(word: &str) -> String {
    word.replace(' ', "-")
}

/// The start of a name.
fn name(text: &str) -> String {
    start(text, NAME_BYTES_MAX)
}

/// The start of a text.
fn text(text: &str) -> String {
    start(text, TEXT_BYTES_MAX)
}

fn start(text: &str, bytes_max: usize) -> String {
    let cut = text.floor_char_boundary(bytes_max);
    let dots = if cut < text.len() { "…" } else { "" };
    format!("{}{dots}", escaped(text.get(..cut).unwrap_or_default()))
}
