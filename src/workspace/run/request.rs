//! The body of `POST W/run`, and what it means.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::config::{RequestRange, RequestRanges};
use crate::workspace::error::EngineError;
use crate::workspace::kernels::KernelLanguage;
use crate::workspace::request::{LimitsRequest, ProgramLimits, check_env, decode, pick};
use cofferdam_core::job::TextEncoding;

/// The longest name of a skill, bytes.
const SKILL_BYTES_MAX: usize = 256;

/// The body of `POST W/run`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The program: a name that `PATH` finds, or a path.
    pub cmd: String,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Its variables.
    pub env: Option<BTreeMap<String, String>>,
    /// Its working directory.
    pub cwd: Option<String>,
    /// Its standard input.
    pub stdin: Option<String>,
    /// How `stdin` is written.
    pub encoding: Option<TextEncoding>,
    /// The skill that it belongs to.
    pub skill: Option<String>,
    /// Its wall-clock time, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Its limits, where they differ from the workspace's.
    pub limits: Option<LimitsRequest>,
}

/// A program to run, as a request means it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSettings {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The skill that it belongs to: a variable that those of the workspace hide.
    pub skill: Option<String>,
    /// Its own variables.
    pub env: BTreeMap<String, String>,
    /// Its working directory, by the path rule; the workspace if none.
    pub cwd: Option<String>,
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// Its wall-clock time.
    pub timeout: Duration,
    /// Its limits.
    pub limits: ProgramLimits,
    /// Whether it gets a terminal, or input while it runs.
    pub is_interactive: bool,
    /// The language, if it is a kernel.
    pub kernel: Option<KernelLanguage>,
}

impl RunRequest {
    /// The settings that the request means in a workspace with the limits `defaults`. `timeouts` is
    /// the range of its time.
    ///
    /// # Errors
    /// The first wrong value.
    pub fn resolve(
        self,
        defaults: ProgramLimits,
        ranges: &RequestRanges,
        timeouts: RequestRange,
    ) -> Result<ProgramSettings, EngineError> {
        if self.cmd.is_empty() {
            return Err(EngineError::invalid("cmd", "want a program"));
        }
        check_no_nul("cmd", &self.cmd)?;
        let args = self.args.unwrap_or_default();
        for (index, arg) in args.iter().enumerate() {
            check_no_nul(&format!("args[{index}]"), arg)?;
        }
        if let Some(skill) = &self.skill {
            check_no_nul("skill", skill)?;
            if skill.is_empty() || skill.len() > SKILL_BYTES_MAX {
                let words = format!("want 1 to {SKILL_BYTES_MAX} bytes");
                return Err(EngineError::invalid("skill", words));
            }
        }
        let env = self.env.unwrap_or_default();
        check_env("env", &env)?;
        let encoding = self.encoding.unwrap_or_default();
        let timeout = pick(timeouts, "timeout_ms", self.timeout_ms)?;
        Ok(ProgramSettings {
            argv: std::iter::once(self.cmd).chain(args).collect(),
            skill: self.skill,
            env,
            cwd: self.cwd,
            stdin: decode(encoding, "stdin", self.stdin.unwrap_or_default())?,
            timeout: Duration::from_millis(timeout),
            limits: defaults.with(self.limits.as_ref(), ranges)?,
            is_interactive: false,
            kernel: None,
        })
    }
}

fn check_no_nul(path: &str, text: &str) -> Result<(), EngineError> {
    if text.contains('\0') { Err(EngineError::invalid(path, "holds a NUL")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use cofferdam_core::json::parse_object;

    fn resolve(body: &Value) -> Result<ProgramSettings, EngineError> {
        let range = |default, max| RequestRange { default, max };
        let ranges = RequestRanges { memory_mb: range(64, 128), ..RequestRanges::default() };
        let request: RunRequest = parse_object(body.to_string().as_bytes()).unwrap();
        request.resolve(ProgramLimits::default_of(&ranges), &ranges, range(10_000, 60_000))
    }

    #[test]
    fn a_request_means_a_program_with_its_input_and_limits() {
        let settings = resolve(&json!({
            "cmd": "cat", "args": ["-n"], "env": {"A": "1"}, "stdin": "/+A=", "encoding": "base64",
            "skill": "s", "limits": {"memory_mb": 100},
        }))
        .unwrap();
        assert_eq!(settings.argv, ["cat", "-n"]);
        assert_eq!(settings.stdin, [0xFF, 0xE0]);
        assert_eq!(settings.skill.as_deref(), Some("s"));
        assert_eq!(settings.timeout, Duration::from_secs(10));
        assert_eq!(settings.limits.memory_mb, 100);
    }

    #[test]
    fn a_wrong_value_is_named() {
        for (body, path) in [
            (json!({"cmd": ""}), "cmd"),
            (json!({"cmd": "a\0"}), "cmd"),
            (json!({"cmd": "a", "args": ["x", "\0"]}), "args[1]"),
            (json!({"cmd": "a", "env": {"1": "x"}}), "env"),
            (json!({"cmd": "a", "stdin": "?", "encoding": "base64"}), "stdin"),
            (json!({"cmd": "a", "skill": ""}), "skill"),
            (json!({"cmd": "a", "timeout_ms": 60_001}), "timeout_ms"),
            (json!({"cmd": "a", "limits": {"memory_mb": 129}}), "limits.memory_mb"),
        ] {
            assert_eq!(resolve(&body).unwrap_err().details["path"], path, "{body}");
        }
    }
}
