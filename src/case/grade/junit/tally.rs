//! The tests of several reports.

use std::collections::BTreeMap;

use super::document::{CaseKey, CaseVerdict, Document};
use super::encoding::decoded;
use super::unusable::UnusableReport;
use crate::case::grade::counted::CountedTests;

/// The longest report, bytes.
pub const REPORT_BYTES_MAX: usize = 64 << 20;
/// The most test cases of all reports.
const CASES_MAX: usize = 1_000_000;

/// The tests of several reports.
///
/// Two test cases with the same `file`, `classname` and `name` are one, which failed if one of them did.
#[derive(Debug, Default)]
pub struct JunitTally {
    cases: BTreeMap<CaseKey, CaseVerdict>,
    /// The counts of suites without test cases.
    of_suites: CountedTests,
}

impl JunitTally {
    /// Adds a whole report: its test cases, and the attributes of suites that have none.
    ///
    /// # Errors
    /// It is no JUnit report, declares a document type or is too large. Nothing of it counts.
    pub fn add(&mut self, report: &[u8]) -> Result<(), UnusableReport> {
        if report.len() > REPORT_BYTES_MAX {
            return Err("it is too long".into());
        }
        let text = decoded(report)?;
        let document = Document::parse(&text, CASES_MAX.saturating_sub(self.cases.len()))?;
        self.of_suites = [self.of_suites, document.of_suites].into_iter().sum();
        for (key, verdict) in document.cases {
            let kept = self.cases.entry(key).or_insert(verdict);
            *kept = verdict.max(*kept);
        }
        Ok(())
    }

    /// The tests that count: skipped ones do not.
    pub fn counted(&self) -> CountedTests {
        let ended =
            |wanted| self.cases.values().filter(|verdict| **verdict == wanted).count() as u64;
        let of_cases =
            CountedTests { passed: ended(CaseVerdict::Passed), failed: ended(CaseVerdict::Failed) };
        [of_cases, self.of_suites].into_iter().sum()
    }
}
