//! What executing code takes and returns.

use serde::{Deserialize, Serialize};

use super::code_blocks::CodeBlock;
use cofferdam_core::job::TextEncoding;

/// The code to execute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeExecutionInput {
    /// The blocks, executed in this order.
    pub code_blocks: Vec<CodeBlock>,
    /// The label of the workspace to execute them in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub execution_id: String,
}

/// What executing code returned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeExecutionResult {
    /// The output of all blocks.
    pub output: String,
    /// The files that were collected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<File>,
}

/// A file with its content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// The path in the workspace.
    pub name: String,
    /// The content, or the beginning of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// The encoding of `content`.
    pub encoding: TextEncoding,
    /// The media type.
    pub mime_type: String,
    /// The size of the file, which can be more than that of `content`.
    #[serde(skip_serializing_if = "is_zero")]
    pub size_bytes: u64,
    /// Whether `content` is only the beginning.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Describes `result` for people and models: the output, then the names of the files.
pub fn result_string(result: &CodeExecutionResult) -> String {
    let CodeExecutionResult { output, output_files } = result;
    if output.is_empty() && output_files.is_empty() {
        return "Code execution result: No output or errors.".to_owned();
    }
    let mut text = "Code execution result:\n".to_owned();
    if !output.is_empty() {
        text.push_str(output);
        text.push('\n');
    }
    if !output_files.is_empty() {
        let names: Vec<&str> = output_files.iter().map(|file| file.name.as_str()).collect();
        text.push_str(" Saved output files:\n");
        text.push_str(&names.join("\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_described_with_its_output_and_its_files() {
        for (output, names, text) in [
            ("hello world", &[][..], "Code execution result:\nhello world\n"),
            ("", &["a.txt", "b.log"], "Code execution result:\n Saved output files:\na.txt\nb.log"),
            ("out", &["a"], "Code execution result:\nout\n Saved output files:\na"),
            ("", &[], "Code execution result: No output or errors."),
        ] {
            let file = |name: &&str| File { name: (*name).to_owned(), ..File::default() };
            let output_files = names.iter().map(file).collect();
            let result = CodeExecutionResult { output: output.to_owned(), output_files };
            assert_eq!(result_string(&result), text);
        }
    }

    #[test]
    fn a_file_leaves_out_what_it_does_not_have() {
        let file = File { name: "a".to_owned(), mime_type: "x/y".to_owned(), ..File::default() };
        let bare = json!({"name": "a", "mime_type": "x/y", "encoding": "utf-8"});
        assert_eq!(serde_json::to_value(&file).unwrap(), bare);
        let full = json!({"name": "a", "content": "c", "encoding": "base64", "mime_type": "x/y",
                          "size_bytes": 10, "truncated": true});
        let read: File = serde_json::from_value(full.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), full);
    }
}
