//! Errors of evaluations as HTTP has them.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::evaluation::service::EvaluationsError;
use cofferdam_core::job::JobError;

/// Returns the status and the label of the metric.
pub fn status_of(error: &EvaluationsError) -> (StatusCode, &'static str) {
    match error {
        EvaluationsError::Invalid { .. } => (StatusCode::BAD_REQUEST, "invalid"),
        EvaluationsError::NetworkDenied { .. } | EvaluationsError::SecretDenied { .. } => {
            (StatusCode::FORBIDDEN, "invalid")
        }
        EvaluationsError::LanguageUnavailable(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
        EvaluationsError::AtCapacity { .. } => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        EvaluationsError::Draining { .. } => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        EvaluationsError::NotFound => (StatusCode::NOT_FOUND, "not_found"),
        EvaluationsError::Conflict(_) | EvaluationsError::IdempotencyConflict => {
            (StatusCode::CONFLICT, "conflict")
        }
        EvaluationsError::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

/// Returns in how many seconds a retry may succeed; at least one.
pub fn retry_after_seconds(error: &EvaluationsError) -> Option<u64> {
    let (EvaluationsError::AtCapacity { retry_after, .. }
    | EvaluationsError::Draining { retry_after }) = error
    else {
        return None;
    };
    let begun = retry_after.subsec_nanos() > 0;
    Some(retry_after.as_secs().saturating_add(begun.into()).max(Duration::from_secs(1).as_secs()))
}

/// Returns the body of an answer.
pub fn body(error: &EvaluationsError) -> Value {
    let mut details = json!({});
    match error {
        EvaluationsError::Invalid { field, details: facts, .. } => {
            if facts.is_object() {
                details.clone_from(facts);
            }
            insert(&mut details, "field", json!(field));
        }
        EvaluationsError::NetworkDenied { field, .. } => {
            insert(&mut details, "field", json!(field));
        }
        EvaluationsError::SecretDenied { field, name } => {
            insert(&mut details, "field", json!(field));
            insert(&mut details, "name", json!(name));
        }
        EvaluationsError::LanguageUnavailable(language) => {
            insert(&mut details, "language", json!(language));
        }
        EvaluationsError::AtCapacity { capacity, .. } => {
            insert(&mut details, "capacity", json!(capacity));
        }
        _ => {}
    }
    json!({ "code": error.code(), "message": error.to_string(), "details": details })
}

fn insert(details: &mut Value, name: &str, value: Value) {
    if let Some(details) = details.as_object_mut() {
        details.insert(name.to_owned(), value);
    }
}

/// Returns an error that every API has in the words of this one.
pub fn body_of_other(error: &JobError) -> Value {
    let code = match error.code.word() {
        "validation.invalid_request" => "evaluate.invalid_request",
        "job.not_found" => "evaluate.not_found",
        "job.conflict" => "evaluate.conflict",
        "run.io_failed" => "evaluate.store_failed",
        other => other,
    };
    json!({ "code": code, "message": error.message, "details": error.details })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_and_the_facts_of_a_fault_are_details() {
        let error = EvaluationsError::Invalid {
            field: "agent_language".to_owned(),
            message: "unknown".to_owned(),
            details: json!({ "known": ["python"] }),
        };
        let expected = json!({
            "code": "evaluate.invalid_request",
            "message": "agent_language: unknown",
            "details": {"known": ["python"], "field": "agent_language"},
        });
        assert_eq!(body(&error), expected);
    }

    #[test]
    fn a_retry_is_never_advised_at_once() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2)] {
            let retry_after = Duration::from_millis(millis);
            let error = EvaluationsError::Draining { retry_after };
            assert_eq!(retry_after_seconds(&error), Some(seconds), "{millis}");
        }
        assert_eq!(retry_after_seconds(&EvaluationsError::NotFound), None);
    }
}
