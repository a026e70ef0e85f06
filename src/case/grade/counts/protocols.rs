//! The output of TAP producers and of Maven's Surefire.

use crate::case::grade::counted::{CountedTests, count};

/// What begins the lines of a summary: of TAP, and of Node's own reporter.
const TAP_MARKS: [char; 2] = ['#', 'ℹ'];

/// The last `# pass 3` and `# fail 1`. Tests that Node cancelled have failed.
pub(super) fn tap(lines: &[&str]) -> Option<CountedTests> {
    let last = |word: &str| lines.iter().rev().find_map(|line| tap_count(line.trim(), word));
    let (passed, failed) = (last("pass"), last("fail"));
    passed.or(failed)?;
    let failed = failed.unwrap_or(0) + last("cancelled").unwrap_or(0);
    Some(CountedTests { passed: passed.unwrap_or(0), failed })
}

fn tap_count(line: &str, wanted: &str) -> Option<u64> {
    let mut words = line.strip_prefix(TAP_MARKS)?.split_whitespace();
    let (word, number) = (words.next()?, words.next()?);
    if word == wanted && words.next().is_none() { count(number) } else { None }
}

/// The last line `[INFO] Tests run: 4, Failures: 1, Errors: 0, Skipped: 1`.
pub(super) fn surefire(lines: &[&str]) -> Option<CountedTests> {
    lines.iter().rev().find_map(|line| surefire_line(line.trim()))
}

fn surefire_line(line: &str) -> Option<CountedTests> {
    let line = match line.strip_prefix('[') {
        Some(leveled) => leveled.split_once("] ")?.1,
        None => line,
    };
    line.strip_prefix("Tests run:")?;
    let items = || line.split(',').filter_map(|item| item.split_once(':'));
    let of = |name: &str| match items().find(|(key, _)| key.trim() == name) {
        Some((_, number)) => count(number.trim()),
        None => Some(0),
    };
    let failed = of("Failures")? + of("Errors")?;
    Some(CountedTests::of_total(of("Tests run")?, failed, of("Skipped")?))
}
