//! The tests of a JUnit file.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::xml::{Tag, Tags, attribute};

/// Tests of one file.
const CASES_MAX: usize = 500_000;
/// How deep its elements lie in each other.
const DEPTH_MAX: usize = 64;
/// The type of pytest's element `skipped` for a test that was marked `xfail`, and failed. One that was
/// marked and passes has no element of its own.
const EXPECTED_FAILURE: &str = "pytest.xfail";

/// How a test ended. The worst of several with one name counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseEnd {
    /// It has passed.
    Passed,
    /// It has failed as it was marked to: `xfail` of pytest.
    FailedAsExpected,
    /// It was skipped.
    Skipped,
    /// It has failed, or could not be run.
    Failed,
}

/// How the tests of a file ended, by `classname` and `name`.
#[derive(Debug, Default)]
pub struct JunitReport {
    cases: BTreeMap<(String, String), CaseEnd>,
}

impl JunitReport {
    /// Reads a whole file.
    ///
    /// # Errors
    /// In words, why it is no JUnit file, or too much.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the report is not UTF-8".to_owned())?;
        parse(text).map_err(|reason| format!("the report cannot be read: {reason}"))
    }

    /// How the test of that name ended, if it was run.
    pub fn end(&self, class: &str, name: &str) -> Option<CaseEnd> {
        self.cases.get(&(class.to_owned(), name.to_owned())).copied()
    }

    /// The worst end of those whose names begin with `start`, if there is one.
    pub fn worst_end(&self, class: &str, start: &str) -> Option<CaseEnd> {
        let first = Bound::Included((class.to_owned(), start.to_owned()));
        let of_class = self.cases.range((first, Bound::Unbounded));
        let fitting =
            of_class.take_while(|((found, name), _)| found == class && name.starts_with(start));
        fitting.map(|(_, end)| *end).max()
    }
}

fn parse(text: &str) -> Result<JunitReport, &'static str> {
    let mut tags = Tags::of(text);
    let mut reading = Reading::default();
    while let Some(tag) = tags.next_tag()? {
        match tag {
            Tag::Open { name, attributes, is_empty } => {
                reading.begin(name, attributes)?;
                if is_empty {
                    reading.end(name)?;
                }
            }
            Tag::Close(name) => reading.end(name)?,
        }
    }
    let is_whole = reading.open.is_empty() && reading.has_root;
    if is_whole { Ok(reading.report) } else { Err("it is cut off") }
}

/// A file of which a part was read.
#[derive(Debug, Default)]
struct Reading<'text> {
    report: JunitReport,
    /// The elements that are not closed.
    open: Vec<&'text str>,
    has_root: bool,
    /// The test that is not closed.
    case: Option<((String, String), CaseEnd)>,
    cases: usize,
}

impl<'text> Reading<'text> {
    fn begin(&mut self, name: &'text str, attributes: &str) -> Result<(), &'static str> {
        if self.open.is_empty() && std::mem::replace(&mut self.has_root, true) {
            return Err("it has two roots");
        }
        self.open.push(name);
        self.cases += usize::from(name == "testcase");
        if self.open.len() > DEPTH_MAX || self.cases > CASES_MAX {
            return Err("it has too many elements");
        }
        match name {
            "testcase" if self.case.is_some() => return Err("a testcase lies in another"),
            "testcase" => {
                let class = attribute(attributes, "classname")?.unwrap_or_default();
                let name = attribute(attributes, "name")?.ok_or("a test has no name")?;
                self.case = Some(((class, name), CaseEnd::Passed));
            }
            "failure" | "error" => self.worsen(CaseEnd::Failed),
            "skipped" => self.worsen(match attribute(attributes, "type")?.as_deref() {
                Some(EXPECTED_FAILURE) => CaseEnd::FailedAsExpected,
                _ => CaseEnd::Skipped,
            }),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, name: &str) -> Result<(), &'static str> {
        if self.open.pop() != Some(name) {
            return Err("a tag is not closed");
        }
        if name == "testcase"
            && let Some((key, end)) = self.case.take()
        {
            let kept = self.report.cases.entry(key).or_insert(end);
            *kept = end.max(*kept);
        }
        Ok(())
    }

    fn worsen(&mut self, end: CaseEnd) {
        if let Some((_, found)) = &mut self.case {
            *found = end.max(*found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_with_the_worst_end_of_each_name() {
        let text = "<?xml version=\"1.0\"?><!-- <testcase name='no'/> --><testsuites><testsuite>\n\
            <testcase classname=\"t.T\" name=\"a[1 &gt; &#x41;&quot;]\" time=\"0\"/>\
            <testcase classname='t' name='out'><system-out><![CDATA[<failure/>]]></system-out></testcase>\
            <testcase classname='t' name='skip'><skipped type='x'>why</skipped></testcase>\
            <testcase classname='t' name='xfail'><skipped type=\"pytest.xfail\" message=\"\"/></testcase>\
            <testcase classname='t' name='marked'><skipped type=\"pytest.skip\" message=\"pytest.xfail\"/></testcase>\
            <testcase classname='t' name='twice'/>\
            <testcase classname='t' name='twice'><error message=\"a > b\">at</error></testcase>\
            <testcase classname='t' name='bad'><failure/></testcase></testsuite></testsuites>";
        let report = JunitReport::parse(text.as_bytes()).unwrap();
        for (class, name, end) in [
            ("t.T", "a[1 > A\"]", Some(CaseEnd::Passed)),
            ("t", "out", Some(CaseEnd::Passed)),
            ("t", "skip", Some(CaseEnd::Skipped)),
            ("t", "xfail", Some(CaseEnd::FailedAsExpected)),
            ("t", "marked", Some(CaseEnd::Skipped)),
            ("t", "twice", Some(CaseEnd::Failed)),
            ("t", "bad", Some(CaseEnd::Failed)),
            ("t", "no", None),
        ] {
            assert_eq!(report.end(class, name), end, "{name}");
        }
        assert_eq!(report.worst_end("t.T", "a[1"), Some(CaseEnd::Passed));
        assert_eq!(report.worst_end("t.T", "a[2"), None);
    }

    #[test]
    fn what_is_no_junit_file_is_refused() {
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        for text in [
            "",
            "<testsuite>",
            "<testsuite></testcase>",
            "<!DOCTYPE x [<!ENTITY a 'b'>]><testsuite/>",
            "<testsuite/><testsuite/>",
            "<testsuite><testcase/></testsuite>",
            "<testsuite><testcase name='a' name='b'/></testsuite>",
            "<testsuite><testcase name='&own;'/></testsuite>",
            "<testsuite><testcase name='a'><testcase name='b'/></testcase></testsuite>",
            "<testsuite><testcase name='a></testsuite>",
            "<a><![CDATA[</a>",
            &deep,
        ] {
            assert!(JunitReport::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(JunitReport::parse(b"\xff").is_err());
    }
}
