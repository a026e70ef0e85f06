//! The check service as the front sees it.

use std::sync::Arc;

use crate::check::metrics::CheckMetrics;
use crate::check::request::CheckRequest;
use crate::check::run::{CheckError, CheckReport, CheckRunner};
use crate::check::status::ServiceStatus;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{OutputSink, Watch};

/// An admitted check, to be run on a thread of its own; dropped, it frees its slot.
pub type RunCheck =
    Box<dyn FnOnce(Watch, Option<Box<dyn OutputSink>>) -> Result<CheckReport, CheckError> + Send>;

/// What the front asks of the service. The one implementation that runs
/// anything is [`CheckRunner`]; a front's tests script their own.
pub trait Checks: Send + Sync {
    /// Validates `request`, then takes a slot.
    fn admit(self: Arc<Self>, request: CheckRequest) -> Result<RunCheck, CheckError>;
    /// What was counted so far, and what there is now. Never waits long.
    fn figures(&self) -> CheckMetrics;
    /// Refuses new runs from now on.
    fn start_draining(&self);
    /// Whether new runs are refused.
    fn is_draining(&self) -> bool;
    /// What there is to know of the service, without waiting for anything.
    fn status(&self) -> ServiceStatus<'_>;
    /// Asks every live run to end.
    fn cancel_all(&self);
    /// Waits until no run is live; false when the deadline came first.
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
