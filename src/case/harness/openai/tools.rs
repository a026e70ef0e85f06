//! The tools of a model: how they are described to it, and what it asks of them (pure).

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::ToolRequest;

/// How long a command may run that names no time, seconds.
const BASH_SECONDS: u64 = 120;
/// The longest time that a command may name, seconds.
const BASH_SECONDS_MAX: u64 = 600;
/// How many lines of a file are shown unless more are asked for.
const LINES_DEFAULT: usize = 2000;

/// A tool with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolAsked {
    /// Runs a command.
    Bash { command: String, seconds: u64 },
    /// Shows lines of a file.
    ReadFile { path: String, first_line: usize, lines_max: usize },
    /// Writes a file.
    WriteFile { path: String, content: String },
    /// Replaces one text of a file.
    EditFile { path: String, old: String, new: String },
    /// Searches files for a pattern.
    Grep { pattern: String, path: String },
    /// Lists a directory.
    ListDir { path: String },
}

/// All tools, as a request describes them.
pub(super) fn definitions() -> Value {
    let path = json!({"type": "string", "description": "Relative to the working directory."});
    let text = |words: &str| json!({"type": "string", "description": words});
    let number = |words: &str| json!({"type": "integer", "description": words});
    json!([
        tool(
            "bash",
            "Run a shell command in the working directory. Whatever it leaves running is ended with it.",
            &["command"],
            &json!({"command": text("The command."),
                "timeout_s": number("Seconds until it is ended: 120 unless given, at most 600.")}),
        ),
        tool(
            "read_file",
            "Show a text file, or some of its lines.",
            &["path"],
            &json!({"path": path, "offset": number("The first line, from 1."),
                "limit": number("The most lines: 2000 unless given.")}),
        ),
        tool(
            "write_file",
            "Write a whole file. Missing directories are made.",
            &["path", "content"],
            &json!({"path": path, "content": text("The content.")}),
        ),
        tool(
            "edit_file",
            "Replace a text of a file that occurs in it exactly once.",
            &["path", "old", "new"],
            &json!({"path": path, "old": text("The text that is there."),
                "new": text("What replaces it.")}),
        ),
        tool(
            "grep",
            "Search files below a path for an extended regular expression.",
            &["pattern"],
            &json!({"pattern": text("The expression."), "path": path}),
        ),
        tool(
            "list_dir",
            "List a directory. Names of directories end with '/'.",
            &[],
            &json!({"path": path}),
        ),
    ])
}

fn tool(name: &str, description: &str, required: &[&str], properties: &Value) -> Value {
    let parameters = json!({"type": "object", "properties": properties, "required": required});
    let function = json!({"name": name, "description": description, "parameters": parameters});
    json!({"type": "function", "function": function})
}

#[derive(Deserialize)]
struct BashArguments {
    command: String,
    timeout_s: Option<u64>,
}

#[derive(Deserialize)]
struct ReadArguments {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct WriteArguments {
    path: String,
    content: String,
}

#[derive(Deserialize)]
struct EditArguments {
    path: String,
    old: String,
    new: String,
}

#[derive(Deserialize)]
struct GrepArguments {
    pattern: String,
    path: Option<String>,
}

#[derive(Deserialize)]
struct ListArguments {
    path: Option<String>,
}

impl ToolAsked {
    /// Reads what the model asks for.
    ///
    /// # Errors
    /// There is no such tool, or the arguments are not its own: what the model is told.
    pub(super) fn parse(request: &ToolRequest) -> Result<Self, String> {
        let text = &request.arguments;
        let here = |path: Option<String>| path.unwrap_or_else(|| ".".to_owned());
        Ok(match request.name.as_str() {
            "bash" => {
                let BashArguments { command, timeout_s } = arguments(text)?;
                let seconds = timeout_s.unwrap_or(BASH_SECONDS).clamp(1, BASH_SECONDS_MAX);
                Self::Bash { command, seconds }
            }
            "read_file" => {
                let ReadArguments { path, offset, limit } = arguments(text)?;
                let lines_max = limit.unwrap_or(LINES_DEFAULT);
                Self::ReadFile { path, first_line: offset.unwrap_or(1), lines_max }
            }
            "write_file" => {
                let WriteArguments { path, content } = arguments(text)?;
                Self::WriteFile { path, content }
            }
            "edit_file" => {
                let EditArguments { path, old, new } = arguments(text)?;
                Self::EditFile { path, old, new }
            }
            "grep" => {
                let GrepArguments { pattern, path } = arguments(text)?;
                Self::Grep { pattern, path: here(path) }
            }
            "list_dir" => {
                let ListArguments { path } = arguments(text)?;
                Self::ListDir { path: here(path) }
            }
            name => return Err(format!("error: there is no tool '{name}'")),
        })
    }
}

fn arguments<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    serde_json::from_str(text)
        .map_err(|error| format!("error: the arguments are not those of the tool: {error}"))
}

/// `content` with `new` in place of `old`, which has to be there exactly once.
///
/// # Errors
/// It is not: what the model is told.
pub(super) fn edited(content: &str, old: &str, new: &str) -> Result<String, String> {
    if old.is_empty() {
        return Err("error: 'old' is empty".to_owned());
    }
    // Matches may overlap, so they are not counted by `matches`.
    let Some(first) = content.find(old) else {
        return Err("error: 'old' is not in the file".to_owned());
    };
    if content.rfind(old) != Some(first) {
        return Err("error: 'old' is in the file more than once; give more of its lines".to_owned());
    }
    Ok(content.replacen(old, new, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, arguments: &str) -> Result<ToolAsked, String> {
        let (id, name, arguments) = ("c".to_owned(), name.to_owned(), arguments.to_owned());
        ToolAsked::parse(&ToolRequest { id, name, arguments })
    }

    #[test]
    fn arguments_have_their_defaults_and_bounds() {
        let bash = |seconds| ToolAsked::Bash { command: "ls".to_owned(), seconds };
        let read = |first_line, lines_max| ToolAsked::ReadFile {
            path: "a".to_owned(),
            first_line,
            lines_max,
        };
        let here = || ".".to_owned();
        for (name, arguments, wanted) in [
            ("bash", r#"{"command":"ls"}"#, bash(120)),
            ("bash", r#"{"command":"ls","timeout_s":5,"other":1}"#, bash(5)),
            ("bash", r#"{"command":"ls","timeout_s":0}"#, bash(1)),
            ("bash", r#"{"command":"ls","timeout_s":9999}"#, bash(600)),
            ("read_file", r#"{"path":"a"}"#, read(1, 2000)),
            ("read_file", r#"{"path":"a","offset":3,"limit":4}"#, read(3, 4)),
            (
                "grep",
                r#"{"pattern":"x"}"#,
                ToolAsked::Grep { pattern: "x".to_owned(), path: here() },
            ),
            ("list_dir", "", ToolAsked::ListDir { path: here() }),
            ("list_dir", "{}", ToolAsked::ListDir { path: here() }),
        ] {
            assert_eq!(parsed(name, arguments), Ok(wanted), "{name} {arguments}");
        }
    }

    #[test]
    fn what_is_no_call_is_told_to_the_model() {
        for (name, arguments, words) in [
            ("browse", "{}", "no tool 'browse'"),
            ("", "{}", "no tool ''"),
            ("bash", "{broken", "arguments"),
            ("bash", "[]", "arguments"),
            ("bash", "{}", "command"),
            ("bash", r#"{"command":1}"#, "string"),
            ("bash", r#"{"command":"ls","timeout_s":-1}"#, "arguments"),
            ("edit_file", r#"{"path":"a","old":"b"}"#, "new"),
        ] {
            let told = parsed(name, arguments).unwrap_err();
            assert!(told.starts_with("error: ") && told.contains(words), "{told}");
        }
    }

    #[test]
    fn an_edit_replaces_what_is_there_exactly_once() {
        for (content, old, new, wanted) in [
            ("a b c", "b", "x", Some("a x c")),
            ("a b c", "b", "", Some("a  c")),
            ("a b c", "b", "b b", Some("a b b c")),
            ("a b b", "b", "x", None),
            ("aaa", "aa", "x", None),
            ("a", "b", "x", None),
            ("a", "", "x", None),
            ("a\r\nb", "a\nb", "x", None),
        ] {
            assert_eq!(edited(content, old, new).ok().as_deref(), wanted, "{content:?} {old:?}");
        }
    }

    #[test]
    fn every_tool_is_described_with_what_it_requires() {
        let definitions = definitions();
        let names: Vec<_> = definitions.as_array().unwrap().iter().collect();
        assert_eq!(names.len(), 6);
        for tool in names {
            let function = &tool["function"];
            for required in function["parameters"]["required"].as_array().unwrap() {
                let name = required.as_str().unwrap();
                let property = &function["parameters"]["properties"][name];
                assert_eq!(property["type"], "string", "{function}");
            }
        }
    }
}
