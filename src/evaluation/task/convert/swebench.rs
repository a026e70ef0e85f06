//! An instance of SWE-bench as a task of ours.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::output::{TaskOutput, yaml_list, yaml_text};
use crate::evaluation::task::error::TaskError;
use crate::evaluation::task::load::{ID_SCRIPT, IDS};
use crate::evaluation::task::solution::changed_paths;

/// Where the converted script writes its report.
const REPORT: &str = "/tmp/cofferdam-junit.xml";
const TEST_PATCH: &str = "test.patch";

/// What the data set does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwebenchOptions {
    /// The repository, if not that of GitHub.
    pub repo: Option<String>,
    /// Commands of the install step.
    pub install: Vec<String>,
    /// A command before the tests, for rebuilds.
    pub pre_test: Option<String>,
    /// pytest, and its first options.
    pub test_command: String,
}

/// The keys of an instance that count.
#[derive(Debug, Deserialize)]
struct SwebenchInstance {
    instance_id: String,
    repo: String,
    base_commit: String,
    patch: String,
    test_patch: String,
    problem_statement: String,
    #[serde(rename = "FAIL_TO_PASS", deserialize_with = "ids")]
    fail_to_pass: Vec<String>,
    #[serde(rename = "PASS_TO_PASS", deserialize_with = "ids")]
    pass_to_pass: Vec<String>,
}

/// A list, or JSON of a list in a string, as the data set has it.
fn ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ids {
        List(Vec<String>),
        Text(String),
    }
    match Ids::deserialize(deserializer)? {
        Ids::List(list) => Ok(list),
        Ids::Text(text) => serde_json::from_str(&text).map_err(serde::de::Error::custom),
    }
}

/// Converts the instance in `text`, the contents of `file`, into the empty directory `out`.
///
/// # Errors
/// [`TaskError::Invalid`] naming the field, [`TaskError::Host`] if `out` cannot be written.
pub fn convert_swebench(
    file: &str,
    text: &str,
    options: &SwebenchOptions,
    out: &Path,
) -> Result<(), TaskError> {
    let instance: SwebenchInstance =
        serde_json::from_str(text).map_err(|error| TaskError::file(file, error.to_string()))?;
    let paths = test_paths(file, &instance)?;
    let restored = changed_paths(&instance.test_patch);
    let mut output = TaskOutput::create(out)?;
    let description = description(&instance, options, &restored);
    output.file(Path::new("workspace.yaml"), description.as_bytes())?;
    output.file(Path::new("prompt.md"), instance.problem_statement.as_bytes())?;
    output.file(Path::new("solution.patch"), instance.patch.as_bytes())?;
    let ids = json!({
        "instance_id": instance.instance_id,
        "report": REPORT,
        "fail_to_pass": instance.fail_to_pass,
        "pass_to_pass": instance.pass_to_pass,
    });
    output.file(Path::new(IDS), format!("{ids:#}\n").as_bytes())?;
    let tests = Path::new("tests");
    if !restored.is_empty() {
        output.file(&tests.join(TEST_PATCH), instance.test_patch.as_bytes())?;
    }
    let script = script(options, &paths, !restored.is_empty());
    output.file(&tests.join(ID_SCRIPT), script.as_bytes())
}

/// The files of the ids, each once.
fn test_paths(file: &str, instance: &SwebenchInstance) -> Result<Vec<String>, TaskError> {
    let mut paths = BTreeSet::new();
    for (field, ids) in
        [("FAIL_TO_PASS", &instance.fail_to_pass), ("PASS_TO_PASS", &instance.pass_to_pass)]
    {
        for (index, id) in ids.iter().enumerate() {
            let (path, _) = id.split_once("::").ok_or_else(|| {
                let reason = format!("{id:?} is not an id of pytest, PATH::NAME");
                TaskError::field(file, &format!("{field}[{index}]"), reason)
            })?;
            let is_inside = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
            if !is_inside || path.starts_with('-') {
                let reason = format!("{path:?} is not a path in the repository");
                return Err(TaskError::field(file, &format!("{field}[{index}]"), reason));
            }
            paths.insert(path.to_owned());
        }
    }
    match paths.is_empty() {
        true => Err(TaskError::field(file, "FAIL_TO_PASS", "there is no test")),
        false => Ok(paths.into_iter().collect()),
    }
}

fn description(
    instance: &SwebenchInstance,
    options: &SwebenchOptions,
    restored: &[String],
) -> String {
    let repo = options.repo.clone().unwrap_or_else(|| match instance.repo.contains("://") {
        true => instance.repo.clone(),
        false => format!("https://github.com/{}", instance.repo),
    });
    let mut text = format!(
        "repo: {}\nbase_commit: {}\nlanguage: python\n",
        yaml_text(&repo),
        yaml_text(&instance.base_commit)
    );
    text += &yaml_list("install", "", &options.install);
    if !restored.is_empty() {
        let patterns: Vec<String> = restored.iter().map(|path| escaped(path)).collect();
        text += &format!("verify:\n{}", yaml_list("restore", "  ", &patterns));
    }
    text
}

/// The pattern that only `path` fits.
fn escaped(path: &str) -> String {
    let mut pattern = String::new();
    for c in path.chars() {
        match c {
            '*' | '?' | '[' | ']' | '{' | '}' | '!' => pattern.extend(['[', c, ']']),
            '\\' => pattern.push_str("\\\\"),
            c => pattern.push(c),
        }
    }
    pattern
}

fn script(options: &SwebenchOptions, paths: &[String], has_patch: bool) -> String {
    let mut text = String::from("#!/bin/bash\nset -e\ncd \"$REPO_DIR\"\n");
    if has_patch {
        text += &format!("git apply --whitespace=nowarn \"$TESTS_DIR/{TEST_PATCH}\"\n");
    }
    if let Some(command) = &options.pre_test {
        text += &format!("{command}\n");
    }
    let quoted: Vec<String> = paths.iter().map(|path| shell_word(path)).collect();
    text += &format!(
        "rm -rf {REPORT}\n{} -rA --junitxml={REPORT} {}\n",
        options.test_command,
        quoted.join(" ")
    );
    text
}

/// `text` as one word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_patterns_mean_themselves() {
        for (text, word, pattern) in [
            ("tests/test_a.py", "tests/test_a.py", "tests/test_a.py"),
            ("a b.py", "'a b.py'", "a b.py"),
            ("it's", "'it'\\''s'", "it's"),
            ("$(id)", "'$(id)'", "$(id)"),
            ("a[1]*.py", "'a[1]*.py'", "a[[]1[]][*].py"),
        ] {
            assert_eq!((shell_word(text).as_str(), escaped(text).as_str()), (word, pattern));
            assert!(
                globset::Glob::new(pattern).unwrap().compile_matcher().is_match(text),
                "{text}"
            );
        }
    }
}
