//! Where a job is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A job's state, by its word on the wire.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// Taken, not begun.
    Queued,
    /// A worker has it.
    Running,
    /// The program ended with 0.
    Completed,
    /// The program ended otherwise, or a limit other than time ended it.
    Failed,
    /// `limits.timeout_ms` was over.
    TimedOut,
    /// The policy did not allow it; nothing of it has run.
    PolicyDenied,
    /// Its workspace or its program could not be set up; nothing of it has run.
    SetupFailed,
    /// The backend it asks for is not to be had here; nothing of it has run.
    BackendUnavailable,
    /// Somebody asked for its end.
    Canceled,
}

impl JobStatus {
    /// Every one, live ones first.
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

    /// Whether nothing of it will change any more.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }

    /// Its word on the wire.
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

    /// The state of that word.
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
