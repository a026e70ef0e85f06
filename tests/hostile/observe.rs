//! Reads the results of a probe.

use cofferdam_test_server::client::Answer;
use serde_json::Value;

use super::probe::MARKS;

/// The value that a probe returned, from the harness's JSON.
///
/// Panics if the run failed: for a probe that a limit ends, check its answer
/// instead.
#[track_caller]
pub fn observed(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let (before, after) = MARKS;
    let between = answer.body.split_once(before).and_then(|(_, rest)| rest.split_once(after));
    let Some((text, _)) = between else { panic!("the probe returned nothing: {answer:?}") };
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    serde_json::from_slice(&bytes).unwrap()
}

/// The lines `name answer` of a native probe or script, as pairs.
#[track_caller]
pub fn pairs(observed: &Value) -> Vec<(String, String)> {
    assert_eq!(observed["code"], 0, "{observed}");
    lines(observed["out"].as_str().unwrap())
}

/// The same for a program that replaced the harness.
#[track_caller]
pub fn pairs_of(answer: &Answer) -> Vec<(String, String)> {
    lines(&answer.finished().stdout)
}

/// Splits text into pairs as [`pairs`] does.
#[track_caller]
pub fn lines(said: &str) -> Vec<(String, String)> {
    let pairs: Vec<_> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("no pair: {line:?}")))
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect();
    assert!(!pairs.is_empty(), "the probe printed nothing");
    pairs
}

/// Asserts that exactly the expected attempts were made and got an expected answer; `|` separates
/// allowed answers.
#[track_caller]
pub fn assert_answers(pairs: &[(String, String)], expected: &[(&str, &str)]) {
    for (name, answers) in expected {
        let found = answer_of(pairs, name);
        assert!(answers.split('|').any(|answer| answer == found), "{name}: {found}");
    }
    for (name, answer) in pairs {
        assert!(expected.iter().any(|(known, _)| known == name), "{name}: {answer}");
    }
}

/// The answer to the attempt `name`.
#[track_caller]
pub fn answer_of<'pairs>(pairs: &'pairs [(String, String)], name: &str) -> &'pairs str {
    let found = pairs.iter().find(|(key, _)| key == name);
    found.map_or_else(|| panic!("{name} was not tried: {pairs:?}"), |(_, answer)| answer)
}

/// The answer to the attempt `name` as a number.
#[track_caller]
pub fn number_of(pairs: &[(String, String)], name: &str) -> u64 {
    let answer = answer_of(pairs, name);
    answer.parse().unwrap_or_else(|_| panic!("{name}: {answer}"))
}

/// Asserts the outcome `word`, if the service reports an outcome.
#[track_caller]
pub fn outcome_is(answer: &Answer, word: &str) {
    if let Some(outcome) = answer.header("x-run-outcome") {
        assert_eq!(outcome, word, "{answer:?}");
    }
}
