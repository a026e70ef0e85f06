//! Why a run of a Case is refused, or not found.

use std::time::Duration;

use serde_json::{Value, json};

use crate::case::file::CaseFinding;
use crate::case::harness::CaseDenial;

/// Why the service does not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseRunsError {
    /// A field of the request is wrong: 422.
    #[error("{field}: {message}")]
    Invalid {
        /// The field.
        field: String,
        /// What is wrong with it, as a clause.
        message: String,
    },
    /// The case file is wrong: 422.
    #[error("the Case is not valid: {}", first_of(errors))]
    InvalidCase {
        /// What `case validate` reports.
        errors: Vec<CaseFinding>,
    },
    /// The path is outside of the roots, or in the store: 403.
    #[error("path: the path is not allowed by policy")]
    PathDenied,
    /// The Case uses what a Case by HTTP may not use, at least one thing: 403.
    #[error("{}", first_denial(.0))]
    Denied(Vec<CaseDenial>),
    /// The files of the Case are too large: 413.
    #[error("the files of the Case have more than {bytes_max} bytes")]
    TooLarge {
        /// `CASES_INPUT_MAX`.
        bytes_max: u64,
    },
    /// Too many runs wait: 503.
    #[error("{queue_max} runs are waiting")]
    QueueFull {
        /// `CASES_QUEUE_MAX`.
        queue_max: u64,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The service is stopping: 503.
    #[error("the service is stopping")]
    Draining {
        /// When to ask again.
        retry_after: Duration,
    },
    /// There is no such run, or it is another's: 404.
    #[error("no such run")]
    NotFound,
    /// The key was used for another request: 409.
    #[error("the idempotency key was used for another request")]
    IdempotencyConflict,
    /// The run has ended, so that it cannot be canceled: 409.
    #[error("the run has ended")]
    HasEnded,
    /// The store failed: 500.
    #[error("the store failed: {0}")]
    Store(String),
}

impl CaseRunsError {
    /// A field that is wrong.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }

    /// Its code in answers.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "validation.invalid_request",
            Self::InvalidCase { .. } => "validation.invalid_case",
            Self::PathDenied => "policy.path_denied",
            Self::Denied(denials) => denials.first().map_or("policy.path_denied", |one| one.code),
            Self::TooLarge { .. } => "validation.too_large",
            Self::QueueFull { .. } => "queue.full",
            Self::Draining { .. } => "queue.closed",
            Self::NotFound => "case.not_found",
            Self::IdempotencyConflict | Self::HasEnded => "case.conflict",
            Self::Store(_) => "case.store_failed",
        }
    }

    /// Facts for programs; an object.
    pub fn details(&self) -> Value {
        match self {
            Self::Invalid { field, .. } => json!({ "field": field }),
            Self::InvalidCase { errors } => json!({ "errors": errors }),
            Self::PathDenied => json!({ "field": "path" }),
            Self::Denied(denials) => {
                let entry = |denial: &CaseDenial| json!({ "path": denial.path, "code": denial.code, "message": denial.message });
                json!({ "denials": denials.iter().map(entry).collect::<Vec<_>>() })
            }
            Self::TooLarge { bytes_max } => json!({ "bytes_max": bytes_max }),
            Self::QueueFull { queue_max, .. } => json!({ "queue_max": queue_max }),
            Self::Draining { .. }
            | Self::NotFound
            | Self::IdempotencyConflict
            | Self::HasEnded
            | Self::Store(_) => json!({}),
        }
    }
}

fn first_of(errors: &[CaseFinding]) -> String {
    let first = errors.first();
    first.map_or_else(String::new, |error| match error.path.as_str() {
        "" => error.message.clone(),
        path => format!("{path}: {}", error.message),
    })
}

fn first_denial(denials: &[CaseDenial]) -> String {
    let first = denials.first();
    first.map_or_else(String::new, |denial| format!("{}: {}", denial.path, denial.message))
}
