//! The output of pytest and of unittest.

use crate::case::grade::counted::{CountedTests, count};

/// How a word of a summary counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SummaryWord {
    Passed,
    Failed,
    /// It counts as neither.
    Neither,
}

/// The last summary of either.
pub(super) fn python(lines: &[&str]) -> Option<CountedTests> {
    (0..lines.len()).rev().find_map(|at| {
        let (before, here) = lines.get(..=at)?.split_last().map(|(last, before)| (before, last))?;
        pytest_summary(here).or_else(|| unittest_summary(before, here.trim()))
    })
}

/// `== 1 failed, 2 passed, 1 warning in 0.19s ==`, with or without what stands around the counts.
fn pytest_summary(line: &str) -> Option<CountedTests> {
    let inner = line.trim().trim_matches('=').trim();
    let timed = inner.rsplit_once(" in ").filter(|(_, time)| is_duration(time));
    let list = timed.map_or(inner, |(list, _)| list);
    if list == "no tests ran" {
        return Some(CountedTests::default());
    }
    let (mut counted, mut has_verdict) = (CountedTests::default(), false);
    for item in list.split(", ") {
        let (number, word) = item.split_once(' ')?;
        let number = count(number)?;
        match summary_word(word) {
            Some(SummaryWord::Passed) => counted.passed += number,
            Some(SummaryWord::Failed) => counted.failed += number,
            Some(SummaryWord::Neither) => {}
            // A word of a plugin.
            None if timed.is_some() => {}
            None => return None,
        }
        has_verdict |= matches!(word, "passed" | "failed");
    }
    // Other programs print lines such as `1 error`.
    (timed.is_some() || has_verdict).then_some(counted)
}

fn summary_word(word: &str) -> Option<SummaryWord> {
    Some(match word {
        "passed" | "xpassed" => SummaryWord::Passed,
        "failed" | "error" | "errors" => SummaryWord::Failed,
        // A subtest that fails is among the failed.
        "skipped" | "xfailed" | "deselected" | "warning" | "warnings" | "rerun"
        | "subtests passed" | "subtests skipped" => SummaryWord::Neither,
        _ => return None,
    })
}

/// `0.19s`, `65.32s (0:01:05)` or, of old versions, `0.19 seconds`.
fn is_duration(text: &str) -> bool {
    let number = text.split(['s', ' ']).next().unwrap_or_default();
    let unit = text.strip_prefix(number).unwrap_or_default();
    let has_unit = unit == "s" || unit.starts_with("s (") || unit.starts_with(" second");
    has_unit && number.parse::<f64>().is_ok()
}

/// `Ran 6 tests in 0.002s`, and `FAILED (failures=1, skipped=2)` after it.
fn unittest_summary(before: &[&str], verdict: &str) -> Option<CountedTests> {
    let (word, list) = match verdict.split_once(" (") {
        Some((word, list)) => (word, list.strip_suffix(')')?),
        None => (verdict, ""),
    };
    if !matches!(word, "OK" | "FAILED" | "NO TESTS RAN") {
        return None;
    }
    let ran = before.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty())?;
    let (total, rest) = ran.strip_prefix("Ran ")?.split_once(' ')?;
    let is_ran = rest.starts_with("test in ") || rest.starts_with("tests in ");
    let total = count(total).filter(|_| is_ran)?;
    let (mut failed, mut left_out) = (0, 0);
    for item in list.split(", ").filter(|item| !item.is_empty()) {
        let (name, number) = item.split_once('=')?;
        let number = count(number)?;
        match name {
            "failures" | "errors" | "unexpected successes" => failed += number,
            "skipped" | "expected failures" => left_out += number,
            _ => return None,
        }
    }
    Some(CountedTests::of_total(total, failed, left_out))
}
