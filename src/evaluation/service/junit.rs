//! Results of tests as JUnit XML.

use std::fmt::Write;

use serde::Deserialize;

use crate::evaluation::result::{EvaluationResult, TestResult};
use crate::evaluation::task::TestKind;

/// What JUnit XML shows of a result; read from a result or from its JSON.
#[derive(Debug, Deserialize)]
pub struct JunitSource {
    task: JunitTask,
    error: Option<String>,
    duration_ms: u64,
    test_results: Vec<JunitTest>,
}

#[derive(Debug, Deserialize)]
struct JunitTask {
    url: Option<String>,
}

#[derive(Debug, Deserialize)]
struct JunitTest {
    name: String,
    kind: String,
    passed: bool,
    exit_code: i32,
    limit: Option<String>,
    output: String,
    duration_ms: u64,
}

impl JunitSource {
    /// Reads the JSON of a result.
    ///
    /// # Errors
    /// It is not that of a result.
    pub fn of_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    fn of(result: &EvaluationResult) -> Self {
        let test = |test: &TestResult| JunitTest {
            name: test.name.clone(),
            kind: kind(test.kind).to_owned(),
            passed: test.passed,
            exit_code: test.exit_code,
            limit: test.limit.map(str::to_owned),
            output: test.output.clone(),
            duration_ms: test.duration_ms,
        };
        Self {
            task: JunitTask { url: result.task.url.clone() },
            error: result.error.clone(),
            duration_ms: result.duration_ms,
            test_results: result.test_results.iter().map(test).collect(),
        }
    }

    /// One test suite with a test case for each test; one with an error if none ran.
    pub fn xml(&self) -> String {
        let tests = &self.test_results;
        let failures = tests.iter().filter(|test| !test.passed).count();
        let errors = usize::from(tests.is_empty());
        let count = tests.len() + errors;
        let name = escaped(self.task.url.as_deref().unwrap_or("task"));
        let seconds = seconds(self.duration_ms);
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        // Writing to a String does not fail.
        let _ = writeln!(
            xml,
            "<testsuite name=\"{name}\" tests=\"{count}\" failures=\"{failures}\" \
             errors=\"{errors}\" time=\"{seconds}\">"
        );
        for test in tests {
            write_case(&mut xml, test);
        }
        if tests.is_empty() {
            let message = escaped(self.error.as_deref().unwrap_or("no test ran"));
            let _ = writeln!(
                xml,
                "  <testcase name=\"evaluation\"><error message=\"{message}\"/></testcase>"
            );
        }
        xml + "</testsuite>\n"
    }
}

/// The tests of a result as JUnit XML.
pub fn junit_of(result: &EvaluationResult) -> String {
    JunitSource::of(result).xml()
}

fn write_case(xml: &mut String, test: &JunitTest) {
    let (name, class) = (escaped(&test.name), escaped(&test.kind));
    let (seconds, output) = (seconds(test.duration_ms), escaped(&test.output));
    let _ = write!(xml, "  <testcase name=\"{name}\" classname=\"{class}\" time=\"{seconds}\">");
    if !test.passed {
        let message = match &test.limit {
            Some(limit) => format!("limit {}", escaped(limit)),
            None => format!("exit {}", test.exit_code),
        };
        let _ = write!(xml, "<failure message=\"{message}\"/>");
    }
    let _ = writeln!(xml, "<system-out>{output}</system-out></testcase>");
}

fn kind(kind: TestKind) -> &'static str {
    match kind {
        TestKind::FailToPass => "fail_to_pass",
        TestKind::PassToPass => "pass_to_pass",
        TestKind::Other => "other",
    }
}

/// Milliseconds as seconds with three places.
pub fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

/// Text for XML or HTML, in an element or in double quotes; characters that XML cannot have are replaced.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' => escaped.push(character),
            '\r' => escaped.push_str("&#13;"),
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_tests_cannot_leave_its_place() {
        assert_eq!(escaped("</a>&\"\u{1b}[0m\n"), "&lt;/a&gt;&amp;&quot;\u{fffd}[0m\n");
    }

    #[test]
    fn an_evaluation_without_tests_has_an_error() {
        let mut result = EvaluationResult::pending("id".to_owned(), String::new());
        result.error = Some("a < b".to_owned());
        let xml = junit_of(&result);
        let json = serde_json::to_vec(&result).unwrap();
        assert_eq!(JunitSource::of_json(&json).unwrap().xml(), xml);
        assert!(xml.contains("tests=\"1\" failures=\"0\" errors=\"1\""), "{xml}");
        assert!(xml.contains("<error message=\"a &lt; b\"/>"), "{xml}");
    }
}
