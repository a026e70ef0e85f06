//! The requests of one connection of a program to one host with rules.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::answer::{AnswerTerms, pass_head};
use super::answer_body::{AnswerBody, BodySearch};
use super::dial::DialTarget;
use super::incoming::{declared_length, target_of};
use super::meter::{ByteDirection, ByteMeter};
use super::pool::{HostPool, OutgoingRequest, UsedConnection};
use super::sent_body::SentBody;
use super::websocket::RuledWebSocket;
use crate::egress::hosts::literal::AskedHost;
use crate::egress::log::{OpenRecord, RequestOrigin};
use crate::egress::proxy::body::ProxyBody;
use crate::egress::proxy::connection::activity::Activity;
use crate::egress::proxy::context::ProxyContext;
use crate::egress::proxy::headers::{
    ask_for_trailers, remove_hop_by_hop, takes_trailers, upgrades,
};
use crate::egress::proxy::refusal::{EgressRefusal, RefusedRequest};
use crate::egress::rules::path::canonical_path;
use crate::egress::rules::{NetworkRules, RequestPlan, RuleDecision, RuleRefusal, RuledHead};
use cofferdam_core::egress::EgressReason;
use cofferdam_core::framing::head::Framing;
use cofferdam_core::weakened::{self, Wall};

const WEBSOCKET: &str = "websocket";

/// One connection of a program to one host with rules.
#[derive(Debug)]
pub struct RuledHost {
    context: Arc<ProxyContext>,
    target: DialTarget,
    activity: Activity,
    pool: HostPool,
    /// What the connection becomes.
    websocket: Mutex<Option<RuledWebSocket>>,
}

/// A request that is judged.
struct JudgedRequest {
    head: Parts,
    plan: RequestPlan,
    rules: Arc<NetworkRules>,
    rule: Option<u32>,
    is_websocket: bool,
    takes_trailers: bool,
}

impl RuledHost {
    /// # Errors
    /// The host cannot stand in a URI.
    pub fn new(
        context: Arc<ProxyContext>,
        target: DialTarget,
        activity: Activity,
    ) -> Result<Self, EgressReason> {
        let pool = HostPool::new(target.clone())?;
        Ok(Self { context, target, activity, pool, websocket: Mutex::default() })
    }

    /// Where its requests are sent.
    pub fn target(&self) -> &DialTarget {
        &self.target
    }

    /// Whether it is the connection to this host.
    pub fn is_to(&self, host: &AskedHost, port: u16) -> bool {
        self.target.host == *host && self.target.port == port
    }

    /// Answers one request, and records it. `framing` says how its body ends; it is `None` if its head is
    /// refused.
    pub async fn answer(
        &self,
        request: Request<Incoming>,
        framing: Option<Framing>,
    ) -> Response<ProxyBody> {
        // In place of a head that is refused there is an empty request.
        let method = framing.map(|_| request.method().clone());
        let record = Arc::new(self.begin(method.as_ref()));
        let is_http2 = request.version() == Version::HTTP_2;
        let host = self.target.host.to_string();
        let refused = RefusedRequest { host, method, is_http2 };
        let answered = self.exchange(request, framing, &record).await;
        answered.unwrap_or_else(|refusal| refusal.answer(&record, &refused))
    }

    /// Begins the record of a request, or of a connection without one.
    pub fn begin(&self, method: Option<&Method>) -> OpenRecord {
        self.context.log.begin(RequestOrigin {
            step: self.context.policy.step.clone(),
            host: self.target.host.to_string(),
            port: self.target.port,
            method: method.map(|method| method.as_str().to_owned()),
        })
    }

    /// The WebSocket that the connection becomes.
    pub fn take_websocket(&self) -> Option<RuledWebSocket> {
        self.websocket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Judges `request`, sends it on if it is allowed, and returns the host's answer.
    pub async fn exchange(
        &self,
        request: Request<Incoming>,
        framing: Option<Framing>,
        record: &Arc<OpenRecord>,
    ) -> Result<Response<ProxyBody>, EgressRefusal> {
        let permit = self.permit().await?;
        let framing = framing.ok_or(EgressRefusal::denied(EgressReason::BadRequest))?;
        let (head, body) = request.into_parts();
        let judged = self.judge(head, framing, record)?;
        let rule = judged.rule;
        let exchanged = self.send(judged, body, record, permit).await;
        exchanged.map_err(|refusal| refusal.by_rule(rule))
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, EgressRefusal> {
        let permits = Arc::clone(&self.context.requests);
        let permit = timeout(self.context.limits.idle_max, permits.acquire_owned()).await;
        let busy = || EgressRefusal::denied(EgressReason::Connections);
        permit.map_err(|_| busy())?.map_err(|_| busy())
    }

    fn judge(
        &self,
        mut head: Parts,
        framing: Framing,
        record: &OpenRecord,
    ) -> Result<JudgedRequest, EgressRefusal> {
        let DialTarget { host, port, is_plain } = &self.target;
        let probe = Request::from_parts(head.clone(), ());
        let target = target_of(&probe, (host, *port), *is_plain).map_err(EgressRefusal::denied)?;
        drop(probe);
        let wants_websocket = upgrades(&head.headers).iter().any(|one| one == WEBSOCKET);
        let is_websocket = wants_websocket && head.version < Version::HTTP_2;
        if is_websocket && (framing != Framing::Length(0) || head.method != Method::GET) {
            return Err(EgressRefusal::denied(EgressReason::BadRequest));
        }
        let takes_trailers = takes_trailers(&head.headers);
        remove_hop_by_hop(&mut head.headers);
        for name in [HOST, EXPECT] {
            head.headers.remove(name);
        }
        let rules = self.context.policy.network.current();
        if !self.target.is_ruled_by(&rules) {
            return Err(EgressRefusal::denied(EgressReason::NoRule));
        }
        let ruled = RuledHead {
            method: head.method.as_str(),
            target: &target,
            headers: &head.headers,
            is_websocket,
        };
        let RuleDecision { rule, plan } = rules.decide(host, *port, &ruled);
        let rule = rule.and_then(|index| u32::try_from(index).ok());
        record.ruled(rule, self.context.keeps_paths.then(|| recorded_path(&target)));
        let plan =
            plan.map_err(|refusal| EgressRefusal::denied(reason_of(refusal)).by_rule(rule))?;
        Ok(JudgedRequest { head, plan, rules, rule, is_websocket, takes_trailers })
    }

    async fn send(
        &self,
        judged: JudgedRequest,
        body: Incoming,
        record: &Arc<OpenRecord>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<ProxyBody>, EgressRefusal> {
        let JudgedRequest { head, plan, rules, is_websocket, takes_trailers, .. } = judged;
        let RequestPlan { target, headers, secrets, limits, search } = plan;
        let all_bytes_max = self.context.policy.bytes_max;
        if self.context.log.bytes() >= all_bytes_max {
            return Err(EgressRefusal::denied(EgressReason::Bytes));
        }
        let declared = declared_length(&headers).unwrap_or(0);
        if limits.request_bytes_max.is_some_and(|bytes_max| declared > bytes_max) {
            return Err(EgressRefusal::denied(EgressReason::BytesMax));
        }
        record.with_secrets(secrets);
        let meter = |direction, own_max| {
            let (record, activity) = (Arc::clone(record), self.activity.clone());
            ByteMeter::new(record, activity, direction, (all_bytes_max, own_max))
        };
        let sent = meter(ByteDirection::Sent, limits.request_bytes_max);
        let of_head = head.method.as_str().len() + target.as_str().len() + bytes_of(&headers);
        sent.pass_head(of_head).map_err(|_| EgressRefusal::denied(EgressReason::Bytes))?;
        let body = SentBody::new(body, sent, rules);
        let end = body.end();
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = Uri::from(target);
        *request.headers_mut() = headers;
        if takes_trailers {
            ask_for_trailers(request.headers_mut());
        }
        let hold = self.activity.hold();
        let outgoing = OutgoingRequest { request, is_websocket };
        let answered = timeout(limits.wait, self.pool.send(&self.context, outgoing, record)).await;
        drop(hold);
        let slow = || {
            let milliseconds = limits.wait.as_millis();
            let words = format!("no head of an answer came within {milliseconds} ms");
            EgressRefusal::failed(EgressReason::Connect).because(words)
        };
        let (response, connection) = answered.map_err(|_| slow())?.map_err(|refusal| {
            // What ended the body of the request ended the exchange.
            end.reason().map_or(refusal, EgressRefusal::denied)
        })?;
        let received = meter(ByteDirection::Received, limits.response_bytes_max);
        let terms =
            AnswerTerms { method: head.method, search, bytes_max: limits.response_bytes_max };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            if !is_websocket {
                return Err(EgressRefusal::failed(EgressReason::Connect));
            }
            let sent = meter(ByteDirection::Sent, limits.request_bytes_max);
            return self.become_websocket(response, &terms, (sent, received), connection, permit);
        }
        pass_answer(response, &terms, received, connection, permit)
    }

    fn become_websocket(
        &self,
        mut response: Response<Incoming>,
        terms: &AnswerTerms,
        (sent, received): (ByteMeter, ByteMeter),
        connection: UsedConnection,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<ProxyBody>, EgressRefusal> {
        let upgraded = hyper::upgrade::on(&mut response);
        let (mut head, _) = response.into_parts();
        let status = head.status.as_u16();
        pass_head(&mut head, terms).map_err(refusal_of_answer)?;
        head.headers.remove(CONTENT_LENGTH);
        head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
        sent.record().answered(status);
        let websocket = RuledWebSocket { upgraded, sent, received, connection, permit };
        *self.websocket.lock().unwrap_or_else(PoisonError::into_inner) = Some(websocket);
        Ok(Response::from_parts(head, ProxyBody::text(Bytes::new())))
    }
}

/// Makes of the answer of a host the one that the program gets.
fn pass_answer(
    response: Response<Incoming>,
    terms: &AnswerTerms,
    meter: ByteMeter,
    connection: UsedConnection,
    permit: OwnedSemaphorePermit,
) -> Result<Response<ProxyBody>, EgressRefusal> {
    let (mut head, body) = response.into_parts();
    let of_head = meter.pass_head(bytes_of(&head.headers));
    of_head.map_err(|_| EgressRefusal::denied(EgressReason::Bytes))?;
    pass_head(&mut head, terms).map_err(refusal_of_answer)?;
    meter.record().answered(head.status.as_u16());
    let search = terms.search.clone().filter(|_| !weakened::lacks(Wall::Redaction));
    let search = search.map(BodySearch::new);
    let body = AnswerBody::new(body, meter, search, connection, permit);
    Ok(Response::from_parts(head, ProxyBody::Ruled(body.boxed_unsync())))
}

/// Why an answer is not passed on: the rule's limit, or what the host sent.
fn refusal_of_answer(reason: EgressReason) -> EgressRefusal {
    match reason {
        EgressReason::BytesMax => EgressRefusal::denied(reason),
        _ => EgressRefusal::failed(reason),
    }
}

/// The path that a record keeps, without the query.
fn recorded_path(target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default();
    canonical_path(path).unwrap_or_else(|| path.to_owned())
}

/// About how many bytes `headers` take.
fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

fn reason_of(refusal: RuleRefusal) -> EgressReason {
    match refusal {
        RuleRefusal::NoRule => EgressReason::NoRule,
        RuleRefusal::RuleDenied => EgressReason::RuleDenied,
        RuleRefusal::RequestsMax => EgressReason::RequestsMax,
        RuleRefusal::WebSocket => EgressReason::Websocket,
        RuleRefusal::SecretHost => EgressReason::SecretHost,
        RuleRefusal::SecretMissing => EgressReason::SecretMissing,
        RuleRefusal::BadRequest => EgressReason::BadRequest,
    }
}
