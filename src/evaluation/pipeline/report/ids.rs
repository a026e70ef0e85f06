//! Ids of pytest, graded by a JUnit file.

use super::junit::{CaseEnd, JunitReport};
use crate::evaluation::result::TestResult;
use crate::evaluation::task::{GradedId, TestKind};

/// The exit code of an id that has not passed.
const FAILED: i32 = 1;

/// A result for each of `ids`, where `script` is that of the script which has run them.
pub fn grade_ids(
    ids: &[GradedId],
    read: &Result<JunitReport, String>,
    script: &TestResult,
) -> Vec<TestResult> {
    let result = |graded: &GradedId| {
        let end = read.as_ref().map(|report| end_of(&graded.id, report));
        let (passed, output) = match end {
            Ok(Some(CaseEnd::Passed)) => (true, "passed"),
            // For the harness of SWE-bench, an expected failure is a pass.
            Ok(Some(CaseEnd::FailedAsExpected)) => (true, "failed as expected"),
            Ok(Some(CaseEnd::Skipped)) => (graded.kind == TestKind::PassToPass, "skipped"),
            Ok(Some(CaseEnd::Failed)) => (false, "failed"),
            Ok(None) => (false, "absent from the report"),
            Err(words) => (false, words.as_str()),
        };
        // What ended the script is told of the ids that it did not come to.
        let (signal, limit) = match end {
            Ok(Some(_)) => (None, None),
            _ => (script.signal, script.limit),
        };
        let did_exit = signal.is_none() && limit.is_none();
        TestResult {
            name: graded.id.clone(),
            kind: graded.kind,
            passed,
            exit_code: if passed { 0 } else { if_exited(did_exit) },
            signal,
            limit,
            output: format!("{output}\n"),
            truncated: false,
            duration_ms: 0,
        }
    };
    ids.iter().map(result).collect()
}

fn if_exited(did_exit: bool) -> i32 {
    if did_exit { FAILED } else { -1 }
}

fn end_of(id: &str, report: &JunitReport) -> Option<CaseEnd> {
    let (class, name) = junit_name(id);
    let exact = report.end(&class, &name);
    if exact.is_none() && is_open(&name) { report.worst_end(&class, &name) } else { exact }
}

/// Whether a `[` is not closed: the id was cut at a space.
fn is_open(name: &str) -> bool {
    let count = |wanted: char| name.chars().filter(|c| *c == wanted).count();
    name.contains('[') && (!name.ends_with(']') || count('[') > count(']'))
}

/// `classname` and `name` that pytest writes for an id.
fn junit_name(id: &str) -> (String, String) {
    let (path, parameters) = match id.find('[').and_then(|at| id.split_at_checked(at)) {
        Some((path, parameters)) => (path, parameters),
        None => (id, ""),
    };
    let (file, names) = path.split_once("::").unwrap_or((path, ""));
    let mut class = file.strip_suffix(".py").unwrap_or(file).replace('/', ".");
    let name = match names.rsplit_once("::") {
        Some((classes, name)) => {
            class.push('.');
            class += &classes.replace("::", ".");
            name
        }
        None => names,
    };
    (escaped(&class), escaped(&format!("{name}{parameters}")))
}

/// `text` as pytest writes it: what XML cannot have by its number.
fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' | '\n' | '\r' | ' '..='\u{7e}' | '\u{80}'..='\u{d7ff}' => plain.push(c),
            '\u{e000}'..='\u{fffd}' | '\u{10000}'.. => plain.push(c),
            c if u32::from(c) <= 0xff => plain += &format!("#x{:02X}", u32::from(c)),
            c => plain += &format!("#x{:04X}", u32::from(c)),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_pytest_has_its_class_and_name() {
        for (id, class, name) in [
            ("tests/test_a.py::test_x", "tests.test_a", "test_x"),
            ("test_a.py::A::B::test_x[a::b-c/d.py]", "test_a.A.B", "test_x[a::b-c/d.py]"),
            ("a.b/t.py::test_\u{7f}", "a.b.t", "test_#x7F"),
            ("t.py", "t", ""),
        ] {
            assert_eq!(junit_name(id), (class.to_owned(), name.to_owned()), "{id}");
        }
    }

    #[test]
    fn each_id_is_graded_by_its_kind_and_the_file() {
        let text = "<testsuite><testcase classname='t' name='ok'/>\
            <testcase classname='t' name='skip'><skipped/></testcase>\
            <testcase classname='t' name='xfail'><skipped type='pytest.xfail'/></testcase>\
            <testcase classname='t' name='bad'><failure/></testcase>\
            <testcase classname='t' name='p[a b]'/><testcase classname='t' name='p[a c]'/>\
            <testcase classname='t' name='q[a b]'/>\
            <testcase classname='t' name='q[a c]'><failure/></testcase></testsuite>";
        let read = JunitReport::parse(text.as_bytes());
        let (wanted, held) = (TestKind::FailToPass, TestKind::PassToPass);
        for (id, kind, passed) in [
            ("t.py::ok", wanted, true),
            ("t.py::ok", held, true),
            ("t.py::skip", wanted, false),
            ("t.py::skip", held, true),
            ("t.py::xfail", wanted, true),
            ("t.py::xfail", held, true),
            ("t.py::bad", wanted, false),
            ("t.py::bad", held, false),
            ("t.py::absent", wanted, false),
            ("t.py::absent", held, false),
            ("t.py::p[a", wanted, true),
            ("t.py::p[a b]", wanted, true),
            ("t.py::p[b", wanted, false),
            ("t.py::q[a", wanted, false),
            ("t.py::p", wanted, false),
        ] {
            let graded = GradedId { id: id.to_owned(), kind };
            let results = grade_ids(std::slice::from_ref(&graded), &read, &script());
            assert_eq!((results[0].passed, results[0].name.as_str()), (passed, id));
            assert_eq!(results[0].exit_code, i32::from(!passed), "{id}");
            let unread = grade_ids(&[graded], &Err("no file".to_owned()), &script());
            assert!(!unread[0].passed, "{id}");
        }
    }

    fn script() -> TestResult {
        TestResult {
            name: "run_ids.sh".to_owned(),
            kind: TestKind::Other,
            passed: true,
            exit_code: 0,
            signal: None,
            limit: None,
            output: String::new(),
            truncated: false,
            duration_ms: 0,
        }
    }
}
