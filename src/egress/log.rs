//! The bounded record of what was asked of the proxies of one job or workspace.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use cofferdam_core::egress::{EgressDecision, EgressReason, EgressRecord};
use cofferdam_core::values::utc::rfc3339;

use super::counts::EgressCounts;

/// The maximum number of records; later requests are only counted.
pub const EGRESS_RECORDS_MAX: usize = 1000;

/// The records of one job or workspace. Several proxies can share it, at once and one after another.
#[derive(Debug, Default)]
pub struct EgressLog {
    kept: Mutex<KeptEntries>,
    bytes: AtomicU64,
    counts: Arc<EgressCounts>,
}

#[derive(Debug, Default)]
struct KeptEntries {
    entries: Vec<Arc<LogEntry>>,
    dropped: EgressDropped,
}

/// Requests beyond [`EGRESS_RECORDS_MAX`], by decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EgressDropped {
    /// Allowed requests without a record.
    pub allowed: u64,
    /// Denied requests without a record.
    pub denied: u64,
    /// Failed requests without a record.
    pub failed: u64,
    /// Cut requests without a record.
    pub cut: u64,
}

impl EgressDropped {
    /// All requests without a record.
    pub fn total(self) -> u64 {
        self.allowed + self.denied + self.failed + self.cut
    }
}

/// What is known of a request when it arrives.
#[derive(Debug, Clone)]
pub struct RequestOrigin {
    pub step: Option<String>,
    pub host: String,
    pub port: u16,
    pub method: Option<String>,
}

#[derive(Debug)]
struct LogEntry {
    at: SystemTime,
    origin: RequestOrigin,
    verdict: Mutex<LoggedVerdict>,
    traffic: Traffic,
}

#[derive(Debug, Clone)]
struct LoggedVerdict {
    address: Option<String>,
    decision: EgressDecision,
    reason: Option<EgressReason>,
    status: Option<u16>,
    rule: Option<u32>,
    secrets: Vec<String>,
    path: Option<String>,
}

impl LoggedVerdict {
    /// What holds until something else is said.
    const ALLOWED: Self = Self {
        address: None,
        decision: EgressDecision::Allowed,
        reason: None,
        status: None,
        rule: None,
        secrets: Vec::new(),
        path: None,
    };
}

/// The bytes of one request.
#[derive(Debug, Default)]
pub struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    pub fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl EgressLog {
    /// An empty log, whose requests are also counted in `counts`.
    pub fn new(counts: Arc<EgressCounts>) -> Arc<Self> {
        Arc::new(Self { counts, ..Self::default() })
    }

    /// Returns the records so far, in the order in which the requests arrived. Those of open
    /// connections have the bytes so far.
    pub fn snapshot(&self) -> Vec<EgressRecord> {
        self.kept().entries.iter().map(|entry| entry.record()).collect()
    }

    /// Returns the number of records so far.
    pub fn len(&self) -> usize {
        self.kept().entries.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many requests have no record because there were too many.
    pub fn dropped(&self) -> EgressDropped {
        self.kept().dropped
    }

    /// Returns the bytes that passed in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reserves up to `wanted` of the bytes that remain below `bytes_max`. Returns the number reserved.
    pub(super) fn take_bytes(&self, wanted: u64, bytes_max: u64) -> u64 {
        let mut taken = 0;
        let take = |used: u64| {
            taken = wanted.min(bytes_max.saturating_sub(used));
            Some(used.saturating_add(taken))
        };
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken
    }

    /// Gives back bytes that were taken and did not pass.
    pub(super) fn return_bytes(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds a record of a request that is allowed, until something else is said of it.
    pub(super) fn begin(self: &Arc<Self>, origin: RequestOrigin) -> OpenRecord {
        let entry = Arc::new(LogEntry {
            at: SystemTime::now(),
            origin,
            verdict: Mutex::new(LoggedVerdict::ALLOWED),
            traffic: Traffic::default(),
        });
        let mut kept = self.kept();
        let is_kept = kept.entries.len() < EGRESS_RECORDS_MAX;
        if is_kept {
            kept.entries.push(Arc::clone(&entry));
        }
        drop(kept);
        OpenRecord { log: Arc::clone(self), entry, is_kept }
    }

    fn kept(&self) -> MutexGuard<'_, KeptEntries> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, verdict: &LoggedVerdict, is_kept: bool) {
        self.counts.count(verdict.decision, verdict.reason);
        if is_kept {
            return;
        }
        let dropped = &mut self.kept().dropped;
        let count = match verdict.decision {
            EgressDecision::Allowed => &mut dropped.allowed,
            EgressDecision::Denied => &mut dropped.denied,
            EgressDecision::Failed => &mut dropped.failed,
            EgressDecision::Cut => &mut dropped.cut,
        };
        *count += 1;
    }
}

impl LogEntry {
    fn record(&self) -> EgressRecord {
        let verdict = self.verdict().clone();
        EgressRecord {
            at: rfc3339(self.at),
            step: self.origin.step.clone(),
            host: self.origin.host.clone(),
            port: self.origin.port,
            address: verdict.address,
            decision: verdict.decision,
            reason: verdict.reason,
            bytes_sent: self.traffic.sent.load(Ordering::Relaxed),
            bytes_received: self.traffic.received.load(Ordering::Relaxed),
            method: self.origin.method.clone(),
            status: verdict.status,
            rule: verdict.rule,
            secrets: verdict.secrets,
            path: verdict.path,
        }
    }

    fn verdict(&self) -> MutexGuard<'_, LoggedVerdict> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of a request that has not ended. Dropping it counts the request.
#[derive(Debug)]
pub struct OpenRecord {
    log: Arc<EgressLog>,
    entry: Arc<LogEntry>,
    is_kept: bool,
}

impl OpenRecord {
    pub fn traffic(&self) -> &Traffic {
        &self.entry.traffic
    }

    pub fn log(&self) -> &EgressLog {
        &self.log
    }

    pub fn connected(&self, address: String) {
        self.entry.verdict().address = Some(address);
    }

    /// Notes the rule that decided, and the path if it is kept.
    pub fn ruled(&self, rule: Option<u32>, path: Option<String>) {
        let mut verdict = self.entry.verdict();
        (verdict.rule, verdict.path) = (rule, path);
    }

    /// Notes the names of the secrets that the request is sent with.
    pub fn with_secrets(&self, names: Vec<String>) {
        self.entry.verdict().secrets = names;
    }

    /// Notes the status that the program gets.
    pub fn answered(&self, status: u16) {
        self.entry.verdict().status = Some(status);
    }

    /// Says that the request was not, or not wholly, sent on. What was said first stays.
    pub fn refused(&self, decision: EgressDecision, reason: EgressReason) {
        let mut verdict = self.entry.verdict();
        if verdict.decision == EgressDecision::Allowed {
            (verdict.decision, verdict.reason) = (decision, Some(reason));
        }
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        let verdict = self.entry.verdict().clone();
        self.log.ended(&verdict, self.is_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(port: u16) -> RequestOrigin {
        RequestOrigin { step: None, host: "a.example".to_owned(), port, method: None }
    }

    #[test]
    fn requests_beyond_the_records_are_counted_alone() {
        let counts = Arc::new(EgressCounts::default());
        let log = EgressLog::new(Arc::clone(&counts));
        for port in 0..1003 {
            let record = log.begin(origin(port));
            if port != 1000 {
                record.refused(EgressDecision::Denied, EgressReason::NotListed);
            }
        }
        let records = log.snapshot();
        assert_eq!((records.len(), records[999].port), (EGRESS_RECORDS_MAX, 999));
        let dropped = EgressDropped { allowed: 1, denied: 2, ..EgressDropped::default() };
        assert_eq!((log.dropped(), log.dropped().total()), (dropped, 3));
        let counted = counts.read();
        assert_eq!(counted.iter().map(|kind| kind.count).sum::<u64>(), 1003);
        assert_eq!((counted[0].reason, counted[0].count), (None, 1));
    }

    #[test]
    fn what_was_said_first_of_a_request_stays() {
        let log = EgressLog::new(Arc::default());
        let record = log.begin(origin(1));
        record.connected("192.0.2.1".to_owned());
        record.traffic().add_sent(5);
        record.traffic().add_received(7);
        record.refused(EgressDecision::Cut, EgressReason::Bytes);
        record.refused(EgressDecision::Failed, EgressReason::Connect);
        let live = log.snapshot();
        drop(record);
        assert_eq!(log.snapshot(), live);
        let one = &live[0];
        assert_eq!((one.decision, one.reason), (EgressDecision::Cut, Some(EgressReason::Bytes)));
        assert_eq!((one.bytes_sent, one.bytes_received), (5, 7));
        assert_eq!(one.address.as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn bytes_are_taken_up_to_the_limit_and_no_further() {
        let log = EgressLog::new(Arc::default());
        assert_eq!(
            [log.take_bytes(6, 10), log.take_bytes(6, 10), log.take_bytes(6, 10)],
            [6, 4, 0]
        );
        log.return_bytes(3);
        assert_eq!((log.take_bytes(6, 10), log.bytes()), (3, 10));
    }
}
