//! Runs of Cases as a service: admitted, run by a bounded number of workers, recorded, and resumed after a restart.
//!
//! A run of the service lies beside those of the command line and has two files more: `service.json`, by which a
//! service knows it as its own, and `events.jsonl`. The files of a Case that a client has sent are in its directory
//! `input/` until it has ended.

mod api;
mod case_service;
mod error;
mod record;
mod runners;
mod settings;
#[cfg(test)]
mod tests;
mod trial_runners;
mod work;

pub use api::{
    CancelledCaseRun, CaseCellCounts, CaseInput, CaseRunCounts, CaseRunDocument, CaseRunEvents,
    CaseRunFault, CaseRunPage, CaseRunQuery, CaseRunRequest, CaseRunStatus, CaseRunView, CaseRuns,
    StagedCase, SubmittedCaseRun,
};
pub use case_service::CaseService;
pub use error::CaseRunsError;
pub use runners::{CaseRunners, RunnerRequest};
pub use settings::CaseServiceSettings;
pub use trial_runners::TrialRunners;
