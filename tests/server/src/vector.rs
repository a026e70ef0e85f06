//! One file of `tests/langs`, whose README documents the keys.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Answer, Finished};
use crate::service::Service;
use crate::shipped::{Language, read};

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
    /// The vector `tests/langs/<slug>/<name>.toml`.
    #[track_caller]
    pub fn read(slug: &str, name: &str) -> Self {
        let path = format!("tests/langs/{slug}/{name}.toml");
        Self::parse(&read(&path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// A vector's text.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Replaces the timeout.
    pub fn within(self, timeout: &str) -> Self {
        Self { timeout: Some(timeout.to_owned()), ..self }
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
