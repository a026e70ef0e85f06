//! Counts of requests to the proxies of one server, for its metrics.

use cofferdam_core::egress::{EgressDecision, EgressReason};
use cofferdam_core::sync::counter::Counter;

/// Counts requests by their decision and reason.
#[derive(Debug, Default)]
pub struct EgressCounts {
    allowed: Counter,
    others: [[Counter; EgressReason::ALL.len()]; EgressDecision::ALL.len()],
}

/// Requests with one decision and reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressCount {
    /// The decision.
    pub decision: EgressDecision,
    /// The reason; `None` for allowed requests.
    pub reason: Option<EgressReason>,
    /// How many.
    pub count: u64,
}

/// The decisions and reasons that occur together.
const KINDS: [(EgressDecision, EgressReason); 24] = [
    (EgressDecision::Denied, EgressReason::NotListed),
    (EgressDecision::Denied, EgressReason::Literal),
    (EgressDecision::Denied, EgressReason::PrivateAddress),
    (EgressDecision::Denied, EgressReason::OwnAddress),
    (EgressDecision::Denied, EgressReason::NoTls),
    (EgressDecision::Denied, EgressReason::Sni),
    (EgressDecision::Denied, EgressReason::Bytes),
    (EgressDecision::Denied, EgressReason::Connections),
    (EgressDecision::Denied, EgressReason::BadRequest),
    (EgressDecision::Failed, EgressReason::Unresolved),
    (EgressDecision::Failed, EgressReason::Connect),
    (EgressDecision::Cut, EgressReason::Bytes),
    (EgressDecision::Cut, EgressReason::Connect),
    (EgressDecision::Denied, EgressReason::NoRule),
    (EgressDecision::Denied, EgressReason::RuleDenied),
    (EgressDecision::Denied, EgressReason::SecretHost),
    (EgressDecision::Denied, EgressReason::HostMismatch),
    (EgressDecision::Denied, EgressReason::Websocket),
    (EgressDecision::Denied, EgressReason::SecretMissing),
    (EgressDecision::Denied, EgressReason::RequestsMax),
    (EgressDecision::Denied, EgressReason::BytesMax),
    (EgressDecision::Failed, EgressReason::UpstreamTls),
    (EgressDecision::Failed, EgressReason::Encoding),
    (EgressDecision::Cut, EgressReason::BytesMax),
];

impl EgressCounts {
    /// Counts one request.
    pub fn count(&self, decision: EgressDecision, reason: Option<EgressReason>) {
        if let Some(counter) = self.counter(decision, reason) {
            counter.increment();
        }
    }

    /// Returns the counts of all decisions and reasons, those without a request too.
    pub fn read(&self) -> Vec<EgressCount> {
        let others = KINDS.into_iter().map(|(decision, reason)| (decision, Some(reason)));
        let kinds = std::iter::once((EgressDecision::Allowed, None)).chain(others);
        kinds
            .map(|(decision, reason)| {
                let count = self.counter(decision, reason).map_or(0, Counter::get);
                EgressCount { decision, reason, count }
            })
            .collect()
    }

    fn counter(&self, decision: EgressDecision, reason: Option<EgressReason>) -> Option<&Counter> {
        let Some(reason) = reason else { return Some(&self.allowed) };
        let decision = EgressDecision::ALL.iter().position(|known| *known == decision)?;
        let reason = EgressReason::ALL.iter().position(|known| *known == reason)?;
        self.others.get(decision)?.get(reason)
    }
}
