//! A rule over the requests to one host.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rule of a request. The first one that fits a request to the host decides over it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuleObject {
    /// Whether requests to the host go without TLS; the same in all rules of the host. True for port 80,
    /// false for others by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain: Option<bool>,
    /// What becomes of requests that fit; `allow` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<RuleAction>,
    /// The methods that fit; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// The paths that fit, without the query. `*` stands for any characters; all paths by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Headers to set. `{{secret.NAME}}` stands for a secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_headers: Vec<String>,
    /// Parameters of the query to set. `{{secret.NAME}}` stands for a secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// The most requests that the rule allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<u64>,
    /// The longest body of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes_max: Option<u64>,
    /// The longest body of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bytes_max: Option<u64>,
    /// How long the head of an answer may take; ten minutes by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Whether a request may become a WebSocket; false by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub websocket: Option<bool>,
}

/// What becomes of a request that fits a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// It is sent on.
    Allow,
    /// It is refused.
    Deny,
}
