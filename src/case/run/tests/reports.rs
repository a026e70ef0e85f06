//! The reports, made from the results alone.

use std::fs;

use super::fixtures::{cells, create, failed, graded, result, run, scripted};
use crate::case::run::{CellEnd, CellFile, CellResult, CellStatus, LockedRun, write_reports};

const HOSTILE: &str = "<script>alert(1)</script>&\"'\u{1b}[31m\u{0}<!--]]>";

fn hostile_run(store: &std::path::Path) -> LockedRun {
    let mut planned = cells(&["nop", "mine"], 3);
    for cell in planned.iter_mut().filter(|cell| cell.harness == "mine") {
        cell.model = "m<script>".to_owned();
    }
    let made = create(store, "r", planned);
    run(
        &made,
        1,
        &scripted(|cell, files, _| match (cell.harness.as_str(), cell.trial) {
            ("nop", _) => graded(files, "nothing done", false),
            (_, 1) => graded(files, "fine", true),
            (_, 2) => graded(files, HOSTILE, false),
            _ => failed("setup.failed"),
        }),
    )
    .unwrap();
    made
}

fn read(run: &LockedRun, name: &str) -> String {
    fs::read_to_string(run.path().join(name)).unwrap()
}

#[test]
fn results_are_a_line_each_in_the_order_of_the_run() {
    let store = tempfile::tempdir().unwrap();
    let made = hostile_run(store.path());
    let summary = write_reports(&made).unwrap();
    assert_eq!((summary.cells.done, summary.cells.failed), (5, 1));
    assert_eq!((summary.passed, summary.not_passed, summary.counted_not_passed), (1, 4, 1));
    let text = read(&made, "results.jsonl");
    let lines: Vec<CellResult> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let results: Vec<CellResult> = (0..6).map(|number| result(&made, number)).collect();
    assert_eq!(lines, results);
}

#[test]
fn reports_are_the_same_again_and_do_not_touch_the_results() {
    let store = tempfile::tempdir().unwrap();
    let made = hostile_run(store.path());
    write_reports(&made).unwrap();
    let before = super::fixtures::files_below(made.path());
    for name in ["results.jsonl", "junit.xml", "report.html"] {
        fs::remove_file(made.path().join(name)).unwrap();
    }
    fs::write(made.path().join(".report.html.new"), "half").unwrap();
    write_reports(&made).unwrap();
    assert_eq!(super::fixtures::files_below(made.path()), before);
}

#[test]
fn the_page_is_one_file_without_scripts_in_which_all_text_is_escaped() {
    let store = tempfile::tempdir().unwrap();
    let made = hostile_run(store.path());
    write_reports(&made).unwrap();
    let page = read(&made, "report.html");
    for absent in
        ["<script", "javascript:", "<!--", "src=", "href=", "url(", "@import", "\u{1b}", "\u{0}"]
    {
        assert!(!page.contains(absent), "{absent:?}");
    }
    for present in [
        "<!DOCTYPE html>",
        "default-src 'none'",
        "&lt;script&gt;alert(1)&lt;/script&gt;&amp;",
        "<th>m&lt;script&gt;</th>",
        "<b class=\"mixed\">1/2</b><small>1 failed</small>",
        "<b class=\"not-passed\">0/3</b>",
        "<td class=\"number\">0.5000</td>",
        "<code>setup.failed</code> it broke",
        "last words",
        "c__mine__m__t2",
    ] {
        assert!(page.contains(present), "{present:?}");
    }
    for name in
        ["html", "head", "body", "table", "details", "summary", "pre", "div", "p", "ul", "style"]
    {
        let count = |tag: &str| page.matches(tag).count();
        let opened = count(&format!("<{name}>")) + count(&format!("<{name} "));
        assert_eq!(opened, count(&format!("</{name}>")), "{name}");
    }
}

#[test]
fn junit_has_a_case_for_each_cell_and_holds_nothing_against_nop() {
    let store = tempfile::tempdir().unwrap();
    let made = hostile_run(store.path());
    write_reports(&made).unwrap();
    let xml = read(&made, "junit.xml");
    assert!(xml.contains("tests=\"6\" failures=\"1\" errors=\"1\" skipped=\"3\""), "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), 6);
    assert!(
        xml.contains("<error type=\"setup.failed\" message=\"setup.failed: it broke\"/>"),
        "{xml}"
    );
    assert!(xml.contains("<failure message=\"score 0.5000 tests: &lt;script&gt;"), "{xml}");
    assert!(!xml.contains("<script") && !xml.contains('\u{0}'), "{xml}");
}

#[test]
fn a_page_of_many_cells_with_long_logs_is_bounded() {
    let store = tempfile::tempdir().unwrap();
    let made = create(store.path(), "r", cells(&["mine"], 400));
    // Each character takes six bytes on the page.
    let log = "\"".repeat(20_000);
    run(
        &made,
        4,
        &scripted(|_, files, _| {
            files.write(CellFile::Output, log.as_bytes()).unwrap();
            CellEnd { overall_passed: Some(true), ..CellEnd::of(CellStatus::Done) }
        }),
    )
    .unwrap();
    write_reports(&made).unwrap();
    let page = read(&made, "report.html");
    assert!(page.len() < 26 << 20, "{}", page.len());
    assert!(
        page.contains("the last 16384 of 20000 bytes")
            && page.contains(" more Cells are not shown.")
    );
    assert_eq!(read(&made, "results.jsonl").lines().count(), 400);
}
