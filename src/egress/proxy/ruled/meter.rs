//! Counts the bytes of one direction of a request, and ends it at its limits.

use std::sync::{Arc, Mutex, PoisonError};

use crate::egress::log::OpenRecord;
use crate::egress::proxy::connection::activity::Activity;
use cofferdam_core::egress::{EgressDecision, EgressReason};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteDirection {
    Sent,
    Received,
}

/// A limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a limit of bytes is reached")]
pub struct ByteLimitReached;

/// Why a request ended early, if it did. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct ExchangeEnd(Arc<Mutex<Option<EgressReason>>>);

impl ExchangeEnd {
    /// Says why; what was said first stays.
    pub fn note(&self, reason: EgressReason) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }

    /// Why.
    pub fn reason(&self) -> Option<EgressReason> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the bytes of one direction of a request: in its record, of what its sandbox may use, and of what
/// its rule allows.
#[derive(Debug)]
pub struct ByteMeter {
    record: Arc<OpenRecord>,
    activity: Activity,
    direction: ByteDirection,
    /// What all requests with one log may use.
    all_bytes_max: u64,
    /// The bytes that the rule's limit still allows.
    bytes_left: Option<u64>,
    end: ExchangeEnd,
}

impl ByteMeter {
    pub fn new(
        record: Arc<OpenRecord>,
        activity: Activity,
        direction: ByteDirection,
        (all_bytes_max, body_bytes_max): (u64, Option<u64>),
    ) -> Self {
        let end = ExchangeEnd::default();
        Self { record, activity, direction, all_bytes_max, bytes_left: body_bytes_max, end }
    }

    pub fn record(&self) -> &Arc<OpenRecord> {
        &self.record
    }

    /// Why it ended early, if it did.
    pub fn end(&self) -> ExchangeEnd {
        self.end.clone()
    }

    /// Counts bytes of the head, which the rule does not limit.
    ///
    /// # Errors
    /// The limit of all requests is reached.
    pub fn pass_head(&self, bytes: usize) -> Result<(), ByteLimitReached> {
        if self.take(bytes) < bytes { Err(self.cut(EgressReason::Bytes)) } else { Ok(()) }
    }

    /// Counts bytes of the body. Returns how many of them may pass: fewer if a limit is reached.
    pub fn pass(&mut self, bytes: usize) -> usize {
        let left = self.bytes_left.unwrap_or(u64::MAX);
        let within = usize::try_from(left).unwrap_or(usize::MAX).min(bytes);
        if let Some(left) = &mut self.bytes_left {
            *left -= within as u64;
        }
        let passed = self.take(within);
        if passed < within {
            self.cut(EgressReason::Bytes);
        } else if within < bytes {
            self.cut(EgressReason::BytesMax);
        }
        passed
    }

    /// Counts bytes of the body that have passed already.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn pass_all(&mut self, bytes: usize) -> Result<(), ByteLimitReached> {
        if self.pass(bytes) < bytes { Err(ByteLimitReached) } else { Ok(()) }
    }

    /// Takes of what all requests with one log may use.
    fn take(&self, bytes: usize) -> usize {
        self.activity.touch();
        let taken = self.record.log().take_bytes(bytes as u64, self.all_bytes_max);
        match self.direction {
            ByteDirection::Sent => self.record.traffic().add_sent(taken),
            ByteDirection::Received => self.record.traffic().add_received(taken),
        }
        usize::try_from(taken).unwrap_or(bytes)
    }

    /// Notes that the request ends early.
    fn cut(&self, reason: EgressReason) -> ByteLimitReached {
        self.end.note(reason);
        self.record.refused(EgressDecision::Cut, reason);
        ByteLimitReached
    }
}
