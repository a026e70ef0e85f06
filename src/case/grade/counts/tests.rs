use proptest::prelude::*;

use super::*;

const CARGO: &str = "
running 3 tests
test t::ig ... ignored
test t::ok ... ok
test t::bad ... FAILED

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.20s

error: test failed, to rerun pass `--lib`
   Doc-tests rs

running 1 test
test src/lib.rs - a (line 1) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.03s
";

const GO: &str = "
=== RUN   TestOk
glued--- PASS: TestOk (0.00s)
=== RUN   TestBad
    a_test.go:4: x
--- FAIL: TestBad (0.00s)
=== RUN   TestSkip
    a_test.go:5: x
--- SKIP: TestSkip (0.00s)
=== RUN   TestSub
=== RUN   TestSub/a_b
=== RUN   TestSub/c
--- FAIL: TestSub (0.00s)
    --- PASS: TestSub/a_b (0.00s)
    --- FAIL: TestSub/c (0.00s)
FAIL
FAIL\ta\t0.004s
";

const PYTEST: &str = "
SUBFAILED(i=1) test_a.py::TestK::test_sub - AssertionError: 1 == 1
ERROR test_a.py::test_err - ValueError
= 2 failed, 6 passed, 1 skipped, 1 xfailed, 1 xpassed, 1 warning, 1 error in 0.19s =
";

const PYTEST_COLOURS: &str = "\x1b[32m======= \x1b[32m\x1b[1m2 passed\x1b[0m, \x1b[33m9 deselected\x1b[0m\x1b[32m in 0.05s\x1b[0m\x1b[32m =======\x1b[0m\n";

const UNITTEST: &str = "
UNEXPECTED SUCCESS: test_xp (test_u.T.test_xp)
----------------------------------------------------------------------
Ran 6 tests in 0.002s

FAILED (failures=1, errors=1, skipped=1, expected failures=1, unexpected successes=1)
";

const NODE: &str = "
TAP version 13
# \\# pass 99
# Subtest: ok
ok 1 - ok
1..4
# tests 4
# suites 0
# pass 1
# fail 1
# cancelled 1
# skipped 1
# todo 1
# duration_ms 1703.74294
";

const NODE_SPEC: &str = "
# pass 99
✔ ok (13.137ms)
ℹ tests 4
ℹ suites 0
ℹ pass 1
ℹ fail 1
ℹ cancelled 0
ℹ skipped 1
✖ failing tests:
";

const MAVEN: &str = "
[INFO] -------------------------------------------------------
[INFO]  T E S T S
[INFO] Running a.FirstTest
[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 1, Time elapsed: 0.03 s <<< FAILURE! -- in a.FirstTest
[INFO] Running a.SecondTest
[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.01 s -- in a.SecondTest
[INFO] Results:
[ERROR] Failures:
[ERROR]   FirstTest.bad:9 expected: <1> but was: <2>
[ERROR] Tests run: 5, Failures: 1, Errors: 0, Skipped: 1
[INFO] ------------------------------------------------------------------------
[INFO] BUILD FAILURE
[ERROR] Failed to execute goal org.apache.maven.plugins:maven-surefire-plugin:3.2.5:test (default-test)
";

fn counted(stdout: &str, stderr: &str) -> Option<(u64, u64)> {
    console_counts(stdout, stderr).map(|counts| (counts.passed, counts.failed))
}

#[test]
fn the_output_of_each_runner_is_counted() {
    for (runner, stdout, stderr, wanted) in [
        ("cargo", CARGO, "", (2, 1)),
        ("go", GO, "", (2, 3)),
        ("pytest", PYTEST, "", (7, 3)),
        ("pytest with colours", PYTEST_COLOURS, "", (2, 0)),
        ("unittest", "", UNITTEST, (1, 3)),
        ("node", NODE, "", (1, 2)),
        ("node, its own reporter", NODE_SPEC, "", (1, 1)),
        ("maven", MAVEN, "", (3, 1)),
    ] {
        assert_eq!(counted(stdout, stderr), Some(wanted), "{runner}");
    }
}

#[test]
fn every_form_of_a_summary_is_read() {
    for (text, wanted) in [
        (
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            Some((3, 0)),
        ),
        ("--- PASS: TestA (0.00s)\n--- PASS: TestB (1.50s)", Some((2, 0))),
        ("--- PASS: TestA", Some((1, 0))),
        ("--- SKIP: TestA (0.00s)", None),
        ("3 passed in 0.01s", Some((3, 0))),
        ("3 passed, 1 failed", Some((3, 1))),
        ("==== 1 failed, 2 passed, 3 errors in 65.32s (0:01:05) ====", Some((2, 4))),
        ("== 1 passed, 2 warnings in 0.01 seconds ==", Some((1, 0))),
        ("1 failed, 2 passed, 2 subtests passed in 0.09s", Some((2, 1))),
        ("1 passed, 2 rerun in 0.09s", Some((1, 0))),
        ("1 passed, 1 flaky in 0.09s", Some((1, 0))),
        ("17 deselected in 0.02s", Some((0, 0))),
        ("1 error in 0.02s", Some((0, 1))),
        ("no tests ran in 0.01s", Some((0, 0))),
        ("Ran 1 test in 0.011s\n\nOK", Some((1, 0))),
        ("Ran 4 tests in 0.011s\n\nOK (skipped=1)\n", Some((3, 0))),
        ("Ran 2 tests in 0.011s\n\nOK (expected failures=1)", Some((1, 0))),
        ("Ran 0 tests in 0.000s\n\nNO TESTS RAN", Some((0, 0))),
        ("Ran 0 tests in 0.000s\n\nFAILED (errors=1)", Some((0, 1))),
        ("Ran 1 test in 0.000s\n\nFAILED (failures=3)", Some((0, 3))),
        ("# tests 4\n# pass  3\n# fail  1", Some((3, 1))),
        ("# tests 3\n# pass  3\n\n# ok", Some((3, 0))),
        ("# fail 2", Some((0, 2))),
        ("Tests run: 4, Failures: 1, Errors: 1, Skipped: 1, Flakes: 1", Some((1, 2))),
        ("Tests run: 3,  Failures: 1", Some((2, 1))),
        // What looks like one, and is none.
        ("", None),
        ("all good", None),
        ("1 error", None),
        ("2 warnings", None),
        ("error: could not compile `a` (lib test) due to 2 previous errors", None),
        ("I passed 3 exams in 2001", None),
        ("3 passed, 4 total", None),
        ("Ran 3 tests in 0.011s", None),
        ("OK", None),
        ("Ran 3 miles in 0.5s\n\nOK", None),
        ("# passing 3", None),
        ("# pass 3 of 4", None),
        ("Tests run: many, Failures: 0", None),
        ("test result: great. 3 passed; 0 failed", None),
    ] {
        assert_eq!(counted(text, ""), wanted, "{text:?}");
    }
}

#[test]
fn the_first_kind_that_matches_counts() {
    let all = [CARGO, GO, PYTEST, NODE, MAVEN];
    for (from, wanted) in [(0, (2, 1)), (1, (2, 3)), (2, (7, 3)), (3, (1, 2)), (4, (3, 1))] {
        // The order in the text does not matter.
        let text: String = all.iter().skip(from).rev().copied().collect();
        assert_eq!(counted(&text, ""), Some(wanted));
    }
}

#[test]
fn a_forged_summary_changes_no_more_than_the_order_of_the_contract_allows() {
    let fake = "100 passed in 0.01s\n";
    let real = "1 failed, 1 passed in 0.02s\n";
    for (forgery, stdout, stderr, wanted) in [
        ("a fake before the real one", format!("{fake}{real}"), "", Some((1, 1))),
        ("a fake on the other stream", real.to_owned(), fake, Some((1, 1))),
        ("a real one on the other stream", fake.to_owned(), UNITTEST, Some((1, 3))),
        ("of two real ones the last", format!("1 passed in 0.1s\n{real}"), "", Some((1, 1))),
        (
            "Cargo's lines are summed",
            format!("{CARGO}test result: ok. 7 passed; 0 failed"),
            "",
            Some((9, 1)),
        ),
        ("a fake that escapes hide", format!("\x1b[8m{fake}\x1b[0m{real}"), "", Some((1, 1))),
        (
            "a fake in a title of the terminal",
            format!("{real}\x1b]0;100 passed in 0.1s\x07"),
            "",
            Some((1, 1)),
        ),
        ("digits that escapes part", "1\x1b[0m00 passed, 1 failed".to_owned(), "", Some((100, 1))),
        (
            "a fake that a line return hides",
            format!("{real}7 passed in 1s\rfine\n"),
            "",
            Some((7, 0)),
        ),
        (
            "a huge number",
            format!("{real}99999999999999999999999 passed in 0.1s"),
            "",
            Some((1, 1)),
        ),
        ("a number of ten digits", format!("{real}9999999999 passed in 0.1s"), "", Some((1, 1))),
        ("a negative number", format!("{real}-5 failed, 9 passed in 0.1s"), "", Some((1, 1))),
        ("digits of another script", format!("{real}٣ passed in 0.1s"), "", Some((1, 1))),
        ("a number with a sign", format!("{real}+9 passed in 0.1s"), "", Some((1, 1))),
        ("a time that is none", format!("{real}9 passed, 1 trick in a hats"), "", Some((1, 1))),
        (
            "failures beyond the total",
            "Tests run: 1, Failures: 5, Errors: 0".to_owned(),
            "",
            Some((0, 5)),
        ),
        (
            "skips beyond the total",
            "Tests run: 1, Failures: 0, Errors: 0, Skipped: 9".to_owned(),
            "",
            Some((0, 0)),
        ),
        ("a fake of Node", format!("# pass 99\n# fail 0\n{NODE}"), "", Some((1, 2))),
    ] {
        assert_eq!(counted(&stdout, stderr), wanted, "{forgery}");
    }
}

#[test]
fn sums_of_counts_do_not_overflow() {
    let line = "test result: ok. 999999999 passed; 999999999 failed; 0 ignored\n";
    let many = line.repeat(1000);
    assert_eq!(counted(&many, &many), Some((1_999_999_998_000, 1_999_999_998_000)));
}

/// Parts of summaries, of which texts are made that are nearly some.
const PARTS: [&str; 24] = [
    "\n",
    "\r",
    " ",
    "\x1b[",
    "\x1b]",
    "m",
    "=",
    "1",
    "999999999",
    "9999999999",
    " passed",
    ", ",
    " failed",
    " in ",
    "0.1s",
    "Ran ",
    " tests in 1s",
    "OK",
    "FAILED (",
    "failures=1",
    "# pass ",
    "--- PASS: ",
    "test result: ok. ",
    "Tests run: ",
];

proptest! {
    #[test]
    fn no_text_fails_to_be_counted(parts in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..40)) {
        let text = parts.concat();
        let (stdout, stderr) = text.split_at(text.floor_char_boundary(text.len() / 2));
        if let Some(counts) = console_counts(stdout, stderr) {
            prop_assert!((0.0..=1.0).contains(&counts.fraction()));
        }
    }
}
