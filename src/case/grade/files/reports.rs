//! Reports that tests write.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::walk::{FoundFile, find_files};
use crate::case::cell::{CellExecutor, ExecCode, ExecError};
use crate::case::grade::counted::CountedTests;
use crate::case::grade::grader::GradeError;
use crate::case::grade::junit::{JunitTally, REPORT_BYTES_MAX};
use cofferdam_core::values::glob::Globs;
use cofferdam_core::weakened::{self, Wall};

/// The most bytes of all reports of a grader.
const REPORTS_BYTES_MAX: u64 = 256 << 20;
/// What makes a name a pattern.
const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// The patterns of `junit_xml`, relative to the sandbox.
#[derive(Debug)]
pub struct ReportPatterns {
    texts: Vec<String>,
    globs: Globs,
    /// The directories above all that can match.
    tops: BTreeSet<String>,
}

/// What the reports of a run say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadReports {
    /// The tests of all usable reports.
    pub counted: CountedTests,
    /// The paths of the usable reports.
    pub used: Vec<String>,
    /// The paths of the others, and why they do not count.
    pub unusable: Vec<(String, String)>,
}

impl ReportPatterns {
    /// Parses `patterns`.
    ///
    /// # Errors
    /// The first that is malformed.
    pub fn parse(patterns: &[String]) -> Result<Self, GradeError> {
        let bad = |index, reason| GradeError::Pattern { key: "junit_xml", index, reason };
        // A difference has no such paths, so what it plants there would not be recognised.
        let leaves = |pattern: &String| pattern.split('/').any(|part| part == "..");
        if let Some(index) = patterns.iter().position(leaves) {
            return Err(bad(index, "a part is '..'".to_owned()));
        }
        let plain: Vec<String> = patterns.iter().map(|pattern| without_dots(pattern)).collect();
        let globs = Globs::parse(&plain).map_err(|fault| bad(fault.index, fault.reason))?;
        let tops = plain.iter().map(|pattern| directory_above(pattern)).collect();
        Ok(Self { texts: plain, globs, tops })
    }

    /// The patterns, without parts that mean nothing.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Whether a file at `path` is a report.
    pub fn matches(&self, path: &Path) -> bool {
        self.globs.matches(path)
    }

    /// The reports in the sandbox of `cell`, sorted. None of them is a link or lies behind one.
    fn find(&self, cell: &dyn CellExecutor) -> Result<BTreeSet<FoundFile>, ExecError> {
        let mut found = BTreeSet::new();
        for top in &self.tops {
            let is_report = |path: &str| self.matches(Path::new(path));
            found.extend(find_files(cell, top, &|_| true, &is_report)?);
        }
        Ok(found)
    }
}

/// Reads the reports that match `patterns` once the tests have ended.
///
/// # Errors
/// [`ExecCode::TooLarge`] if there are too many files, and whatever else the executor fails with.
pub fn read_reports(
    cell: &dyn CellExecutor,
    patterns: &ReportPatterns,
) -> Result<ReadReports, ExecError> {
    let mut tally = JunitTally::default();
    let mut reports = ReadReports::default();
    let mut left = REPORTS_BYTES_MAX;
    for FoundFile { path, bytes } in patterns.find(cell)? {
        let is_short = bytes <= REPORT_BYTES_MAX as u64 && bytes <= left;
        left = left.saturating_sub(bytes);
        match read_report(cell, &path, is_short, &mut tally)? {
            Ok(()) => reports.used.push(path),
            Err(reason) => reports.unusable.push((path, reason)),
        }
    }
    reports.counted = tally.counted();
    Ok(reports)
}

/// Adds the report at `path`, or says why it does not count.
fn read_report(
    cell: &dyn CellExecutor,
    path: &str,
    is_short: bool,
    tally: &mut JunitTally,
) -> Result<Result<(), String>, ExecError> {
    if !is_short {
        return Ok(Err("it is too long".to_owned()));
    }
    match cell.get(path) {
        Ok(report) => Ok(tally.add(&report).map_err(|unusable| unusable.to_string())),
        Err(error) if is_about_file(error.code) => Ok(Err(error.message)),
        Err(error) => Err(error),
    }
}

/// Whether an error of reading a file is about that file, and not about the Cell.
pub fn is_about_file(code: ExecCode) -> bool {
    use ExecCode::{IsDirectory, NotFound, PermissionDenied, TooLarge, UnsafePath};

    matches!(code, IsDirectory | NotFound | PermissionDenied | TooLarge | UnsafePath)
}

/// Removes the reports in the sandbox of `cell`, so that only those count that the tests write afterwards.
///
/// # Errors
/// As [`read_reports`].
pub fn remove_reports(cell: &dyn CellExecutor, patterns: &ReportPatterns) -> Result<(), ExecError> {
    if weakened::lacks(Wall::Restored) {
        return Ok(());
    }
    for report in patterns.find(cell)? {
        cell.remove(&report.path)?;
    }
    Ok(())
}

/// The pattern without parts that are `.` or empty. One that is absolute stays so, and matches nothing.
fn without_dots(pattern: &str) -> String {
    if pattern.starts_with('/') {
        return pattern.to_owned();
    }
    let parts = pattern.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}

/// The directory above all that `pattern` can match.
fn directory_above(pattern: &str) -> String {
    let parts: Vec<&str> = pattern.split('/').collect();
    let (_, above) = parts.split_last().unwrap_or((&"", &[]));
    let plain = above.iter().take_while(|part| !part.contains(WILDCARDS));
    let directory: PathBuf = plain.collect();
    match directory.to_str() {
        None | Some("") => ".".to_owned(),
        Some(directory) => directory.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_relative_to_the_sandbox_and_searched_below_its_plain_part() {
        for (pattern, top, matching, other) in [
            ("report.xml", ".", "report.xml", "a/report.xml"),
            ("./out//report.xml", "out", "out/report.xml", "report.xml"),
            ("build/*/TEST-*.xml", "build", "build/a/TEST-b.xml", "build/TEST-b.xml"),
            ("**/TEST-*.xml", ".", "a/b/TEST-c.xml", "a/b/c.xml"),
            ("{a,b}/r.xml", ".", "b/r.xml", "c/r.xml"),
            ("/tmp/r.xml", "tmp", "/tmp/r.xml", "tmp/r.xml"),
        ] {
            let patterns = ReportPatterns::parse(&[pattern.to_owned()]).unwrap();
            assert_eq!(patterns.tops.iter().next().map(String::as_str), Some(top), "{pattern}");
            assert!(patterns.matches(Path::new(matching)), "{pattern}");
            assert!(!patterns.matches(Path::new(other)), "{pattern}");
        }
    }

    #[test]
    fn a_malformed_pattern_is_named_by_its_index() {
        for malformed in ["[z", "", "a/../b.xml"] {
            let patterns = ["a.xml", malformed].map(str::to_owned);
            let error = ReportPatterns::parse(&patterns).unwrap_err();
            let is_named = matches!(error, GradeError::Pattern { key: "junit_xml", index: 1, .. });
            assert!(is_named, "{error}");
        }
    }
}
