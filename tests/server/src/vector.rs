//! One case of `tests/langs`, whose README documents the files and their keys.

use std::collections::BTreeSet;
use std::fs;

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Table;

use crate::client::{Answer, Finished};
use crate::service::Service;
use crate::shipped::{Language, read, repository};

/// The cases of every language, without what differs between languages.
const DEFAULTS: &str = "tests/langs/default";
/// The case that posts the example: its default needs no file of a language.
pub const EXAMPLE: &str = "good";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    solution: Option<String>,
    checker: Option<String>,
    asserts: Option<String>,
    #[serde(default)]
    no_asserts: bool,
    timeout: Option<String>,
    #[serde(default)]
    needs_recipe: bool,
    expect: Expectation,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    exit_code: Option<u8>,
    outcome: Option<String>,
    stderr_contains: Option<String>,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    #[serde(rename = "type")]
    kind: String,
    value: Option<String>,
    value_contains: Option<String>,
    output: Option<String>,
    output_contains: Option<String>,
}

impl Vector {
    /// The vector `name` of the language: its file over the default of that name. [`EXAMPLE`] needs
    /// no file.
    #[track_caller]
    pub fn read(slug: &str, name: &str) -> Self {
        let path = format!("tests/langs/{slug}/{name}.toml");
        let needs_file = name != EXAMPLE || repository().join(&path).exists();
        let text = if needs_file { read(&path) } else { String::new() };
        Self::parse(name, &text).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The text of a language's vector over the default of its name, if there is one.
    pub fn parse(name: &str, text: &str) -> Result<Self, toml::de::Error> {
        let path = format!("{DEFAULTS}/{name}.toml");
        let mut keys = match repository().join(&path).exists() {
            true => toml::from_str(&read(&path)).unwrap_or_else(|error| panic!("{path}: {error}")),
            false => Table::new(),
        };
        overlay(&mut keys, toml::from_str(text)?);
        keys.try_into()
    }

    /// Replaces the timeout.
    pub fn within(self, timeout: &str) -> Self {
        Self { timeout: Some(timeout.to_owned()), ..self }
    }

    /// Whether it posts a solution of its own instead of the example.
    pub fn has_solution(&self) -> bool {
        self.solution.is_some()
    }

    /// Whether it needs the root file system of the toolchains.
    pub fn needs_recipe(&self) -> bool {
        self.needs_recipe
    }

    /// The request. The example provides the texts that the vector does not have.
    pub fn request(&self, slug: &str, language: &Language) -> Value {
        self.request_with(slug, language, |file| read(&format!("langs/{slug}/example/{file}")))
    }

    /// As [`Vector::request`], with examples that `example` reads by file name.
    pub fn request_with(
        &self,
        slug: &str,
        language: &Language,
        example: impl Fn(&str) -> String,
    ) -> Value {
        let or_example =
            |own: &Option<String>, file: &str| own.clone().unwrap_or_else(|| example(file));
        let mut body = json!({
            "lang_slug": slug,
            "solution_text": or_example(&self.solution, &language.solution),
        });
        if let Some(checker) = &language.checker {
            body["checker_text"] = or_example(&self.checker, checker).into();
        }
        if !self.no_asserts {
            body["asserts"] = or_example(&self.asserts, "asserts.json").into();
        }
        if let Some(timeout) = &self.timeout {
            body["timeout"] = json!(timeout);
        }
        body
    }

    /// Posts the request and returns the answer, or the first difference from the expectation.
    pub fn run(
        &self,
        service: &Service,
        slug: &str,
        language: &Language,
    ) -> Result<Answer, String> {
        self.holds(service.post(&self.request(slug, language)))
    }

    /// Returns `answer`, or its first difference from the expectation.
    pub fn holds(&self, answer: Answer) -> Result<Answer, String> {
        if answer.status != 200 {
            return Err(format!("{answer:?}"));
        }
        let outcome = answer.header("x-run-outcome");
        if self.expect.outcome.is_some() && self.expect.outcome.as_deref() != outcome {
            return Err(format!("want outcome {:?}: {answer:?}", self.expect.outcome));
        }
        self.expect.holds(&answer.finished())?;
        Ok(answer)
    }
}

/// The names of the vectors that every language has.
pub fn defaults() -> BTreeSet<String> {
    names_in(DEFAULTS)
}

/// The names of a language's vectors.
pub fn names(slug: &str) -> BTreeSet<String> {
    let mut names = names_in(&format!("tests/langs/{slug}"));
    names.insert(EXAMPLE.to_owned());
    names
}

/// The names of the vectors in a directory of the repository.
#[track_caller]
fn names_in(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(repository().join(directory));
    let entries = entries.unwrap_or_else(|error| panic!("{directory}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned())).collect()
}

/// Writes `own` over `base`. Tables are merged; any other value, also an array, is replaced.
fn overlay(base: &mut Table, own: Table) {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(own)) => overlay(below, own),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

impl Expectation {
    /// Compares the result of a run. An error describes the difference.
    fn holds(&self, got: &Finished) -> Result<(), String> {
        let fail = |what: String| Err(format!("{what}: {got:?}"));
        if got.exit_code != self.exit_code {
            return fail(format!("want exit code {:?}", self.exit_code));
        }
        if let Some(words) = &self.stderr_contains
            && !got.stderr.contains(words)
        {
            return fail(format!("want {words:?} on stderr"));
        }
        if self.exit_code.is_none() {
            return Ok(());
        }
        let Some(items) = items_of(&got.stdout) else { return fail("no JSON".to_owned()) };
        if items.len() != self.items.len() {
            return fail(format!("want {} items", self.items.len()));
        }
        let mut pairs = items.iter().zip(&self.items);
        pairs.find_map(|(item, want)| want.differs(item, &got.stdout)).map_or(Ok(()), fail)
    }
}

impl Item {
    /// The first difference of `got`, if any.
    fn differs(&self, got: &Value, stdout: &str) -> Option<String> {
        if got["type"] != json!(self.kind) {
            return Some(format!("want type {:?}", self.kind));
        }
        if let Some(value) = &self.value
            && !is_value(&got["value"], value, stdout)
        {
            return Some(format!("want value {value}"));
        }
        if let Some(words) = &self.value_contains
            && !got["value"].as_str().is_some_and(|value| value.contains(words))
        {
            return Some(format!("want {words:?} in a value"));
        }
        if let Some(output) = &self.output
            && got["output"] != json!(output)
        {
            return Some(format!("want output {output:?}"));
        }
        if let Some(words) = &self.output_contains
            && !got["output"].as_str().is_some_and(|output| output.contains(words))
        {
            return Some(format!("want {words:?} in an output"));
        }
        None
    }
}

/// The items of one array, or of one object per line. `None` if the text is not JSON.
fn items_of(stdout: &str) -> Option<Vec<Value>> {
    if let Ok(Value::Array(items)) = serde_json::from_str(stdout) {
        return Some(items);
    }
    let lines = stdout.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).ok()).collect()
}

/// Compares a value. An integer beyond 64 bits would be rounded, so its digits must also occur in
/// the text.
fn is_value(got: &Value, expected: &str, stdout: &str) -> bool {
    let is_long = expected.len() > 19 && expected.bytes().all(|byte| byte.is_ascii_digit());
    serde_json::from_str::<Value>(expected).is_ok_and(|value| value == *got)
        && (!is_long || stdout.contains(expected))
}
