//! What left a sandbox by the forward proxy, as results hold it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One request that a program sent to the forward proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EgressRecord {
    /// When the request arrived, RFC 3339.
    pub at: String,
    /// The step whose sandbox sent it; null where there are no steps.
    pub step: Option<String>,
    /// The host that was asked for: a name in lower case, or an address. Empty if no head was read.
    pub host: String,
    /// The port that was asked for; 0 if no head was read.
    pub port: u16,
    /// The address that was judged and connected to; null if it did not come to that.
    pub address: Option<String>,
    /// What became of the request.
    pub decision: EgressDecision,
    /// Why; null for a request that was allowed.
    pub reason: Option<EgressReason>,
    /// Bytes that went to the address.
    pub bytes_sent: u64,
    /// Bytes that came from it.
    pub bytes_received: u64,
    /// The method of a request for a host with rules, or for `http://`; null for a tunnel.
    #[serde(default)]
    pub method: Option<String>,
    /// The status that the program got; null if it got none, and for a tunnel.
    #[serde(default)]
    pub status: Option<u16>,
    /// The rule that decided: its index among those of its host, from 0. Null if none did.
    #[serde(default)]
    pub rule: Option<u32>,
    /// The names of the secrets that were put into the request.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// The path of a request for a host with rules, without its query; only where the service keeps paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What became of a request.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EgressDecision {
    /// It was sent on.
    Allowed,
    /// The rules refused it.
    Denied,
    /// It was allowed, but the host could not be reached.
    Failed,
    /// It was sent on, and a limit or the host ended it before its end.
    Cut,
}

impl EgressDecision {
    /// Every decision.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Denied, Self::Failed, Self::Cut];

    /// Returns the word of records and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Cut => "cut",
        }
    }
}

/// Why a request was not, or not wholly, sent on.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EgressReason {
    /// No entry of the allow-list names the host and port.
    NotListed,
    /// The host is an address, in whatever spelling, that no address entry names.
    Literal,
    /// The host has no public address.
    PrivateAddress,
    /// The address and port are a listener of the service itself.
    OwnAddress,
    /// The name could not be resolved.
    Unresolved,
    /// The host did not answer, or not to the end.
    Connect,
    /// A tunnel did not begin with TLS.
    NoTls,
    /// A tunnel's TLS names another host.
    Sni,
    /// The limit of bytes was reached.
    Bytes,
    /// Too many connections are open.
    Connections,
    /// The request is malformed or ambiguous.
    BadRequest,
    /// No rule of the host names the method and path.
    NoRule,
    /// A rule of the host denies the request.
    RuleDenied,
    /// The request holds a placeholder where its secret may not go.
    SecretHost,
    /// The request, its TLS and its tunnel name different hosts.
    HostMismatch,
    /// The host could not prove by TLS who it is.
    UpstreamTls,
    /// The answer is encoded, so that no secret could be found in it.
    Encoding,
    /// The rule allows no WebSocket.
    Websocket,
    /// The value of a secret is not known.
    SecretMissing,
    /// The rule allows no more requests.
    RequestsMax,
    /// A body is longer than the rule allows.
    BytesMax,
}

impl EgressReason {
    /// Every reason.
    pub const ALL: [Self; 21] = [
        Self::NotListed,
        Self::Literal,
        Self::PrivateAddress,
        Self::OwnAddress,
        Self::Unresolved,
        Self::Connect,
        Self::NoTls,
        Self::Sni,
        Self::Bytes,
        Self::Connections,
        Self::BadRequest,
        Self::NoRule,
        Self::RuleDenied,
        Self::SecretHost,
        Self::HostMismatch,
        Self::UpstreamTls,
        Self::Encoding,
        Self::Websocket,
        Self::SecretMissing,
        Self::RequestsMax,
        Self::BytesMax,
    ];

    /// Returns the word of records, answers and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotListed => "not_listed",
            Self::Literal => "literal",
            Self::PrivateAddress => "private_address",
            Self::OwnAddress => "own_address",
            Self::Unresolved => "unresolved",
            Self::Connect => "connect",
            Self::NoTls => "no_tls",
            Self::Sni => "sni",
            Self::Bytes => "bytes",
            Self::Connections => "connections",
            Self::BadRequest => "bad_request",
            Self::NoRule => "no_rule",
            Self::RuleDenied => "rule_denied",
            Self::SecretHost => "secret_host",
            Self::HostMismatch => "host_mismatch",
            Self::UpstreamTls => "upstream_tls",
            Self::Encoding => "encoding",
            Self::Websocket => "websocket",
            Self::SecretMissing => "secret_missing",
            Self::RequestsMax => "requests_max",
            Self::BytesMax => "bytes_max",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_what_a_record_says() {
        for decision in EgressDecision::ALL {
            assert_eq!(serde_json::json!(decision), decision.word());
        }
        for reason in EgressReason::ALL {
            assert_eq!(serde_json::json!(reason), reason.word());
        }
    }
}
