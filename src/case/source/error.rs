//! Why there is no source, or no fixtures.

use crate::case::file::Availability;
use crate::evaluation::repository::RepositoryError;
use cofferdam_core::LimitKind;

/// Why the source or the fixtures of a Case are not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {fault}")]
pub struct SourceError {
    /// `source` or `fixtures`.
    pub part: &'static str,
    /// Why.
    pub fault: SourceFault,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceFault {
    /// The repository cannot be reached.
    #[error("the repository cannot be reached: {0}")]
    Unreachable(String),
    /// The repository has no such commit.
    #[error("the repository has no commit '{commit}'")]
    CommitNotFound {
        /// As the Case names it.
        commit: String,
    },
    /// The commit has no such directory.
    #[error("the repository has no directory '{subdir}'")]
    NoDirectory {
        /// As the Case names it.
        subdir: String,
    },
    /// The directory is no repository that can be cloned.
    #[error("'{path}' cannot be cloned: {reason}")]
    NoRepository {
        /// The directory.
        path: String,
        /// Why.
        reason: String,
    },
    /// The repository is larger than allowed.
    #[error("the repository needs more than {bytes_max} bytes")]
    TooLarge {
        /// What is allowed.
        bytes_max: u64,
    },
    /// It took too long.
    #[error("it took too long{0}")]
    TimedOut(String),
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// There is no sandbox for git.
    #[error("git cannot run: {0}")]
    NoSandbox(String),
    /// A step failed.
    #[error("{0}")]
    Failed(String),
}

impl SourceFault {
    /// A step that failed with `reason`.
    pub(super) fn of_step(step: &str, reason: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{step}: {reason}"))
    }

    /// The same as a fault of `part` of the Case.
    pub(super) fn of(self, part: &'static str) -> SourceError {
        SourceError { part, fault: self }
    }
}

impl SourceError {
    /// The code of a result.
    pub fn code(&self) -> &'static str {
        match self.fault {
            SourceFault::TimedOut(_) => "source.timed_out",
            SourceFault::NoSandbox(_) => "backend.unavailable",
            SourceFault::TooLarge { .. } => "limit.exceeded",
            _ => "source.failed",
        }
    }

    /// Whether the Cells of a Case with this availability are skipped instead of failed.
    pub fn skips(&self, availability: Availability) -> bool {
        let is_unreachable =
            matches!(self.fault, SourceFault::Unreachable(_) | SourceFault::TimedOut(_));
        availability == Availability::Optional && is_unreachable
    }
}

impl From<RepositoryError> for SourceFault {
    fn from(error: RepositoryError) -> Self {
        match error {
            RepositoryError::UrlDenied { reason } => Self::Unreachable(reason),
            RepositoryError::CloneFailed { message, limit: None } => Self::Unreachable(message),
            RepositoryError::CloneFailed { limit: Some(LimitKind::WallTime), .. } => {
                Self::TimedOut(" to clone the repository".to_owned())
            }
            RepositoryError::CommitNotFound { commit } => Self::CommitNotFound { commit },
            RepositoryError::TooLarge { bytes_max } => Self::TooLarge { bytes_max },
            RepositoryError::Cancelled => Self::Cancelled,
            RepositoryError::Expired => Self::TimedOut(String::new()),
            RepositoryError::Sandbox(failure) => Self::NoSandbox(failure.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::SetupFailure;

    #[test]
    fn only_a_repository_that_cannot_be_reached_skips_an_optional_case() {
        let clone_failed =
            |limit| RepositoryError::CloneFailed { message: "no route".to_owned(), limit };
        let commit = "abc".to_owned();
        for (error, code, skips, words) in [
            (
                clone_failed(None),
                "source.failed",
                true,
                "the repository cannot be reached: no route",
            ),
            (
                RepositoryError::UrlDenied { reason: "h".to_owned() },
                "source.failed",
                true,
                "the repository cannot be reached: h",
            ),
            (
                clone_failed(Some(LimitKind::WallTime)),
                "source.timed_out",
                true,
                "it took too long to clone the repository",
            ),
            (RepositoryError::Expired, "source.timed_out", true, "it took too long"),
            (
                RepositoryError::CommitNotFound { commit },
                "source.failed",
                false,
                "the repository has no commit 'abc'",
            ),
            (
                RepositoryError::TooLarge { bytes_max: 5 },
                "limit.exceeded",
                false,
                "the repository needs more than 5 bytes",
            ),
            (RepositoryError::Cancelled, "source.failed", false, "cancelled"),
            (
                SetupFailure::from_words("mount", "no").into(),
                "backend.unavailable",
                false,
                "git cannot run: sandbox: mount: no",
            ),
        ] {
            let error = SourceFault::from(error).of("source");
            assert_eq!(error.to_string(), format!("source: {words}"));
            assert_eq!(error.code(), code, "{words}");
            assert_eq!(error.skips(Availability::Optional), skips, "{words}");
            assert!(!error.skips(Availability::Required));
        }
    }
}
