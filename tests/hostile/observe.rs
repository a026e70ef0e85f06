//! What came back from a probe.

use serde_json::Value;

use super::probe::MARKS;
use super::server::client::Answer;

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
    pairs_in(observed["out"].as_str().unwrap())
}

/// The same of a program that took the harness's place.
#[track_caller]
pub fn pairs_of(answer: &Answer) -> Vec<(String, String)> {
    pairs_in(&answer.finished().stdout)
}

#[track_caller]
fn pairs_in(text: &str) -> Vec<(String, String)> {
    let pairs: Vec<_> = text
        .lines()
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("no pair: {line:?}")))
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect();
    assert!(!pairs.is_empty(), "the probe said nothing");
    pairs
}

/// Every name was answered, with one of its answers (divided by `|`), and nothing else was said.
#[track_caller]
pub fn assert_answers(pairs: &[(String, String)], expected: &[(&str, &str)]) {
    for (name, answers) in expected {
        let found = pairs.iter().find(|(key, _)| key == name);
        let Some((_, answer)) = found else { panic!("{name} was not tried: {pairs:?}") };
        assert!(answers.split('|').any(|wanted| wanted == answer), "{name}: {answer}");
    }
    assert_eq!(pairs.len(), expected.len(), "{pairs:?}");
}

/// The number that was answered to `name`.
#[track_caller]
pub fn number(pairs: &[(String, String)], name: &str) -> u64 {
    let found = pairs.iter().find(|(key, _)| key == name);
    let Some((_, answer)) = found else { panic!("{name} was not told: {pairs:?}") };
    answer.parse().unwrap_or_else(|error| panic!("{name} {answer}: {error}"))
}
