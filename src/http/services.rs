//! The services behind the HTTP server.

use std::fmt;
use std::sync::Arc;

use crate::case::service::CaseRuns;
use crate::check::metrics::CheckMetrics;
use crate::check::request::CheckRequest;
use crate::check::run::{CheckError, CheckReport, CheckRunner};
use crate::check::status::ServiceStatus;
use crate::egress::EgressCounts;
use crate::evaluation::service::Evaluations;
use crate::job::Jobs;
use crate::workspace::WorkspaceService;
use crate::workspace::artifacts::LazyArtifacts;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{OutputSink, Watch};

/// The services behind one server.
#[derive(Clone)]
pub struct Services {
    /// Checks.
    pub checks: Arc<dyn Checks>,
    /// Jobs; without them `/v1/jobs` does not exist.
    pub jobs: Option<Arc<dyn Jobs>>,
    /// The code executor engine; without it `/v1/workspaces` does not exist.
    pub engine: Option<Arc<WorkspaceService>>,
    /// The artifacts of the engine; without them `/v1/artifacts` does not exist.
    pub artifacts: Option<Arc<LazyArtifacts>>,
    /// Evaluations; without them `/evaluate` does not exist.
    pub evaluations: Option<Arc<dyn Evaluations>>,
    /// Runs of Cases; without them `/v1/cases` does not exist.
    pub cases: Option<Arc<dyn CaseRuns>>,
    /// What programs asked to reach.
    pub egress: Arc<EgressCounts>,
}

impl Services {
    /// Refuses new work from now on.
    pub fn start_draining(&self) {
        self.checks.start_draining();
        if let Some(jobs) = &self.jobs {
            jobs.start_draining();
        }
        if let Some(engine) = &self.engine {
            engine.start_draining();
        }
        if let Some(artifacts) = &self.artifacts {
            artifacts.start_draining();
        }
        if let Some(evaluations) = &self.evaluations {
            evaluations.start_draining();
        }
        if let Some(cases) = &self.cases {
            cases.start_draining();
        }
    }

    /// Ends all jobs, also those that wait, live evaluations and Cells, and kills all programs of workspaces.
    /// Runs of Cases wait for the next start.
    pub fn cancel_agents(&self) {
        if let Some(jobs) = &self.jobs {
            jobs.cancel_all();
        }
        if let Some(engine) = &self.engine {
            engine.cancel_all();
        }
        if let Some(evaluations) = &self.evaluations {
            evaluations.cancel_all();
        }
        if let Some(cases) = &self.cases {
            cases.interrupt_all();
        }
    }

    /// Parks the workspaces that are kept, once nothing uses them.
    pub fn park_all(&self, deadline: Deadline) {
        if let Some(engine) = &self.engine {
            engine.park_all(deadline);
        }
    }

    /// Waits until no run, job, program, evaluation or Cell is live. Returns false if the deadline passes
    /// first.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        self.checks.wait_idle(deadline)
            && self.jobs.as_ref().is_none_or(|jobs| jobs.wait_idle(deadline))
            && self.engine.as_ref().is_none_or(|engine| engine.wait_idle(deadline))
            && self.evaluations.as_ref().is_none_or(|all| all.wait_idle(deadline))
            && self.cases.as_ref().is_none_or(|all| all.wait_idle(deadline))
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Services").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// An admitted check, to be run on its own thread. Dropping it frees its permit.
pub type RunCheck =
    Box<dyn FnOnce(Watch, Option<Box<dyn OutputSink>>) -> Result<CheckReport, CheckError> + Send>;

/// The check service. [`CheckRunner`] is the implementation that runs programs; tests use scripted
/// ones.
pub trait Checks: Send + Sync {
    /// Validates `request`, then takes a permit.
    fn admit(self: Arc<Self>, request: CheckRequest) -> Result<RunCheck, CheckError>;
    /// Returns the metrics. Does not block for long.
    fn metrics(&self) -> CheckMetrics;
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

    fn metrics(&self) -> CheckMetrics {
        Self::metrics(self)
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
