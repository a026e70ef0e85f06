//! How the work of a harness ended, and why it did not.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::case::cell::{ExecError, ExecResult};
use cofferdam_core::job::{StreamRecord, TextEncoding};
use cofferdam_core::{LimitKind, Outcome};

/// Bytes of an agent's output that are kept.
pub const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Characters of what was said last that an error keeps.
const TAIL_CHARS_MAX: usize = 2000;

/// The agent has ended. It is graded, however it did.
#[derive(Debug, Clone, PartialEq)]
pub struct HarnessEnd {
    /// How it ended, and what it used.
    pub agent: AgentSummary,
    /// What it wrote, for people.
    pub output: String,
}

/// How an agent ended, and what it used: `agent` of a result, but for the files that were protected.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentSummary {
    /// How it ended, a word of `X-Run-Outcome`.
    pub outcome: &'static str,
    /// Its exit code, if it has one.
    pub exit_code: Option<u8>,
    /// How long it worked, milliseconds.
    pub wall_ms: u64,
    /// What the model read and wrote, if known.
    pub tokens: Option<AgentTokens>,
    /// What that cost, if prices are known.
    pub cost_usd: Option<f64>,
}

/// What a model read and wrote, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentTokens {
    /// Read.
    #[serde(rename = "in")]
    pub read: u64,
    /// Written.
    #[serde(rename = "out")]
    pub written: u64,
}

/// Why an agent could not work to its end, through no fault of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HarnessError {
    /// What it was.
    pub fault: HarnessFault,
    /// The same in words.
    pub message: String,
    /// The last of what was said about it.
    pub tail: String,
}

/// A word for what kept an agent from its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HarnessFault {
    /// `harness.failed`.
    Failed,
    /// `harness.timed_out`.
    TimedOut,
}

impl HarnessEnd {
    /// The end of an agent that is one command.
    pub(super) fn of_command(result: &ExecResult, wall_ms: u64) -> Self {
        let agent = AgentSummary {
            outcome: result.outcome,
            exit_code: result.exit_code,
            wall_ms,
            tokens: None,
            cost_usd: None,
        };
        let mut end = Self { agent, output: String::new() };
        for stream in [&result.stdout, &result.stderr] {
            end.add_output(&shown(stream));
        }
        end
    }

    /// The end of an agent that is no program of its own.
    pub(super) fn of(outcome: Outcome, wall_ms: u64, output: String) -> Self {
        let agent = AgentSummary {
            outcome: outcome.word(),
            exit_code: match outcome {
                Outcome::Exited { code } => Some(code),
                _ => None,
            },
            wall_ms,
            tokens: None,
            cost_usd: None,
        };
        Self { agent, output }
    }

    /// Adds to what the agent wrote, up to [`OUTPUT_BYTES_MAX`].
    pub(super) fn add_output(&mut self, text: &str) {
        let room = OUTPUT_BYTES_MAX.saturating_sub(self.output.len());
        self.output.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
    }
}

/// The end of an agent whose time is over.
pub(super) const LATE: Outcome = Outcome::LimitHit { kind: LimitKind::WallTime, code: None };

impl HarnessError {
    /// `harness.failed`, with these words.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { fault: HarnessFault::Failed, message: message.into(), tail: String::new() }
    }

    /// `harness.timed_out`, with these words.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self { fault: HarnessFault::TimedOut, ..Self::failed(message) }
    }

    /// The same with the end of what was said.
    #[must_use]
    pub fn with_tail(mut self, said: &str) -> Self {
        let chars = said.chars().count();
        self.tail = said.chars().skip(chars.saturating_sub(TAIL_CHARS_MAX)).collect();
        self
    }
}

/// The Cell could not run a command.
impl From<ExecError> for HarnessError {
    fn from(error: ExecError) -> Self {
        Self::failed(error.message)
    }
}

impl HarnessFault {
    /// The code of a trial's error.
    pub fn code(self) -> &'static str {
        match self {
            Self::Failed => "harness.failed",
            Self::TimedOut => "harness.timed_out",
        }
    }
}

/// The time since `started`, milliseconds.
pub(super) fn millis_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A stream for people: bytes that are no text are not shown.
pub(super) fn shown(stream: &StreamRecord) -> String {
    match stream.encoding {
        TextEncoding::Utf8 if stream.truncated => {
            format!("{}\n[{} bytes in all]\n", stream.text, stream.bytes)
        }
        TextEncoding::Utf8 => stream.text.clone(),
        TextEncoding::Base64 => format!("[{} bytes that are not UTF-8]\n", stream.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_keys_of_the_contract() {
        let tokens = Some(AgentTokens { read: 3, written: 4 });
        let mut agent = HarnessEnd::of(Outcome::Exited { code: 1 }, 5, String::new()).agent;
        (agent.tokens, agent.cost_usd) = (tokens, Some(0.5));
        let wanted = r#"{"outcome":"exited","exit_code":1,"wall_ms":5,"tokens":{"in":3,"out":4},"cost_usd":0.5}"#;
        assert_eq!(serde_json::to_string(&agent).unwrap(), wanted);
        let late = HarnessEnd::of(LATE, 5, String::new()).agent;
        assert_eq!((late.outcome, late.exit_code), ("timed_out", None));
    }

    #[test]
    fn the_tail_of_an_error_is_the_end_in_whole_characters() {
        let said = format!("a{}", "é".repeat(2000));
        let error = HarnessError::failed("m").with_tail(&said);
        assert_eq!((error.tail, error.fault.code()), ("é".repeat(2000), "harness.failed"));
        assert_eq!(HarnessError::timed_out("m").fault.code(), "harness.timed_out");
    }
}
