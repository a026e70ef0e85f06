//! A service that starts runtimes ahead, and what its metrics tell of them.

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::prestart::{metric, metric_of};
use cofferdam_test_server::service::Service;
use cofferdam_test_server::shipped::{self, read};

use crate::goals::Burst;

/// How long a runtime may take to get ready: one that fails is tried again a minute later.
const PATIENCE: Duration = Duration::from_secs(150);
/// The time between two looks, each of which costs the service a little.
const LOOK: Duration = Duration::from_millis(5);

/// A service that has room for one burst.
pub struct Ahead {
    pub service: Service,
    pub burst: Burst,
}

impl Ahead {
    pub fn start(burst: Burst) -> Self {
        let setup = shipped::setup()
            .env("RUN_CONCURRENCY", burst.runs.to_string())
            .env("STANDBY_MAX", burst.standby_max.to_string());
        Self { service: setup.start(), burst }
    }

    /// Waits until `count` runtimes of `slug` are ready. Returns how long that took, or nothing if they
    /// do not get ready.
    pub fn ready(&self, slug: &str, count: usize) -> Option<Duration> {
        let began = Instant::now();
        #[allow(clippy::cast_precision_loss, reason = "a few runtimes")]
        while metric_of(&self.service, "boxes_ready", slug) < count as f64 {
            if began.elapsed() > PATIENCE {
                return None;
            }
            thread::sleep(LOOK);
        }
        Some(began.elapsed())
    }

    /// The memory of one runtime of `slug` that waits, in bytes.
    pub fn bytes_each(&self, slug: &str) -> f64 {
        metric_of(&self.service, "bytes", slug) / metric_of(&self.service, "boxes_ready", slug)
    }

    /// What `work` returns, and the number of runtimes that runs used meanwhile.
    pub fn counting_used<T>(&self, work: impl FnOnce() -> T) -> (T, usize) {
        let before = metric(&self.service, "boxes_used_total");
        let result = work();
        let used = metric(&self.service, "boxes_used_total") - before;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a counter of few runs grows by few"
        )]
        (result, used as usize)
    }
}

/// Whether the workspace of `slug` says how its runtime is started ahead.
pub fn has_target(slug: &str) -> bool {
    read(&format!("langs/{slug}/Makefile")).contains("\nprestart:")
}
