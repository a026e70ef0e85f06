//! How many tests passed, as the output of their runner says.
//!
//! Tested code can print the same words as its runner. Reports and ids are for Cases in which that matters.

mod native;
mod plain;
mod protocols;
mod python;

use super::counted::CountedTests;

/// Reads the lines of one stream.
type LinesReader = fn(&[&str]) -> Option<CountedTests>;

/// The counts that a test runner printed, by the first that matches: Cargo's results summed, Go's lines, the last
/// summary of pytest or unittest, that of TAP, the last line of Surefire.
///
/// `None` if there is no summary.
pub fn console_counts(stdout: &str, stderr: &str) -> Option<CountedTests> {
    let plain = [stdout, stderr].map(plain::without_escapes);
    let streams = plain.each_ref().map(|text| text.split(['\n', '\r']).collect::<Vec<_>>());
    let of = |read: LinesReader| streams.iter().filter_map(move |lines| read(lines));
    let summed = |read: LinesReader| {
        let mut found = of(read).peekable();
        found.peek().is_some().then(|| found.sum())
    };
    // The order of what two streams print is unknown, so neither summary can be the last: the worse one counts.
    let worst = |read: LinesReader| of(read).reduce(worse);
    summed(native::cargo)
        .or_else(|| summed(native::go))
        .or_else(|| worst(python::python))
        .or_else(|| worst(protocols::tap))
        .or_else(|| worst(protocols::surefire))
}

/// The one of which less passed.
fn worse(first: CountedTests, second: CountedTests) -> CountedTests {
    if second.fraction() < first.fraction() { second } else { first }
}

#[cfg(test)]
mod tests;
