//! The allowed answers to the attempts of a probe.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::observe::{observed, pairs};
use crate::probe::Probe;
use crate::target::Target;

pub const OK: &[&str] = &["ok"];
/// The kernel or a seccomp filter refuses the call.
pub const REFUSED: &[&str] = &["EPERM", "ENOSYS"];
/// The file does not exist, is not accessible or is read-only.
pub const UNREACHABLE: &[&str] = &["ENOENT", "EACCES", "EPERM", "EROFS", "ENOTDIR", "ENXIO", "EIO"];
/// The lines in which a probe reports from when to when it held its objects.
const SPAN: [&str; 2] = ["from", "until"];

/// Attempts and their allowed answers; [`Expected::hold`] checks them all at once.
#[derive(Debug, Default)]
#[must_use]
pub struct Expected {
    allowed: BTreeMap<String, &'static [&'static str]>,
}

impl Expected {
    pub fn all(self, attempts: &[&str], allowed: &'static [&'static str]) -> Self {
        self.each("", attempts, allowed)
    }

    /// One kind of attempt, once for each target.
    pub fn each(mut self, prefix: &str, on: &[&str], allowed: &'static [&'static str]) -> Self {
        self.allowed.extend(on.iter().map(|on| (format!("{prefix}{on}"), allowed)));
        self
    }

    /// Panics with every attempt that has a wrong answer, is missing, or is
    /// unknown to this row.
    #[track_caller]
    pub fn hold(mut self, answers: BTreeMap<String, String>) {
        let mut wrong = Vec::new();
        for (attempt, answer) in answers {
            match self.allowed.remove(&attempt) {
                Some(allowed) if allowed.contains(&answer.as_str()) => {}
                Some(allowed) => wrong.push(format!("{attempt}: {answer}, not {allowed:?}")),
                None => wrong.push(format!("{attempt}: {answer}, unexpected")),
            }
        }
        wrong.extend(self.allowed.keys().map(|attempt| format!("{attempt}: not tried")));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Panics with every answer that is not in `allowed`, or if there are no answers.
#[track_caller]
pub fn assert_each(answers: &Value, allowed: &[&str]) {
    let answers = answers_in(answers);
    assert!(!answers.is_empty(), "nothing was tried");
    let wrong: Vec<_> =
        answers.iter().filter(|(_, answer)| !allowed.contains(&answer.as_str())).collect();
    assert!(wrong.is_empty(), "not {allowed:?}: {wrong:?}");
}

/// The answers in a JSON object, by attempt.
#[track_caller]
pub fn answers_in(object: &Value) -> BTreeMap<String, String> {
    let entries = object.as_object().unwrap_or_else(|| panic!("no answers: {object}"));
    let word = |answer: &Value| {
        answer.as_str().unwrap_or_else(|| panic!("no answer: {answer}")).to_owned()
    };
    entries.iter().map(|(attempt, answer)| (attempt.clone(), word(answer))).collect()
}

/// The answers of a native probe.
#[track_caller]
pub fn answers_told(observed: &Value) -> BTreeMap<String, String> {
    pairs(observed).into_iter().filter(|(name, _)| !SPAN.contains(&name.as_str())).collect()
}

/// The strings of a JSON list.
#[track_caller]
pub fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().map(|text| text.as_str().unwrap_or_else(|| panic!("no text: {text}"))).collect()
}

/// Runs `beside` while `holder` holds its objects in another run, and returns
/// what both saw. Tries three times: on a busy machine the runs may miss each
/// other.
#[track_caller]
pub fn together(target: &Target, holder: &Probe, beside: &Probe) -> (Value, Value) {
    for _ in 0..3 {
        let live = target.begin(holder);
        let seen = target.observe(beside);
        let held = observed(&live.answer());
        let (from, until) = span(&held);
        let (began, ended) = span(&seen);
        if from <= began && ended <= until {
            return (held, seen);
        }
    }
    panic!("the two runs never met");
}

/// Milliseconds since the epoch, the same in every run.
fn span(observed: &Value) -> (f64, f64) {
    let [from, until] = SPAN.map(|name| {
        observed[name].as_f64().unwrap_or_else(|| {
            let found = pairs(observed).into_iter().find(|(key, _)| key == name);
            found.and_then(|(_, time)| time.parse().ok()).unwrap_or_else(|| panic!("{observed}"))
        })
    });
    (from, until)
}
