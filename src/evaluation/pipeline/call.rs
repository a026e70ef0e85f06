//! What is evaluated, for whom.

use crate::evaluation::request::EvaluationRequest;

/// One evaluation.
#[derive(Debug, Clone, Copy)]
pub struct EvaluationCall<'a> {
    /// Its id, a UUID, version 4.
    pub id: &'a str,
    /// When it was asked for, RFC 3339.
    pub created_at: &'a str,
    /// The name of the token that asked for it; empty without tokens.
    pub owner: &'a str,
    /// What is asked for.
    pub request: &'a EvaluationRequest,
}
