//! `/run`: one check in a language's workspace.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::check_request::CheckRequest;
use crate::base::cancel::CancelToken;
use crate::base::deadline::Deadline;
use crate::spec::{OutputSink, RunReport, SetupFailure};

/// Why a check gave no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The request is at fault; the text names the field.
    #[error("{0}")]
    Invalid(String),
    /// The language's workspace or toolchain is not usable here.
    #[error("language unavailable: {0}")]
    LanguageUnavailable(String),
    /// Every slot is taken.
    #[error("runner busy")]
    Busy,
    /// The service takes no new runs.
    #[error("draining")]
    Draining,
    /// The box could not be made; user code has not run.
    #[error(transparent)]
    Sandbox(SetupFailure),
}

/// A finished check.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// What the sandbox says of it.
    pub run: RunReport,
    /// From admission to the start of preparation.
    pub queued: Duration,
}

/// What may end a run early, beside its limits.
#[derive(Debug)]
pub struct Watch {
    /// Raised by whoever wants the run to end.
    pub cancel: CancelToken,
    /// The client's socket, where a client that goes away ends its run.
    pub client: Option<OwnedFd>,
}

/// The use case: admission, the run, the drain.
#[derive(Debug)]
pub struct CheckRunner {}

/// A validated check that holds a slot.
#[derive(Debug)]
pub struct AdmittedCheck {}

impl CheckRunner {
    /// Validates `request` against the language table, then takes a slot.
    pub fn admit(self: &Arc<Self>, request: CheckRequest) -> Result<AdmittedCheck, CheckError> {
        let _ = request;
        Err(CheckError::Busy)
    }

    /// Refuses new runs from now on.
    pub fn start_draining(&self) {}

    /// Whether new runs are refused.
    pub fn is_draining(&self) -> bool {
        false
    }

    /// Asks every live run to end.
    pub fn cancel_all(&self) {}

    /// Waits until no run is live; false when the deadline came first.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        let _ = deadline;
        true
    }
}

impl AdmittedCheck {
    /// Runs to the end on the calling thread. The slot is free again when this returns.
    pub fn run(
        self,
        watch: Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<CheckReport, CheckError> {
        let _ = (watch, sink);
        Err(CheckError::Busy)
    }
}
