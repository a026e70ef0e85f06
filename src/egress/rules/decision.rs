//! What is decided over one request.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::uri::PathAndQuery;

pub use super::rule::RuleLimits;
use crate::egress::secret::search::SecretSearch;

/// The head of a request, without the headers of its connection and without `Host`.
#[derive(Debug, Clone, Copy)]
pub struct RuledHead<'a> {
    /// The method.
    pub method: &'a str,
    /// The path and the query as they came.
    pub target: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// Whether it asks to become a WebSocket.
    pub is_websocket: bool,
}

/// What is decided over a request.
#[derive(Debug)]
pub struct RuleDecision {
    /// The index of the rule that decided; none if none fits.
    pub rule: Option<usize>,
    /// What is sent, or why nothing is.
    pub plan: Result<RequestPlan, RuleRefusal>,
}

/// What is sent in place of what the program wrote.
#[derive(Debug)]
pub struct RequestPlan {
    /// The path and the query.
    pub target: PathAndQuery,
    /// All headers but those of the connection and `Host`.
    pub headers: HeaderMap,
    /// The names of the secrets in it, sorted.
    pub secrets: Vec<String>,
    /// How much it may use.
    pub limits: RuleLimits,
    /// What is searched for in its answer; none if it has no secret.
    pub search: Option<Arc<SecretSearch>>,
}

/// Why a request is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleRefusal {
    /// No rule fits.
    NoRule,
    /// The rule that fits denies.
    RuleDenied,
    /// The rule has allowed as many requests as it may.
    RequestsMax,
    /// The rule allows no WebSocket.
    WebSocket,
    /// A placeholder stands where its secret may not be sent.
    SecretHost,
    /// The value of a secret is no longer known.
    SecretMissing,
    /// The path can be read in two ways, or the method is one that is never sent.
    BadRequest,
}
