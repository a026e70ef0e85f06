//! The state of a job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// Accepted, not started.
    Queued,
    /// A worker runs it.
    Running,
    /// The program exited with 0.
    Completed,
    /// The program exited with another code or by a signal, or a limit other than time ended it.
    Failed,
    /// The job ran longer than `limits.timeout_ms`.
    TimedOut,
    /// The policy denied it. Nothing ran.
    PolicyDenied,
    /// Its workspace or its program could not be set up. Nothing ran.
    SetupFailed,
    /// Its backend is not available here. Nothing ran.
    BackendUnavailable,
    /// It was canceled.
    Canceled,
}

impl JobStatus {
    /// All states, live ones first.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::PolicyDenied,
        Self::SetupFailed,
        Self::BackendUnavailable,
        Self::Canceled,
    ];

    /// Whether the state is final.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }

    /// Its name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::PolicyDenied => "policy_denied",
            Self::SetupFailed => "setup_failed",
            Self::BackendUnavailable => "backend_unavailable",
            Self::Canceled => "canceled",
        }
    }

    /// The state named `word`.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_what_serde_writes() {
        for status in JobStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.word());
            assert_eq!(JobStatus::parse(status.word()), Some(status));
        }
    }
}
