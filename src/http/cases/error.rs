//! Errors of runs of Cases as HTTP has them.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::case::service::CaseRunsError;

/// Returns the status and the label of the metric.
pub fn status_of(error: &CaseRunsError) -> (StatusCode, &'static str) {
    match error {
        CaseRunsError::Invalid { .. } | CaseRunsError::InvalidCase { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, "invalid")
        }
        CaseRunsError::PathDenied | CaseRunsError::Denied(_) => (StatusCode::FORBIDDEN, "invalid"),
        CaseRunsError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        CaseRunsError::QueueFull { .. } => (StatusCode::SERVICE_UNAVAILABLE, "queue_full"),
        CaseRunsError::Draining { .. } => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        CaseRunsError::NotFound => (StatusCode::NOT_FOUND, "not_found"),
        CaseRunsError::IdempotencyConflict | CaseRunsError::HasEnded => {
            (StatusCode::CONFLICT, "conflict")
        }
        CaseRunsError::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

/// Returns in how many seconds a retry may succeed; at least one.
pub fn retry_after_seconds(error: &CaseRunsError) -> Option<u64> {
    let (CaseRunsError::QueueFull { retry_after, .. } | CaseRunsError::Draining { retry_after }) =
        error
    else {
        return None;
    };
    let begun = retry_after.subsec_nanos() > 0;
    Some(retry_after.as_secs().saturating_add(begun.into()).max(1))
}

/// Returns the body of an answer.
pub fn body(error: &CaseRunsError) -> Value {
    json!({ "code": error.code(), "message": error.to_string(), "details": error.details() })
}
