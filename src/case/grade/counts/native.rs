//! The output of Cargo and of Go.

use crate::case::grade::counted::{CountedTests, count};

const GO_PASS: &str = "--- PASS: ";
const GO_FAIL: &str = "--- FAIL: ";

/// All lines `test result: ok. 3 passed; 1 failed; …`, one of each test binary.
pub(super) fn cargo(lines: &[&str]) -> Option<CountedTests> {
    let mut results = lines.iter().filter_map(|line| cargo_result(line.trim())).peekable();
    results.peek()?;
    Some(results.sum())
}

fn cargo_result(line: &str) -> Option<CountedTests> {
    let (verdict, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    if !matches!(verdict, "ok" | "FAILED") {
        return None;
    }
    let of = |word: &str| {
        let mut items = counts.split("; ").filter_map(|item| item.split_once(' '));
        count(items.find(|(_, found)| *found == word)?.0)
    };
    Some(CountedTests { passed: of("passed")?, failed: of("failed")? })
}

/// The lines `--- PASS: TestA (0.00s)`, of subtests too.
pub(super) fn go(lines: &[&str]) -> Option<CountedTests> {
    let ends_with = |mark: &str| lines.iter().filter(|line| is_go_end(line, mark)).count() as u64;
    let counted = CountedTests { passed: ends_with(GO_PASS), failed: ends_with(GO_FAIL) };
    (counted.total() > 0).then_some(counted)
}

/// Whether the line ends a test. What a test printed last stands before the mark if it had no line end.
fn is_go_end(line: &str, mark: &str) -> bool {
    let line = line.trim();
    if line.starts_with(mark) {
        return true;
    }
    let Some((_, end)) = line.rsplit_once(mark) else { return false };
    let time = end.split_once(" (").and_then(|(_, time)| time.strip_suffix("s)"));
    time.is_some_and(|time| time.parse::<f64>().is_ok())
}
