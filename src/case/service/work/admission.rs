//! Admits runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use uuid::Uuid;

use super::input::{locate, locate_staged, readable};
use super::live::LiveRun;
use super::new_run::{AdmissibleCase, new_file, open_events, write_run};
use super::shared::{RETRY_AFTER, Shared, now_ns, store_failed};
use super::state::{LiveEntry, Phase};
use crate::case::cell::CellExecutorKind;
use crate::case::file::{CheckedCase, load_case_with_text};
use crate::case::harness::{CaseDenial, HttpCaseRules, http_denials};
use crate::case::run::{CellFilter, PlanError, UnfinishedRun, plan_cells};
use crate::case::service::api::{
    CaseInput, CaseRunRequest, CaseRunStatus, StagedCase, SubmittedCaseRun,
};
use crate::case::service::error::CaseRunsError;
use crate::case::service::record::ServiceFile;
use crate::case::service::runners::RunnerRequest;
use cofferdam_core::job::{Idempotency, JobId};
use cofferdam_core::sync::cancel::CancelToken;

/// The directory of a run with the files of its Case.
pub(super) const INPUT: &str = "input";

/// A place in the queue, given back when it is dropped.
struct QueuePlace<'a>(&'a Shared);

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.state().admitting -= 1;
    }
}

impl Shared {
    /// A directory for the files of a Case.
    pub fn stage(&self) -> Result<StagedCase, CaseRunsError> {
        let run = self.folder()?.begin().map_err(|error| store_failed(&error))?;
        let directory = run.make_directory(INPUT).map_err(|error| store_failed(&error))?;
        Ok(StagedCase::of_run(run, directory))
    }

    /// Admits a run, or repeats the answer to its key.
    pub fn admit(
        self: &Arc<Self>,
        owner: &str,
        request: CaseRunRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedCaseRun, CaseRunsError> {
        let lock = || self.admitting.lock().unwrap_or_else(PoisonError::into_inner);
        let _admitting = idempotency.is_some().then(lock);
        if let Some(run_id) = self.first_answer(owner, idempotency.as_ref())? {
            return Ok(SubmittedCaseRun { run_id, status: CaseRunStatus::Queued });
        }
        let filter = CellFilter {
            harnesses: request.harnesses,
            models: request.models,
            trials: request.trials,
        };
        let run_id = match request.input {
            CaseInput::Path(path) => {
                let case_path = locate(&path, &self.settings)?;
                let case = self.check(owner, &case_path, &readable(&self.settings), &filter)?;
                let _place = self.reserve()?;
                let run = self.folder()?.begin().map_err(|error| store_failed(&error))?;
                self.begin_run(owner, &case, run, Ok(case_path), idempotency)?
            }
            CaseInput::Staged(staged) => {
                let below = locate_staged(staged.path(), self.settings.input_bytes_max)?;
                let directory = staged.path().join(&below);
                let own = [directory.clone()];
                let case = self.check(owner, &directory.join("case.yaml"), &own, &filter)?;
                let _place = self.reserve()?;
                let outside = || CaseRunsError::Store("the files are not in the store".to_owned());
                let run = staged.into_run().ok_or_else(outside)?;
                self.begin_run(owner, &case, run, Err(below), idempotency)?
            }
        };
        Ok(SubmittedCaseRun { run_id, status: CaseRunStatus::Queued })
    }

    /// The id of the first answer to a key.
    fn first_answer(
        &self,
        owner: &str,
        asked: Option<&Idempotency>,
    ) -> Result<Option<String>, CaseRunsError> {
        let Some(Idempotency { key, body }) = asked else { return Ok(None) };
        let state = self.state();
        let Some(first) = state.of_key(owner, key, SystemTime::now()) else { return Ok(None) };
        match &first.idempotency {
            Some(used) if used.body == *body => Ok(Some(first.run_id.clone())),
            _ => Err(CaseRunsError::IdempotencyConflict),
        }
    }

    /// Reads the Case at `case_path`, which may name files below `readable`.
    fn check(
        &self,
        owner: &str,
        case_path: &Path,
        readable: &[PathBuf],
        filter: &CellFilter,
    ) -> Result<AdmissibleCase, CaseRunsError> {
        let loaded = load_case_with_text(case_path);
        let (checked, yaml) =
            loaded.map_err(|faults| CaseRunsError::InvalidCase { errors: faults.errors })?;
        let case = &checked.case;
        let cells =
            plan_cells(&case.id, &case.matrix, filter).map_err(|error| plan_fault(&error))?;
        let denials = self.denials(owner, &checked, case_path, readable);
        if !denials.is_empty() {
            return Err(CaseRunsError::Denied(denials));
        }
        Ok(AdmissibleCase { checked, yaml, cells })
    }

    /// What the Case may not use.
    pub(super) fn denials(
        &self,
        owner: &str,
        checked: &CheckedCase,
        case_path: &Path,
        readable: &[PathBuf],
    ) -> Vec<CaseDenial> {
        let rules = HttpCaseRules {
            hosts_allow: &self.settings.egress.private_hosts,
            egress_allow: &self.settings.egress_allow,
            variables: &self.settings.harness_env,
            readable,
        };
        let mut denials = http_denials(&checked.case, &rules);
        let executor = CellExecutorKind::of(&checked.case, None);
        denials.extend(self.runners.denials(&RunnerRequest {
            checked,
            case_path,
            executor,
            owner,
        }));
        denials
    }

    fn reserve(&self) -> Result<QueuePlace<'_>, CaseRunsError> {
        let mut state = self.state();
        if state.is_draining {
            return Err(CaseRunsError::Draining { retry_after: RETRY_AFTER });
        }
        let queue_max = self.settings.queue_max.max(1);
        if state.queued() + state.admitting >= queue_max {
            let queue_max = queue_max as u64;
            return Err(CaseRunsError::QueueFull { queue_max, retry_after: RETRY_AFTER });
        }
        state.admitting += 1;
        Ok(QueuePlace(self))
    }

    /// Makes the run on disk, and lets it wait. `place` is the path of its case file, or the directory of it in the
    /// files that were sent.
    fn begin_run(
        self: &Arc<Self>,
        owner: &str,
        case: &AdmissibleCase,
        unfinished: UnfinishedRun,
        place: Result<PathBuf, PathBuf>,
        idempotency: Option<Idempotency>,
    ) -> Result<String, CaseRunsError> {
        let id = random_id();
        let stop = CancelToken::new()
            .map_err(|error| CaseRunsError::Store(format!("eventfd: {error}")))?;
        let order = self.state().next_order(now_ns());
        let file = new_file(owner, &id, order, case, place.is_err(), idempotency);
        let in_run = |below: PathBuf| {
            let cases = unfinished.path().parent().unwrap_or(Path::new("/"));
            cases.join(id.as_str()).join(INPUT).join(below).join("case.yaml")
        };
        let case_path = place.unwrap_or_else(in_run);
        let folder = self.folder()?;
        let run = write_run(&folder, unfinished, case, (&id, &case_path), &file)?;
        let events = match open_events(&run, &file) {
            Ok(events) => events,
            Err(error) => {
                drop(run);
                return Err(self.discard(id.as_str(), error));
            }
        };
        let live = Arc::new(LiveRun::new(id.as_str(), run, events, stop));
        self.insert(file, live);
        if let Err(error) = self.start_workers()
            && self.state().active == 0
        {
            let error = CaseRunsError::Store(format!("thread: {error}"));
            return Err(self.discard(id.as_str(), error));
        }
        Ok(id.to_string())
    }

    /// Lets a run wait.
    pub(super) fn insert(&self, file: ServiceFile, run: Arc<LiveRun>) {
        let mut state = self.state();
        let entry = LiveEntry { run, phase: Phase::Waiting, waiting: Vec::new(), running: 0 };
        state.live.insert(file.order, entry);
        state.put(file);
    }

    /// Removes a run that cannot be begun; returns why.
    fn discard(&self, id: &str, error: CaseRunsError) -> CaseRunsError {
        let entry = {
            let mut state = self.state();
            let order = state.file(id).map(|file| file.order);
            state.remove(id);
            order.and_then(|order| state.live.remove(&order))
        };
        drop(entry);
        if let Err(error) =
            self.folder().and_then(|folder| folder.remove(id).map_err(|error| store_failed(&error)))
        {
            log::warn!(run = id, reason = error.to_string(); "run not removed");
        }
        error
    }
}

fn plan_fault(error: &PlanError) -> CaseRunsError {
    let field = match error {
        PlanError::UnknownHarness(_) | PlanError::Empty => "harnesses",
        PlanError::UnknownModel(_) => "models",
        PlanError::Trials(_) | PlanError::TooManyCells(_) => "trials",
        PlanError::LongName(_) => "matrix",
    };
    CaseRunsError::invalid(field, error.to_string())
}

fn random_id() -> JobId {
    let id = format!("run_{}", Uuid::new_v4());
    JobId::parse(&id).unwrap_or_else(|_| JobId::random())
}
