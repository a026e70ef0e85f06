//! The harness of an agent with a command line.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::beside::put_beside;
use super::call::{Harness, HarnessCall};
use super::end::{HarnessEnd, HarnessError, millis_since};
use crate::case::cell::{CellExecutor, ExecRequest};

const PROMPT_FILE: &str = "{prompt_file}";

/// Runs a command line, in which placeholders stand for the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandHarness {
    /// The words, with placeholders.
    pub argv: Vec<String>,
    /// Variables of the program.
    pub env: BTreeMap<String, String>,
}

/// What the placeholders of a command line stand for.
#[derive(Debug, Clone, Copy)]
struct PromptValues<'a> {
    prompt: &'a str,
    prompt_file: &'a str,
    model: &'a str,
    sandbox: &'a str,
}

impl Harness for CommandHarness {
    fn work(
        &self,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError> {
        let started = Instant::now();
        let prompt = call.prompt.whole_text();
        let sandbox = cell.describe()?.sandbox.display().to_string();
        let prompt_file = match self.argv.iter().any(|word| word.contains(PROMPT_FILE)) {
            true => put_beside(cell, "prompt.md", prompt.as_bytes())?,
            false => String::new(),
        };
        let values = PromptValues {
            prompt: &prompt,
            prompt_file: &prompt_file,
            model: call.model,
            sandbox: &sandbox,
        };
        let mut request = ExecRequest::new(self.argv.iter().map(|word| values.fill(word)));
        // The step's time is the only limit.
        request.timeout = Duration::MAX;
        let result = call.run(cell, request, &self.env)?;
        Ok(HarnessEnd::of_command(&result, millis_since(started)))
    }
}

impl<'a> PromptValues<'a> {
    /// The word with values in place of its placeholders. A value is taken as it is, and so are other braces.
    fn fill(self, word: &str) -> String {
        let mut filled = String::new();
        let mut rest = word;
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            filled.push_str(before);
            rest = match self.value_at(from) {
                Some((value, behind)) => {
                    filled.push_str(value);
                    behind
                }
                None => {
                    filled.push('{');
                    from.strip_prefix('{').unwrap_or_default()
                }
            };
        }
        filled.push_str(rest);
        filled
    }

    /// The value of the placeholder with which `text` begins, and what comes behind it.
    fn value_at<'w>(self, text: &'w str) -> Option<(&'a str, &'w str)> {
        let values = [
            ("{prompt}", self.prompt),
            (PROMPT_FILE, self.prompt_file),
            ("{model}", self.model),
            ("{sandbox}", self.sandbox),
        ];
        values.iter().find_map(|(name, value)| Some((*value, text.strip_prefix(name)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_once_and_other_braces_stay() {
        let values = PromptValues {
            prompt: "say {model}",
            prompt_file: "/tmp/p",
            model: "m",
            sandbox: "/workspace",
        };
        for (word, wanted) in [
            ("agent", "agent"),
            ("", ""),
            ("{prompt}", "say {model}"),
            ("--file={prompt_file}", "--file=/tmp/p"),
            ("{model}:{sandbox}/a", "m:/workspace/a"),
            ("{{model}}", "{m}"),
            ("{other} {", "{other} {"),
            ("{prompt", "{prompt"),
            ("é{model}é", "émé"),
        ] {
            assert_eq!(values.fill(word), wanted, "{word}");
        }
    }
}
