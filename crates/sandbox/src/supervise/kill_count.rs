//! Counts the sandboxes that did not die in time after they were killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cofferdam_core::sync::counter::Counter;

/// The number of sandboxes of one [`SandboxHost`](crate::engine::SandboxHost) that did not die in time.
#[derive(Debug, Clone, Default)]
pub struct KillFailures(Arc<Counter>);

impl KillFailures {
    /// The number so far.
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}

/// Counts one sandbox that did not die, once however often it is waited for.
#[derive(Debug, Default)]
pub struct KillCount {
    failures: OnceLock<KillFailures>,
    counted: AtomicBool,
}

impl KillCount {
    /// Sets the counter. Later calls have no effect.
    pub fn count_among(&self, failures: &KillFailures) {
        self.failures.get_or_init(|| failures.clone());
    }

    /// Counts this sandbox, at most once.
    pub fn record_failure(&self) {
        if !self.counted.swap(true, Ordering::Relaxed)
            && let Some(failures) = self.failures.get()
        {
            failures.0.increment();
        }
    }
}
