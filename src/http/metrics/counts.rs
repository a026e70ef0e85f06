//! Counts refused requests by reason, and open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;

use crate::http::error::ErrorContext;
use cofferdam_core::sync::counter::Counter;

/// The reasons for refusing a request.
pub const REASONS: [&str; 19] = [
    "body_incomplete",
    "body_late",
    "busy",
    "conflict",
    "content_encoding",
    "cross_origin",
    "draining",
    "framing",
    "host",
    "internal",
    "invalid",
    "method_not_allowed",
    "no_room",
    "not_found",
    "queue_full",
    "sandbox",
    "too_large",
    "unauthorized",
    "unavailable",
];

/// The counters of one listener.
#[derive(Debug, Default)]
pub struct HttpCounts {
    refusals: [Counter; REASONS.len()],
    connections: AtomicUsize,
}

/// An open connection. Dropping it decrements the count.
#[derive(Debug)]
pub struct OpenConnection(Arc<HttpCounts>);

impl HttpCounts {
    /// Increments the count of connections.
    pub fn enter(self: &Arc<Self>) -> OpenConnection {
        self.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(self))
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts `response` if it refuses the request.
    pub fn answered(&self, response: &Response) {
        let Some(ErrorContext { reason, .. }) = response.extensions().get() else { return };
        if let Some((counter, _)) = self.refusals.iter().zip(REASONS).find(|(_, is)| is == reason) {
            counter.increment();
        }
    }

    /// Returns how often each reason occurred.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(self.refusals.iter().map(Counter::get))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
