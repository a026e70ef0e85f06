//! What came back from a probe.

use cofferdam_test_server::client::Answer;
use serde_json::Value;

use super::probe::MARKS;

/// What a probe returned, read out of the harness's own JSON.
///
/// Panics where the run did not end well: a probe that is only stopped by a
/// limit is looked at by its answer instead.
#[track_caller]
pub fn observed(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let (before, after) = MARKS;
    let between = answer.body.split_once(before).and_then(|(_, rest)| rest.split_once(after));
    let Some((text, _)) = between else { panic!("the probe told nothing: {answer:?}") };
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    serde_json::from_slice(&bytes).unwrap()
}

/// The words of a native probe's or script's lines: `name answer` becomes a pair.
#[track_caller]
pub fn pairs(observed: &Value) -> Vec<(String, String)> {
    assert_eq!(observed["code"], 0, "{observed}");
    lines(observed["out"].as_str().unwrap())
}

/// The same of a program that took the harness's place.
#[track_caller]
pub fn pairs_of(answer: &Answer) -> Vec<(String, String)> {
    lines(&answer.finished().stdout)
}

/// As [`pairs`], of what was said.
#[track_caller]
pub fn lines(said: &str) -> Vec<(String, String)> {
    let pairs: Vec<_> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("no pair: {line:?}")))
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect();
    assert!(!pairs.is_empty(), "the probe said nothing");
    pairs
}

/// Holds every attempt to its answer and to having been made; `|` stands between answers that are
/// all right. Attempts nobody expects are a mistake too.
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

/// What became of the attempt `name`.
#[track_caller]
pub fn answer_of<'pairs>(pairs: &'pairs [(String, String)], name: &str) -> &'pairs str {
    let found = pairs.iter().find(|(key, _)| key == name);
    found.map_or_else(|| panic!("{name} was not tried: {pairs:?}"), |(_, answer)| answer)
}

/// The number that the attempt `name` told.
#[track_caller]
pub fn number_of(pairs: &[(String, String)], name: &str) -> u64 {
    let answer = answer_of(pairs, name);
    answer.parse().unwrap_or_else(|_| panic!("{name}: {answer}"))
}

/// Holds an answer to the outcome `word`, where the service tells one.
#[track_caller]
pub fn outcome_is(answer: &Answer, word: &str) {
    if let Some(outcome) = answer.header("x-run-outcome") {
        assert_eq!(outcome, word, "{answer:?}");
    }
}
