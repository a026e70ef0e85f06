use proptest::prelude::*;

use super::samples::{GO_JUNIT, GOOGLE_TEST, JEST, NODE, PYTEST, SUREFIRE};
use super::*;
use crate::case::grade::counted::CountedTests;

fn counted(reports: &[&str]) -> Result<(u64, u64), &'static str> {
    let mut tally = JunitTally::default();
    for report in reports {
        tally.add(report.as_bytes()).map_err(|unusable| unusable.reason)?;
    }
    let counts = tally.counted();
    Ok((counts.passed, counts.failed))
}

#[test]
fn the_report_of_each_tool_is_counted() {
    for (tool, report, wanted) in [
        ("pytest", PYTEST, (3, 2)),
        ("Surefire", SUREFIRE, (2, 1)),
        ("go-junit-report", GO_JUNIT, (1, 2)),
        ("jest-junit", JEST, (1, 1)),
        ("node", NODE, (1, 1)),
        ("GoogleTest", GOOGLE_TEST, (1, 0)),
    ] {
        assert_eq!(counted(&[report]), Ok(wanted), "{tool}");
    }
    let all = counted(&[PYTEST, SUREFIRE, GO_JUNIT, JEST, NODE, GOOGLE_TEST]);
    assert_eq!(all, Ok((9, 7)));
}

#[test]
fn test_cases_count_and_attributes_only_where_there_are_none() {
    for (guarantee, report, wanted) in [
        (
            "attributes of a suite without cases",
            "<testsuite tests='4' failures='1' errors='1' skipped='1'/>",
            (1, 2),
        ),
        ("those of the root alone", "<testsuites tests='3' failures='1'></testsuites>", (2, 1)),
        ("no attributes are no tests", "<testsuites><testsuite name='a'/></testsuites>", (0, 0)),
        ("empty attributes are none", "<testsuite tests='2' failures='' errors=' 1 '/>", (1, 1)),
        (
            "cases of one suite and attributes of another",
            "<testsuites><testsuite tests='2' failures='1'/><testsuite tests='9'><testcase name='a'/></testsuite></testsuites>",
            (2, 1),
        ),
        (
            "a suite around suites with attributes adds none",
            "<testsuites tests='9'><testsuite tests='9'><testsuite tests='2'/><testsuite tests='1' errors='1'/></testsuite></testsuites>",
            (2, 1),
        ),
        (
            "inflated attributes around cases",
            "<testsuites tests='999'><testsuite tests='999'><testsuite tests='999'><testcase name='a'/></testsuite></testsuite></testsuites>",
            (1, 0),
        ),
        (
            "attributes beside skipped cases",
            "<testsuite tests='9'><testcase name='a'><skipped/></testcase></testsuite>",
            (0, 0),
        ),
        (
            "an inner suite of 0 hides the outer attributes",
            "<testsuites tests='9'><testsuite tests='0'/></testsuites>",
            (0, 0),
        ),
        (
            "a number that is none beside cases",
            "<testsuite tests='9999999999'><testcase name='a'/></testsuite>",
            (1, 0),
        ),
        ("more failures than tests", "<testsuite tests='1' failures='3'/>", (0, 3)),
        ("more skips than tests", "<testsuite tests='1' skipped='3'/>", (0, 0)),
        (
            "a case in nested suites counts once",
            "<testsuite><testsuite><testcase name='a'/></testsuite><testcase name='b'/></testsuite>",
            (2, 0),
        ),
        (
            "a prefix of a namespace",
            "<j:testsuite xmlns:j='x'><j:testcase name='a'><j:failure/></j:testcase></j:testsuite>",
            (0, 1),
        ),
        ("a byte order mark", "\u{feff}<testsuite><testcase name='a'/></testsuite>", (1, 0)),
    ] {
        assert_eq!(counted(&[report]), Ok(wanted), "{guarantee}");
    }
}

#[test]
fn what_a_forger_writes_counts_no_more_than_it_is() {
    let twice = "<testsuite><testcase file='f' classname='c' name='n'/><testcase file='f' classname='c' name='n'/></testsuite>";
    let failed =
        "<testsuite><testcase file='f' classname='c' name='n'><failure/></testcase></testsuite>";
    let skipped =
        "<testsuite><testcase file='f' classname='c' name='n'><skipped/></testcase></testsuite>";
    for (forgery, reports, wanted) in [
        ("a case twice is one", vec![twice], (1, 0)),
        ("in two reports too", vec![twice, twice], (1, 0)),
        ("failed if once, before", vec![failed, twice], (0, 1)),
        ("failed if once, after", vec![twice, failed], (0, 1)),
        ("passed if it was skipped elsewhere", vec![skipped, twice], (1, 0)),
        (
            "skipped and failed is failed",
            vec!["<testsuite><testcase name='a'><skipped/><failure/></testcase></testsuite>"],
            (0, 1),
        ),
        (
            "cases without names are one",
            vec!["<testsuite><testcase/><testcase/><testcase/></testsuite>"],
            (1, 0),
        ),
        (
            "another file is another case",
            vec![
                "<testsuite><testcase file='a' name='n'/><testcase file='b' name='n'/></testsuite>",
            ],
            (2, 0),
        ),
        (
            "references are resolved before names are compared",
            vec!["<testsuite><testcase name='a'/><testcase name='&#97;'/></testsuite>"],
            (1, 0),
        ),
        (
            "cases in output",
            vec![
                "<testsuite><testcase name='a'><system-out><testcase name='b'/></system-out></testcase></testsuite>",
            ],
            (1, 0),
        ),
        (
            "cases in a case",
            vec!["<testsuite><testcase name='a'><testcase name='b'/></testcase></testsuite>"],
            (1, 0),
        ),
        (
            "cases in properties",
            vec!["<testsuite><properties><testcase name='b'/></properties></testsuite>"],
            (0, 0),
        ),
        (
            "cases in a comment",
            vec!["<testsuite><!-- <testcase name='b'/> --></testsuite>"],
            (0, 0),
        ),
        (
            "a failure in output fails nothing",
            vec![
                "<testsuite><testcase name='a'><system-out><failure/></system-out></testcase></testsuite>",
            ],
            (1, 0),
        ),
        (
            "a failure of a suite is no case",
            vec!["<testsuite><failure/><testcase name='a'/></testsuite>"],
            (1, 0),
        ),
        (
            "other letters are another element",
            vec!["<testsuite><TestCase name='a'/></testsuite>"],
            (0, 0),
        ),
    ] {
        assert_eq!(counted(&reports), Ok(wanted), "{forgery}");
    }
}

#[test]
fn a_report_that_is_none_is_unusable_and_nothing_of_it_counts() {
    let deep = "<testsuite>".repeat(65);
    for (report, reason) in [
        ("", "it is cut off"),
        ("3 passed", "it is cut off"),
        ("<html/>", "it is no JUnit report"),
        ("<testcase name='a'/>", "it is no JUnit report"),
        ("<testsuite><testcase name='a'/>", "it is cut off"),
        ("<testsuite><testcase name='a'", "it is cut off"),
        ("<testsuite><testcase name='a'></testsuite></testcase>", "a tag is not closed"),
        ("<testsuite/><testsuite/>", "it has two roots"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><testsuite/>", "it declares a document type"),
        (
            "<!DOCTYPE testsuite SYSTEM 'file:///etc/passwd'><testsuite><testcase name='a'/></testsuite>",
            "it declares a document type",
        ),
        ("<testsuite><testcase name='&own;'/></testsuite>", "a reference is unknown"),
        ("<testsuite><testcase name='a' name='b'/></testsuite>", "an attribute is there twice"),
        ("<testsuite tests=5/>", "an attribute is not quoted"),
        ("<testsuite tests='-5'/>", "a count is no number"),
        ("<testsuite tests='5.0'/>", "a count is no number"),
        ("<testsuite tests='99999999999999999999'/>", "a count is no number"),
        ("<testsuite tests='9' failures='9999999999'/>", "a count is no number"),
        (&deep, "its elements lie too deep in each other"),
    ] {
        let mut tally = JunitTally::default();
        tally.add(b"<testsuite><testcase name='kept'/></testsuite>").unwrap();
        let unusable = tally.add(report.as_bytes()).unwrap_err();
        assert_eq!(unusable.reason, reason, "{:.80}", report);
        assert_eq!(tally.counted(), CountedTests { passed: 1, failed: 0 }, "{:.80}", report);
    }
}

#[test]
fn a_report_is_utf_8_utf_16_with_a_mark_or_latin_1_that_says_so() {
    let text = "<testsuite><testcase name='é'/><testcase name='e'/></testsuite>";
    let wide = |mark: char, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        format!("{mark}{text}").encode_utf16().flat_map(bytes).collect()
    };
    let latin = |declaration: &str| -> Vec<u8> {
        let text = format!("{declaration}{text}");
        text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
    };
    for (encoding, report, wanted) in [
        ("UTF-8", text.as_bytes().to_vec(), Ok(2)),
        (
            "UTF-8 that declares UTF-16",
            format!("<?xml version='1.0' encoding='utf-16'?>{text}").into_bytes(),
            Ok(2),
        ),
        ("UTF-16, little", wide('\u{feff}', u16::to_le_bytes), Ok(2)),
        ("UTF-16, big", wide('\u{feff}', u16::to_be_bytes), Ok(2)),
        (
            "half a unit",
            [wide('\u{feff}', u16::to_le_bytes), vec![0]].concat(),
            Err("it is not UTF-16"),
        ),
        ("half a pair", b"\xff\xfe\x00\xd8".to_vec(), Err("it is not UTF-16")),
        ("Latin-1", latin("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>"), Ok(2)),
        ("Latin-1 that declares nothing", latin(""), Err("it is not UTF-8")),
        (
            "Latin-1 that declares UTF-8",
            latin("<?xml version='1.0' encoding='utf-8'?>"),
            Err("it is not UTF-8"),
        ),
    ] {
        let mut tally = JunitTally::default();
        let added = tally.add(&report).map_err(|unusable| unusable.reason);
        assert_eq!(added.map(|()| tally.counted().total()), wanted, "{encoding}");
    }
}

#[test]
fn a_report_that_is_too_long_or_has_too_many_cases_is_unusable() {
    let two = "<testsuite><testcase name='a'/><testcase name='b'/></testsuite>";
    assert_eq!(document::Document::parse(two, 2).unwrap().cases.len(), 2);
    assert_eq!(document::Document::parse(two, 1).unwrap_err().reason, "it has too many test cases");
    let unusable = JunitTally::default().add(&vec![b' '; REPORT_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(unusable.reason, "it is too long");
}

proptest! {
    #[test]
    fn a_damaged_report_is_counted_or_unusable(
        report in prop::sample::select(vec![PYTEST, SUREFIRE, GO_JUNIT, JEST, NODE, GOOGLE_TEST]),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = report.as_bytes().to_vec();
        for (at, byte) in damages {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut tally = JunitTally::default();
        let is_usable = tally.add(&bytes).is_ok();
        prop_assert!(is_usable || tally.counted() == CountedTests::default());
    }
}
