//! Code blocks: found in text, and mapped to commands.

use serde::{Deserialize, Serialize};

use super::constants::{DEFAULT_EXEC_FILE_MODE, DEFAULT_SCRIPT_FILE_MODE};
use crate::workspace::error::EngineError;

/// One block of code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeBlock {
    /// The code.
    pub code: String,
    /// The name of its language.
    pub language: String,
}

/// What encloses a code block in a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeBlockDelimiter {
    /// The beginning, which the language follows on the same line.
    pub start: String,
    /// The end.
    pub end: String,
}

impl Default for CodeBlockDelimiter {
    /// The fences of Markdown.
    fn default() -> Self {
        Self { start: "```".to_owned(), end: "```".to_owned() }
    }
}

/// The file and the command that execute a code block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockSpec {
    /// The name of the file with the code.
    pub file: String,
    /// The permissions of the file.
    pub mode: u32,
    /// The program that executes the file.
    pub cmd: String,
    /// The arguments before the file.
    pub args: Vec<String>,
}

/// Finds the code blocks of `input`.
///
/// After a start delimiter, the rest of the line is the language. The code is what lies between that
/// line and the next end delimiter. A delimiter without a line's end after it starts no block.
pub fn extract_code_blocks(input: &str, delimiter: &CodeBlockDelimiter) -> Vec<CodeBlock> {
    let CodeBlockDelimiter { start, end } = delimiter;
    let mut blocks = Vec::new();
    if start.is_empty() || end.is_empty() {
        return blocks;
    }
    let mut rest = input;
    while let Some((language, code, behind)) = first_block(rest, start, end) {
        blocks.push(CodeBlock { code: code.to_owned(), language: language.trim().to_owned() });
        rest = behind;
    }
    blocks
}

/// The language and the code of the first block of `text`, and the text behind it.
fn first_block<'a>(text: &'a str, start: &str, end: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (_, opened) = text.split_once(start)?;
    let (language, body) = opened.split_once('\n')?;
    let (code, behind) = body.split_once(end)?;
    Some((language, code, behind))
}

/// The file and the command for the code block `block`, the `index`th of its request.
///
/// # Errors
/// The language is not one that can be executed.
pub fn build_block_spec(index: usize, block: &CodeBlock) -> Result<BlockSpec, EngineError> {
    let (extension, mode, cmd) = match block.language.trim().to_lowercase().as_str() {
        "python" | "py" | "python3" => ("py", DEFAULT_SCRIPT_FILE_MODE, "python3"),
        "bash" | "sh" => ("sh", DEFAULT_EXEC_FILE_MODE, "bash"),
        _ => {
            let words = format!("unsupported language: {}", block.language);
            return Err(EngineError::invalid("block.language", words));
        }
    };
    let file = format!("code_{index}.{extension}");
    Ok(BlockSpec { file, mode, cmd: cmd.to_owned(), args: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delimiter(start: &str, end: &str) -> CodeBlockDelimiter {
        CodeBlockDelimiter { start: start.to_owned(), end: end.to_owned() }
    }

    #[test]
    fn a_block_is_what_lies_between_its_opening_line_and_the_next_end() {
        let fences = CodeBlockDelimiter::default();
        let tags = delimiter("<code>", "</code>");
        let special = delimiter("(.*)", "(.*)");
        for (input, delimiter, wanted) in [
            ("```python\nprint(1)\n```", &fences, &[("python", "print(1)\n")][..]),
            (
                "a\n```go\nf()\n```\ntext\n```js\ng()\n```\nz",
                &fences,
                &[("go", "f()\n"), ("js", "g()\n")],
            ),
            ("```\nplain\n```", &fences, &[("", "plain\n")]),
            ("```  \t python  \nx\n```", &fences, &[("python", "x\n")]),
            ("```python title=a b\nx\n```", &fences, &[("python title=a b", "x\n")]),
            ("```py\r\nx\r\n```", &fences, &[("py", "x\r\n")]),
            ("no block", &fences, &[]),
            ("", &fences, &[]),
            ("```go\n\n```", &fences, &[("go", "\n")]),
            ("```go\n```", &fences, &[("go", "")]),
            ("```python print(1) ```", &fences, &[]),
            ("```python\nnever closed", &fences, &[]),
            ("```a\n1``````b\n2```", &fences, &[("a", "1"), ("b", "2")]),
            // A nested fence ends the block.
            ("```md\n```sh\nls\n```\n```", &fences, &[("md", ""), ("", "")]),
            ("<code>ruby\nputs 1\n</code>", &tags, &[("ruby", "puts 1\n")]),
            ("```ruby\nputs 1\n```", &tags, &[]),
            ("(.*)é\nx(.*)", &special, &[("é", "x")]),
        ] {
            let found = extract_code_blocks(input, delimiter);
            let found: Vec<_> =
                found.iter().map(|block| (block.language.as_str(), block.code.as_str())).collect();
            assert_eq!(found, wanted, "{input:?}");
        }
        for empty in [delimiter("", "```"), delimiter("```", "")] {
            assert_eq!(extract_code_blocks("```a\nb\n```", &empty), []);
        }
    }

    #[test]
    fn a_block_has_the_file_and_the_interpreter_of_its_language() {
        for (index, language, file, mode, cmd) in [
            (1, "python", "code_1.py", 0o644, "python3"),
            (0, "py", "code_0.py", 0o644, "python3"),
            (2, " Python3\n", "code_2.py", 0o644, "python3"),
            (2, "bash", "code_2.sh", 0o755, "bash"),
            (17, "SH", "code_17.sh", 0o755, "bash"),
        ] {
            let block = CodeBlock { code: String::new(), language: language.to_owned() };
            let spec = build_block_spec(index, &block).unwrap();
            let (file, cmd) = (file.to_owned(), cmd.to_owned());
            assert_eq!(spec, BlockSpec { file, mode, cmd, args: Vec::new() }, "{language:?}");
        }
        for language in ["Go", "", " Python 3", "javascript"] {
            let block = CodeBlock { code: String::new(), language: language.to_owned() };
            let error = build_block_spec(0, &block).unwrap_err();
            assert!(error.message.ends_with(&format!("unsupported language: {language}")));
            assert_eq!(error.details["path"], "block.language");
        }
    }
}
