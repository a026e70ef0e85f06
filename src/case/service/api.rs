//! The API of runs of Cases, behind HTTP.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::error::CaseRunsError;
use crate::case::run::UnfinishedRun;
use crate::evaluation::service::EventsProgress;
use cofferdam_core::job::Idempotency;
use cofferdam_core::values::deadline::Deadline;

/// The runs of one store. Each method acts for `owner`, the name of a token: the runs of others are not found.
pub trait CaseRuns: Send + Sync {
    /// A new directory in the store for the files of a Case that a client sends. It goes away with the value, unless
    /// the value is submitted.
    fn stage(&self) -> Result<StagedCase, CaseRunsError>;
    /// Checks the Case and admits a run of it. A refused one leaves nothing.
    fn submit(
        &self,
        owner: &str,
        request: CaseRunRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedCaseRun, CaseRunsError>;
    /// A run.
    fn view(&self, owner: &str, id: &str) -> Result<CaseRunView, CaseRunsError>;
    /// Lists runs, the newest first.
    fn list(&self, owner: &str, query: &CaseRunQuery) -> Result<CaseRunPage, CaseRunsError>;
    /// `{"cells":[…]}`: every Cell as in its `result.json`, in the order of the run.
    fn results(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError>;
    /// The results so far as JUnit XML.
    fn junit(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError>;
    /// The results so far as a page.
    fn report(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError>;
    /// Follows the events of a run, also of one that has ended.
    fn events(&self, owner: &str, id: &str) -> Result<CaseRunEvents, CaseRunsError>;
    /// Cancels a run: one that waits ends at once, the Cells of one that runs end within seconds. One that has ended
    /// stays as it is.
    fn cancel(&self, owner: &str, id: &str) -> Result<CancelledCaseRun, CaseRunsError>;
    /// What is counted.
    fn counts(&self) -> CaseRunCounts;
    /// Refuses new runs from now on, and begins no Cell. Cells that run may end.
    fn start_draining(&self);
    /// Ends the Cells that run: they are pending, and their runs wait for the next start.
    fn interrupt_all(&self);
    /// Waits until no Cell runs; false if the deadline passed first.
    fn wait_idle(&self, deadline: Deadline) -> bool;
}

/// A run that is asked for.
#[derive(Debug)]
pub struct CaseRunRequest {
    /// The Case.
    pub input: CaseInput,
    /// Trials of each harness and model instead of the Case's, at least 1.
    pub trials: Option<u64>,
    /// Only these harnesses; all if empty.
    pub harnesses: Vec<String>,
    /// Only these models; all if empty.
    pub models: Vec<String>,
}

/// Where the files of a Case are.
#[derive(Debug)]
pub enum CaseInput {
    /// On the host of the service: the case file, or a directory with `case.yaml`; absolute.
    Path(PathBuf),
    /// In a directory of [`CaseRuns::stage`]: `case.yaml` is at its top, or in the one directory there.
    Staged(StagedCase),
}

/// A directory for the files of a Case, removed when it is dropped.
#[derive(Debug)]
pub struct StagedCase {
    directory: PathBuf,
    /// The run that it becomes a part of; none for a directory that is in no store.
    run: Option<UnfinishedRun>,
    is_given_away: bool,
}

impl StagedCase {
    /// Owns `directory`, which is in no store: a service does not admit it, but what is tested without one may use it.
    pub fn over(directory: PathBuf) -> Self {
        Self { directory, run: None, is_given_away: false }
    }

    /// The directory `directory` of a run that is being made.
    pub(super) fn of_run(run: UnfinishedRun, directory: PathBuf) -> Self {
        Self { directory, run: Some(run), is_given_away: false }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The run with the directory in it.
    pub(super) fn into_run(mut self) -> Option<UnfinishedRun> {
        let run = self.run.take();
        self.is_given_away = run.is_some();
        run
    }
}

impl Drop for StagedCase {
    fn drop(&mut self) {
        // The whole run goes, with its directory.
        if self.run.take().is_some() || self.is_given_away {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            log::warn!(reason = error.to_string(); "files of a Case not removed");
        }
    }
}

/// What a run has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseRunStatus {
    /// It waits for a worker.
    Queued,
    /// Its Cells run.
    Running,
    /// Every Cell has ended.
    Done,
    /// It was ended early: by a client, or because its Case or source changed.
    Canceled,
}

impl CaseRunStatus {
    /// The state of that name.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Queued, Self::Running, Self::Done, Self::Canceled];
        all.into_iter().find(|status| status.word() == word)
    }

    /// The word in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Canceled => "canceled",
        }
    }

    /// Whether the run stays so.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Canceled)
    }
}

/// The answer to a request for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubmittedCaseRun {
    /// The run.
    pub run_id: String,
    /// Its state.
    pub status: CaseRunStatus,
}

/// Cells of a run by what they have come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseCellCounts {
    /// Those that wait.
    pub pending: u64,
    /// Those that run.
    pub running: u64,
    /// Those that are graded.
    pub done: u64,
    /// Those that were skipped.
    pub skipped: u64,
    /// Those that failed.
    pub failed: u64,
}

/// A run, as its document and as a line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseRunView {
    /// The run.
    pub run_id: String,
    /// The id of the Case.
    pub case: String,
    /// Its state.
    pub status: CaseRunStatus,
    /// Its Cells.
    pub cells: CaseCellCounts,
    /// Cells that are graded and passed.
    pub passed: u64,
    /// Cells that are graded and did not pass.
    pub not_passed: u64,
    /// When it was admitted.
    pub created_at: String,
    /// When its first Cell began.
    pub started_at: Option<String>,
    /// When it ended.
    pub finished_at: Option<String>,
    /// Why it ended early, if not by a client.
    pub error: Option<CaseRunFault>,
}

/// Why a run ended early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseRunFault {
    /// `case.changed` or `case.store_failed`.
    pub code: String,
    /// The same in words.
    pub message: String,
}

/// Which runs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseRunQuery {
    /// Only those in this state.
    pub status: Option<CaseRunStatus>,
    /// How many at most.
    pub limit: usize,
    /// The end of the page before.
    pub cursor: Option<String>,
}

/// A page of a list: the body of the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CaseRunPage {
    /// The runs, the newest first.
    pub runs: Vec<CaseRunView>,
    /// The cursor of the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// A document of a run, whole and open for reading from its start.
#[derive(Debug)]
pub struct CaseRunDocument {
    /// The file.
    pub file: File,
    /// Its size.
    pub bytes: u64,
}

/// The events of a run: one JSON object a line, `{"id":1,"event":"status","data":{}}`, ids from 1 without gaps, over
/// restarts of the service too. The last one is a `result`, whose data is the run's [`CaseRunView`].
#[derive(Debug)]
pub struct CaseRunEvents {
    /// The file, which grows. It stays readable after the removal of the run.
    pub file: File,
    /// How far it is. The sender is dropped when the run has ended; the last value stays.
    pub progress: watch::Receiver<EventsProgress>,
}

/// The answer to a cancellation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CancelledCaseRun {
    /// The run.
    pub run_id: String,
    /// Its state: `running` until its Cells have ended.
    pub status: CaseRunStatus,
    /// Whether it had ended before.
    #[serde(skip)]
    pub had_ended: bool,
}

/// What is counted; totals are since the start of the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaseRunCounts {
    /// Runs that wait.
    pub runs_queued: u64,
    /// Runs whose Cells run.
    pub runs_running: u64,
    /// Runs that ended as done.
    pub runs_done_total: u64,
    /// Runs that were canceled.
    pub runs_canceled_total: u64,
    /// Cells that run.
    pub cells_running: u64,
    /// `CASES_WORKERS`.
    pub cells_capacity: u64,
    /// Cells that were graded and passed.
    pub cells_passed_total: u64,
    /// Cells that were graded and did not pass.
    pub cells_not_passed_total: u64,
    /// Cells that were skipped.
    pub cells_skipped_total: u64,
    /// Cells that failed.
    pub cells_failed_total: u64,
    /// The time of all Cells that ended, milliseconds.
    pub cells_duration_ms_total: u64,
}
