//! Answers of the proxy itself.

use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Bytes;
use serde_json::json;

use super::body::ProxyBody;
use crate::egress::log::OpenRecord;
use cofferdam_core::egress::{EgressDecision, EgressReason};

/// A request that is not, or not wholly, sent on.
#[derive(Debug, Clone)]
pub struct EgressRefusal {
    pub decision: EgressDecision,
    pub reason: EgressReason,
    /// The rule that decided, if one did.
    rule: Option<u32>,
    /// What is known beside the reason. Nothing of it is secret.
    detail: Option<String>,
}

/// The request that is refused, as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct RefusedRequest {
    pub host: String,
    pub method: Option<Method>,
    pub is_http2: bool,
}

impl EgressRefusal {
    pub fn denied(reason: EgressReason) -> Self {
        Self { decision: EgressDecision::Denied, reason, rule: None, detail: None }
    }

    pub fn failed(reason: EgressReason) -> Self {
        Self { decision: EgressDecision::Failed, ..Self::denied(reason) }
    }

    /// The same, by the rule with this index.
    #[must_use]
    pub fn by_rule(self, rule: Option<u32>) -> Self {
        Self { rule, ..self }
    }

    /// The same, with what else is known.
    #[must_use]
    pub fn because(self, detail: String) -> Self {
        Self { detail: Some(detail), ..self }
    }

    /// Notes the refusal and makes the answer. A connection of HTTP/1 ends with it: what the program sends
    /// behind a refused request is not known to be another.
    pub fn answer(self, record: &OpenRecord, request: &RefusedRequest) -> Response<ProxyBody> {
        let status = self.status(request.is_http2);
        record.refused(self.decision, self.reason);
        record.answered(status.as_u16());
        let mut response = Response::new(ProxyBody::text(Bytes::from(self.body(request))));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if !request.is_http2 {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn status(&self, is_http2: bool) -> StatusCode {
        match (self.decision, self.reason) {
            (_, EgressReason::BadRequest) => StatusCode::BAD_REQUEST,
            (_, EgressReason::RequestsMax | EgressReason::BytesMax) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            (EgressDecision::Failed, _) => StatusCode::BAD_GATEWAY,
            (_, EgressReason::HostMismatch) if is_http2 => StatusCode::MISDIRECTED_REQUEST,
            _ => StatusCode::FORBIDDEN,
        }
    }

    fn body(&self, request: &RefusedRequest) -> String {
        let code = format!("egress.{}", self.reason.word());
        let message = match &self.detail {
            Some(detail) => format!("{}: {detail}", self.message()),
            None => self.message().to_owned(),
        };
        let method = request.method.as_ref().map(Method::as_str);
        let details = json!({"host": request.host, "method": method, "rule": self.rule});
        json!({"code": code, "message": message, "details": details}).to_string()
    }

    fn message(&self) -> &'static str {
        match self.reason {
            EgressReason::NotListed => "the allow-list does not name this host and port",
            EgressReason::Literal => "the allow-list does not name this address",
            EgressReason::PrivateAddress => "the host has no public address",
            EgressReason::OwnAddress => "the address is one of the service itself",
            EgressReason::Unresolved => "the name could not be resolved",
            EgressReason::Connect => "the host did not answer",
            EgressReason::NoTls => "a tunnel begins with TLS",
            EgressReason::Sni => "the name in TLS is not the host that was asked for",
            EgressReason::Bytes => "the limit of bytes is reached",
            EgressReason::Connections => "too many connections are open",
            EgressReason::BadRequest => "the request is malformed or ambiguous",
            EgressReason::NoRule => "no rule of the host allows this method and path",
            EgressReason::RuleDenied => "a rule of the host denies this request",
            EgressReason::SecretHost => "a placeholder stands where its secret may not go",
            EgressReason::HostMismatch => "the request is for another host than its connection",
            EgressReason::UpstreamTls => "the host did not prove by TLS who it is",
            EgressReason::Encoding => {
                "the answer is encoded or partial, so that no secret could be found in it"
            }
            EgressReason::Websocket => "the rule allows no WebSocket",
            EgressReason::SecretMissing => "the value of a secret is not known now",
            EgressReason::RequestsMax => "the rule allows no more requests",
            EgressReason::BytesMax => "the body is longer than the rule allows",
        }
    }

    /// Returns the answer as bytes, for a connection whose request could not be read.
    pub fn bytes(&self) -> Vec<u8> {
        let (status, body) = (self.status(false), self.body(&RefusedRequest::default()));
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body.into_bytes()].concat()
    }
}
