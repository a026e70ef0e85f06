//! Why there is no base for an evaluation.

use serde_json::{Map, Value, json};

use cofferdam_core::{LimitKind, SetupFailure};

/// Bytes of output that an error quotes.
pub const TAIL_BYTES_MAX: usize = 4096;

/// Why there is no base. The agent has no part in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// The repository may not be reached.
    #[error("repo: {reason}")]
    UrlDenied {
        /// Why.
        reason: String,
    },
    /// git failed.
    #[error("the clone failed: {message}")]
    CloneFailed {
        /// What git said last, or the limit that it hit.
        message: String,
        /// The limit, if one ended it.
        limit: Option<LimitKind>,
    },
    /// The repository has no such commit.
    #[error("base_commit: the repository has no commit {commit:?}")]
    CommitNotFound {
        /// As the task names it.
        commit: String,
    },
    /// The repository is larger than allowed.
    #[error("the repository needs more than {bytes_max} bytes (disk quota)")]
    TooLarge {
        /// What is allowed.
        bytes_max: u64,
    },
    /// A command of install did not succeed.
    #[error("install: {command:?} {}", how_install_ended(*.exit_code, *.limit))]
    InstallFailed {
        /// The command.
        command: String,
        /// Its exit code, if it exited.
        exit_code: Option<u8>,
        /// What it printed last.
        tail: String,
        /// The limit, if one ended it.
        limit: Option<LimitKind>,
    },
    /// The evaluation was cancelled meanwhile.
    #[error("cancelled")]
    Cancelled,
    /// The evaluation's time was over while it waited for another to make the same.
    #[error("the session's time is over")]
    Expired,
    /// A sandbox could not be made.
    #[error(transparent)]
    Sandbox(#[from] SetupFailure),
    /// The cache cannot be read or written.
    #[error("cache: {0}")]
    Cache(String),
}

fn how_install_ended(exit_code: Option<u8>, limit: Option<LimitKind>) -> String {
    match (limit, exit_code) {
        (Some(LimitKind::Disk), _) => "went over the disk quota".to_owned(),
        (Some(limit), _) => format!("went over the limit {}", limit.word()),
        (None, Some(code)) => format!("exited with {code}"),
        (None, None) => "was killed".to_owned(),
    }
}

impl RepositoryError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UrlDenied { .. } => "repo.url_denied",
            Self::CloneFailed { .. } => "repo.clone_failed",
            Self::CommitNotFound { .. } => "repo.commit_not_found",
            Self::TooLarge { .. } => "repo.too_large",
            Self::InstallFailed { .. } => "install.failed",
            Self::Cancelled => "evaluation.cancelled",
            Self::Expired => "session.expired",
            Self::Sandbox(_) | Self::Cache(_) => "sandbox.failed",
        }
    }

    /// The limit that was hit, if one was.
    pub fn limit(&self) -> Option<&'static str> {
        match self {
            Self::CloneFailed { limit, .. } | Self::InstallFailed { limit, .. } => {
                limit.map(LimitKind::word)
            }
            Self::TooLarge { .. } => Some("disk"),
            Self::Expired => Some("session"),
            _ => None,
        }
    }

    /// Further fields of the failure.
    pub fn details(&self) -> Map<String, Value> {
        let details = match self {
            Self::InstallFailed { command, exit_code, tail, .. } => {
                json!({"command": command, "exit_code": exit_code, "tail": tail})
            }
            Self::CommitNotFound { commit } => json!({"commit": commit}),
            Self::TooLarge { bytes_max } => json!({"bytes_max": bytes_max}),
            _ => Value::Null,
        };
        match details {
            Value::Object(details) => details,
            _ => Map::new(),
        }
    }
}

/// The last [`TAIL_BYTES_MAX`] bytes of `bytes` as text.
pub fn tail_of(bytes: &[u8]) -> String {
    let from = bytes.len().saturating_sub(TAIL_BYTES_MAX);
    String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_install_that_failed_names_command_exit_code_and_tail() {
        let error = RepositoryError::InstallFailed {
            command: "make".to_owned(),
            exit_code: Some(7),
            tail: "no rule".to_owned(),
            limit: None,
        };
        assert_eq!((error.code(), error.limit()), ("install.failed", None));
        assert_eq!(error.to_string(), "install: \"make\" exited with 7");
        let details = json!({"command": "make", "exit_code": 7, "tail": "no rule"});
        assert_eq!(Value::Object(error.details()), details);
    }

    #[test]
    fn a_full_disk_is_called_a_disk_quota() {
        let install = RepositoryError::InstallFailed {
            command: "x".to_owned(),
            exit_code: Some(1),
            tail: String::new(),
            limit: Some(LimitKind::Disk),
        };
        for error in [install, RepositoryError::TooLarge { bytes_max: 1 }] {
            assert_eq!(error.limit(), Some("disk"));
            assert!(error.to_string().contains("disk quota"), "{error}");
        }
    }
}
