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
    let lines = observed["out"].as_str().unwrap().lines();
    let pairs: Vec<_> = lines
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("no pair: {line:?}")))
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect();
    assert!(!pairs.is_empty(), "the probe said nothing: {observed}");
    pairs
}
