//! One JUnit report.

use super::unusable::UnusableReport;
use crate::case::grade::counted::{CountedTests, count};
use crate::evaluation::pipeline::xml::{Tag, Tags, attribute};

/// How deep its elements lie in each other.
const DEPTH_MAX: usize = 64;
/// The most elements.
const ELEMENTS_MAX: usize = 4_000_000;
/// The attributes that count tests which did not run, one of each family of tools.
const SKIP_COUNTS: [&str; 3] = ["skipped", "skip", "disabled"];
/// The values of `status` and `result` of a test that did not run, where there is no element for it.
const NOT_RUN: [&str; 4] = ["notrun", "disabled", "skipped", "suppressed"];

/// What tells a test case from others: `file`, `classname` and `name`.
pub(super) type CaseKey = [String; 3];

/// How a test case ended; of two the later one here counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CaseVerdict {
    /// It did not run.
    Skipped,
    /// It passed.
    Passed,
    /// It failed, or could not be run.
    Failed,
}

/// What a report holds.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// The test cases in their order.
    pub(super) cases: Vec<(CaseKey, CaseVerdict)>,
    /// The counts of suites without test cases.
    pub(super) of_suites: CountedTests,
}

impl Document {
    /// Reads a whole report with at most `cases_max` test cases.
    pub(super) fn parse(text: &str, cases_max: usize) -> Result<Self, UnusableReport> {
        let mut tags = Tags::of(text);
        let mut reading = DocumentReading::default();
        let mut elements_left = ELEMENTS_MAX;
        while let Some(tag) = tags.next_tag()? {
            match tag {
                Tag::Open { name, attributes, is_empty } => {
                    elements_left =
                        elements_left.checked_sub(1).ok_or("it has too many elements")?;
                    reading.open(name, attributes)?;
                    if is_empty {
                        reading.close(name)?;
                    }
                }
                Tag::Close(name) => reading.close(name)?,
            }
            if reading.document.cases.len() > cases_max {
                return Err("it has too many test cases".into());
            }
        }
        if !reading.open.is_empty() || !reading.has_root {
            return Err("it is cut off".into());
        }
        Ok(reading.document)
    }
}

/// An element that is not closed yet.
#[derive(Debug)]
struct OpenElement<'text> {
    name: &'text str,
    content: ElementContent,
}

#[derive(Debug)]
enum ElementContent {
    Suite(SuiteContent),
    Case {
        key: CaseKey,
        is_skipped: bool,
        is_failed: bool,
    },
    /// Neither, with all that is in it.
    Other,
}

#[derive(Debug)]
struct SuiteContent {
    /// What its attributes say. It matters only if nothing in the suite counts.
    counts: Result<Option<CountedTests>, UnusableReport>,
    /// Whether there are test cases in it, or suites that have counts.
    is_counted: bool,
}

#[derive(Debug, Default)]
struct DocumentReading<'text> {
    document: Document,
    open: Vec<OpenElement<'text>>,
    has_root: bool,
}

impl<'text> DocumentReading<'text> {
    fn open(&mut self, name: &'text str, attributes: &str) -> Result<(), UnusableReport> {
        if self.open.is_empty() && std::mem::replace(&mut self.has_root, true) {
            return Err("it has two roots".into());
        }
        if self.open.len() == DEPTH_MAX {
            return Err("its elements lie too deep in each other".into());
        }
        let content = match (local(name), self.open.last_mut().map(|above| &mut above.content)) {
            ("testsuites" | "testsuite", None | Some(ElementContent::Suite(_))) => {
                // Attributes that are no XML are refused in any case.
                attribute(attributes, "tests")?;
                let counts = suite_counts(attributes);
                ElementContent::Suite(SuiteContent { counts, is_counted: false })
            }
            (_, None) => return Err("it is no JUnit report".into()),
            ("testcase", Some(ElementContent::Suite(suite))) => {
                suite.is_counted = true;
                new_case(attributes)?
            }
            ("failure" | "error", Some(ElementContent::Case { is_failed, .. })) => {
                *is_failed = true;
                ElementContent::Other
            }
            ("skipped", Some(ElementContent::Case { is_skipped, .. })) => {
                *is_skipped = true;
                ElementContent::Other
            }
            _ => ElementContent::Other,
        };
        self.open.push(OpenElement { name, content });
        Ok(())
    }

    fn close(&mut self, name: &str) -> Result<(), UnusableReport> {
        let element = self.open.pop().filter(|element| element.name == name);
        match element.ok_or("a tag is not closed")?.content {
            ElementContent::Suite(suite) => self.close_suite(suite)?,
            ElementContent::Case { key, is_skipped, is_failed } => {
                let verdict = match (is_failed, is_skipped) {
                    (true, _) => CaseVerdict::Failed,
                    (false, true) => CaseVerdict::Skipped,
                    (false, false) => CaseVerdict::Passed,
                };
                self.document.cases.push((key, verdict));
            }
            ElementContent::Other => {}
        }
        Ok(())
    }

    /// The attributes of a suite count if nothing in it does, so that no test counts twice.
    fn close_suite(&mut self, suite: SuiteContent) -> Result<(), UnusableReport> {
        let own = if suite.is_counted { None } else { suite.counts? };
        let counts = [self.document.of_suites, own.unwrap_or_default()];
        self.document.of_suites = counts.into_iter().sum();
        let above = self.open.last_mut().map(|above| &mut above.content);
        if let Some(ElementContent::Suite(above)) = above {
            above.is_counted |= suite.is_counted || own.is_some();
        }
        Ok(())
    }
}

/// The name without the prefix of a namespace.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

fn new_case(attributes: &str) -> Result<ElementContent, UnusableReport> {
    let value = |name| Ok::<_, UnusableReport>(attribute(attributes, name)?.unwrap_or_default());
    let key = [value("file")?, value("classname")?, value("name")?];
    let did_not_run = |text: String| NOT_RUN.contains(&text.to_ascii_lowercase().as_str());
    let is_skipped = did_not_run(value("status")?) || did_not_run(value("result")?);
    Ok(ElementContent::Case { key, is_skipped, is_failed: false })
}

/// What the attributes of a suite say; `None` if they do not count its tests.
fn suite_counts(attributes: &str) -> Result<Option<CountedTests>, UnusableReport> {
    let number = |name| match attribute(attributes, name)?.as_deref().map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) => count(text).map(Some).ok_or(UnusableReport::from("a count is no number")),
    };
    let Some(total) = number("tests")? else { return Ok(None) };
    let failed = number("failures")?.unwrap_or(0) + number("errors")?.unwrap_or(0);
    let mut skipped = 0;
    for name in SKIP_COUNTS {
        skipped += number(name)?.unwrap_or(0);
    }
    Ok(Some(CountedTests::of_total(total, failed, skipped)))
}
