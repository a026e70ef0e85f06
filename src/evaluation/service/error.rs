//! Why an evaluation is refused, or not found.

use std::time::Duration;

use serde_json::Value;

/// Why the service does not do what it was asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EvaluationsError {
    /// A field of the request is wrong.
    #[error("{field}: {message}")]
    Invalid {
        /// The path of the field.
        field: String,
        /// What is wrong with it, as a clause.
        message: String,
        /// Facts for programs; an object.
        details: Value,
    },
    /// A host that no agent may reach.
    #[error("{field}: {message}")]
    NetworkDenied {
        /// The path of the field.
        field: String,
        /// Why, as a clause.
        message: String,
    },
    /// A secret that the client may not use.
    #[error("{field}: the secret {name:?} is not available")]
    SecretDenied {
        /// The path of the field.
        field: String,
        /// Its name.
        name: String,
    },
    /// The host has no interpreter for the agent.
    #[error("this host cannot run agents in {0}")]
    LanguageUnavailable(String),
    /// Every slot is taken.
    #[error("all {capacity} evaluations are running")]
    AtCapacity {
        /// MAX_CONCURRENT_EVALS.
        capacity: u64,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The service is stopping.
    #[error("the service is stopping")]
    Draining {
        /// When to ask again.
        retry_after: Duration,
    },
    /// There is no such evaluation, or it is another's.
    #[error("no such evaluation")]
    NotFound,
    /// The evaluation is in a state that does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// The key was used for another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyConflict,
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(String),
}

impl EvaluationsError {
    /// A field that is wrong.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let details = Value::Object(serde_json::Map::new());
        Self::Invalid { field: field.into(), message: message.into(), details }
    }

    /// Its code in answers.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "evaluate.invalid_request",
            Self::NetworkDenied { .. } => "policy.network_denied",
            Self::SecretDenied { .. } => "policy.secret_denied",
            Self::LanguageUnavailable(_) => "evaluate.language_unavailable",
            Self::AtCapacity { .. } => "evaluate.at_capacity",
            Self::Draining { .. } => "evaluate.draining",
            Self::NotFound => "evaluate.not_found",
            Self::Conflict(_) | Self::IdempotencyConflict => "evaluate.conflict",
            Self::Store(_) => "evaluate.store_failed",
        }
    }
}
