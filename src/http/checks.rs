//! The check service as the HTTP server uses it.

use std::sync::Arc;

use crate::check::metrics::CheckMetrics;
use crate::check::request::CheckRequest;
use crate::check::run::{CheckError, CheckReport, CheckRunner};
use crate::check::status::ServiceStatus;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{OutputSink, Watch};

/// An admitted check, to be run on its own thread. Dropping it frees its permit.
pub type RunCheck =
    Box<dyn FnOnce(Watch, Option<Box<dyn OutputSink>>) -> Result<CheckReport, CheckError> + Send>;

/// The check service. [`CheckRunner`] is the implementation that runs programs; tests use scripted
/// ones.
pub trait Checks: Send + Sync {
    /// Validates `request`, then takes a permit.
    fn admit(self: Arc<Self>, request: CheckRequest) -> Result<RunCheck, CheckError>;
    /// Returns the metrics. Does not block for long.
    fn figures(&self) -> CheckMetrics;
    /// Refuses new runs from now on.
    fn start_draining(&self);
    /// Returns whether new runs are refused.
    fn is_draining(&self) -> bool;
    /// Returns the status of the service without blocking.
    fn status(&self) -> ServiceStatus<'_>;
    /// Cancels all live runs.
    fn cancel_all(&self);
    /// Waits until no run is live. Returns false if the deadline passes first.
    fn wait_idle(&self, deadline: Deadline) -> bool;
}

impl Checks for CheckRunner {
    fn admit(self: Arc<Self>, request: CheckRequest) -> Result<RunCheck, CheckError> {
        let admitted = Self::admit(&self, request)?;
        Ok(Box::new(move |watch, sink| admitted.run(&watch, sink)))
    }

    fn figures(&self) -> CheckMetrics {
        Self::figures(self)
    }

    fn start_draining(&self) {
        Self::start_draining(self);
    }

    fn is_draining(&self) -> bool {
        Self::is_draining(self)
    }

    fn status(&self) -> ServiceStatus<'_> {
        Self::status(self)
    }

    fn cancel_all(&self) {
        Self::cancel_all(self);
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        Self::wait_idle(self, deadline)
    }
}
