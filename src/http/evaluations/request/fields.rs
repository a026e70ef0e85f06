//! What the fields of a request may be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::egress::{EGRESS_PORT, proxy_environment};
use crate::evaluation::repository::phase_environment;
use crate::evaluation::request::AgentLanguage;
use crate::evaluation::request::{EvaluatedWork, TaskPlace};
use crate::evaluation::service::EvaluationsError;
use crate::evaluation::web_url::WebUrl;
use cofferdam_core::WorkspacePath;
use cofferdam_core::json::{JsonFault, parse_object};

/// Variables of an agent.
const ENV_NAMES_MAX: usize = 64;
/// The longest name of a variable, a label or an agent, bytes.
const NAME_BYTES_MAX: usize = 256;
/// Labels of an evaluation.
const LABELS_MAX: usize = 16;
/// The longest value of a label, bytes.
const LABEL_BYTES_MAX: usize = 4096;
/// Commands of `agent_install`.
const COMMANDS_MAX: usize = 1000;
/// The longest of them, bytes: half of what the kernel takes as one word of a program.
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// The digits of a SHA-256.
const SHA256_DIGITS: usize = 64;
/// Variables that only single phases have.
const PHASE_VARIABLES: [&str; 2] = ["TASK_PROMPT", "TESTS_DIR"];

/// Every variable that the service sets itself.
static OURS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let phases = phase_environment(&WorkspacePath::default()).into_keys();
    let proxy = proxy_environment(EGRESS_PORT, false).into_iter().map(|(name, _)| name);
    phases.chain(proxy).chain(PHASE_VARIABLES.map(str::to_owned)).collect()
});

type Checked<T> = Result<T, EvaluationsError>;

/// A fault of a field.
pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> EvaluationsError {
    EvaluationsError::invalid(field, message)
}

/// Parses a body that is one JSON object.
pub fn parse_body<T: DeserializeOwned>(body: &[u8]) -> Checked<T> {
    parse_object(body).map_err(|fault| match fault {
        JsonFault::NotJson { line, column } => EvaluationsError::Invalid {
            field: "body".to_owned(),
            message: fault.to_string(),
            details: json!({ "line": line, "column": column }),
        },
        JsonFault::Invalid { path, words } => {
            let field = if path == "." { "body".to_owned() } else { path.clone() };
            let message = words.strip_prefix(&format!("{path}: ")).unwrap_or(&words);
            invalid(field, message)
        }
    })
}

/// The agent or the patch, whose fields are below `path`.
pub fn work(
    path: &str,
    code: Option<String>,
    patch: Option<String>,
    language: Option<&str>,
    code_bytes_max: u64,
) -> Checked<EvaluatedWork> {
    let language = match language {
        Some(name) => AgentLanguage::of_name(name).ok_or_else(|| unknown_language(path))?,
        None => AgentLanguage::Python,
    };
    match (code, patch) {
        (Some(_), Some(_)) => {
            Err(invalid(format!("{path}patch"), "agent_code is given too: only one may be"))
        }
        (None, None) => Err(invalid(format!("{path}agent_code"), "missing; want it, or patch")),
        (None, Some(patch)) => Ok(EvaluatedWork::Patch(patch.into_bytes())),
        (Some(code), None) if code.is_empty() || code.len() as u64 > code_bytes_max => {
            let message = format!("want 1 to {code_bytes_max} bytes");
            Err(invalid(format!("{path}agent_code"), message))
        }
        (Some(code), None) => Ok(EvaluatedWork::Agent { code: code.into_bytes(), language }),
    }
}

fn unknown_language(path: &str) -> EvaluationsError {
    let known: Vec<Value> = AgentLanguage::names().map(Value::from).collect();
    EvaluationsError::Invalid {
        field: format!("{path}agent_language"),
        message: "unknown language".to_owned(),
        details: json!({ "known": known }),
    }
}

/// The task, whose fields are below `path`.
pub fn task(path: &str, url: String, sha256: Option<String>) -> Checked<TaskPlace> {
    WebUrl::parse(&url).map_err(|reason| invalid(format!("{path}task_url"), reason))?;
    let is_digest = |text: &String| {
        text.len() == SHA256_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if sha256.as_ref().is_some_and(|text| !is_digest(text)) {
        return Err(invalid(format!("{path}task_sha256"), "want 64 hexadecimal digits"));
    }
    Ok(TaskPlace::Url { url, sha256: sha256.map(|text| text.to_ascii_lowercase()) })
}

/// The variables of the agent.
pub fn agent_env(path: &str, env: &BTreeMap<String, String>) -> Checked<()> {
    let field = format!("{path}agent_env");
    if env.len() > ENV_NAMES_MAX {
        return Err(invalid(field, format!("more than {ENV_NAMES_MAX} names")));
    }
    for (name, value) in env {
        agent_variable(&field, name)?;
        if value.contains('\0') {
            return Err(invalid(format!("{field}.{}", shown(name)), "the value holds a NUL"));
        }
    }
    Ok(())
}

/// The name of a variable in `field` that only the agent has.
pub fn agent_variable(field: &str, name: &str) -> Checked<()> {
    let reason = if !is_variable(name) {
        "want a name of letters, digits and _, no digit first"
    } else if OURS.contains(name) {
        "the service sets this variable itself"
    } else if name.starts_with("LD_") {
        "no variable of the dynamic linker may be set"
    } else {
        return Ok(());
    };
    Err(invalid(format!("{field}.{}", shown(name)), reason))
}

fn is_variable(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_fine)
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// The beginning of a name that a client chose.
fn shown(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default()
}

/// Commands for a shell.
pub fn commands(field: &str, commands: &[String]) -> Checked<()> {
    if commands.len() > COMMANDS_MAX {
        return Err(invalid(field, format!("more than {COMMANDS_MAX} commands")));
    }
    let is_wrong = |command: &String| {
        command.trim().is_empty() || command.contains('\0') || command.len() > COMMAND_BYTES_MAX
    };
    match commands.iter().position(is_wrong) {
        Some(index) => {
            let words = format!("want a command of 1 to {COMMAND_BYTES_MAX} bytes, without NUL");
            Err(invalid(format!("{field}[{index}]"), words))
        }
        None => Ok(()),
    }
}

/// The labels.
pub fn labels(labels: &BTreeMap<String, String>) -> Checked<()> {
    if labels.len() > LABELS_MAX {
        return Err(invalid("labels", format!("more than {LABELS_MAX}")));
    }
    for (name, value) in labels {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            let message = format!("want a name of 1 to {NAME_BYTES_MAX} bytes");
            return Err(invalid(format!("labels.{}", shown(name)), message));
        }
        if value.len() > LABEL_BYTES_MAX {
            let message = format!("want at most {LABEL_BYTES_MAX} bytes");
            return Err(invalid(format!("labels.{name}"), message));
        }
    }
    Ok(())
}

/// The name of a directory.
pub fn rootfs(name: &str) -> Checked<()> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_fine)
        && !name.starts_with('.');
    if is_name { Ok(()) } else { Err(invalid("rootfs", "want the name of a directory")) }
}

/// The name of an agent of a batch.
pub fn agent_name(field: &str, name: &str) -> Checked<()> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control) {
        return Ok(());
    }
    Err(invalid(field, format!("want a name of 1 to {NAME_BYTES_MAX} bytes")))
}
