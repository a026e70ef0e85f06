//! Scripted runs of Cases: a test sets their state and reads the calls they got.

use std::fs::{self, File};
use std::io::Write;
use std::sync::{Arc, Mutex};

use cofferdam::case::service::{
    CancelledCaseRun, CaseCellCounts, CaseInput, CaseRunCounts, CaseRunDocument, CaseRunEvents,
    CaseRunPage, CaseRunQuery, CaseRunRequest, CaseRunStatus, CaseRunView, CaseRuns, CaseRunsError,
    StagedCase, SubmittedCaseRun,
};
use cofferdam::evaluation::service::EventsProgress;
use cofferdam_core::job::Idempotency;
use cofferdam_core::values::deadline::Deadline;
use tempfile::TempDir;
use tokio::sync::watch;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub owner: String,
    /// The path, or the files that were sent with their contents.
    pub input: Vec<String>,
    pub trials: Option<u64>,
    pub harnesses: Vec<String>,
    pub models: Vec<String>,
    pub key: Option<String>,
}

/// Runs of the token `one`: `live` runs, `ended` has ended.
pub struct ScriptedCases {
    place: TempDir,
    /// The error for every submission, if any.
    pub refusal: Mutex<Option<CaseRunsError>>,
    /// The submissions.
    pub submitted: Mutex<Vec<Asked>>,
    /// Their idempotency.
    pub digests: Mutex<Vec<String>>,
    /// The list requests.
    pub listed: Mutex<Vec<CaseRunQuery>>,
    /// The calls that concern all runs.
    pub told: Mutex<Vec<&'static str>>,
    events: Mutex<(File, EventsProgress)>,
    sender: Mutex<Option<watch::Sender<EventsProgress>>>,
}

impl ScriptedCases {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            place: tempfile::tempdir().unwrap(),
            refusal: Mutex::default(),
            submitted: Mutex::default(),
            digests: Mutex::default(),
            listed: Mutex::default(),
            told: Mutex::default(),
            events: Mutex::new((tempfile::tempfile().unwrap(), EventsProgress::default())),
            sender: Mutex::new(Some(watch::channel(EventsProgress::default()).0)),
        })
    }

    /// How many staged directories there are.
    pub fn staged(&self) -> usize {
        fs::read_dir(self.place.path()).unwrap().count()
    }

    /// Adds a line to the events; the last one is `result`.
    pub fn happen(&self, line: &str) {
        let mut events = self.events.lock().unwrap();
        let (file, progress) = &mut *events;
        file.write_all(line.as_bytes()).unwrap();
        progress.bytes += line.len() as u64;
        progress.ended = line.contains("\"event\":\"result\"");
        let mut sender = self.sender.lock().unwrap();
        if let Some(sender) = &*sender {
            sender.send_replace(*progress);
        }
        if progress.ended {
            *sender = None;
        }
    }

    fn find(&self, owner: &str, id: &str) -> Result<bool, CaseRunsError> {
        match (owner, id) {
            ("" | "one", "live") => Ok(false),
            ("" | "one", "ended") => Ok(true),
            _ => Err(CaseRunsError::NotFound),
        }
    }

    fn document(
        &self,
        owner: &str,
        id: &str,
        text: &str,
    ) -> Result<CaseRunDocument, CaseRunsError> {
        self.find(owner, id)?;
        let path = self.place.path().join("document");
        fs::write(&path, text).unwrap();
        let file = File::open(&path).unwrap();
        fs::remove_file(path).unwrap();
        Ok(CaseRunDocument { file, bytes: text.len() as u64 })
    }
}

fn view(id: &str, status: CaseRunStatus) -> CaseRunView {
    CaseRunView {
        run_id: id.to_owned(),
        case: "fix-add".to_owned(),
        status,
        cells: CaseCellCounts { done: 2, ..CaseCellCounts::default() },
        passed: 1,
        not_passed: 1,
        created_at: "2026-01-01T00:00:00Z".to_owned(),
        started_at: None,
        finished_at: None,
        error: None,
    }
}

impl CaseRuns for ScriptedCases {
    fn stage(&self) -> Result<StagedCase, CaseRunsError> {
        let directory = tempfile::tempdir_in(self.place.path()).unwrap().keep();
        Ok(StagedCase::over(directory))
    }

    fn submit(
        &self,
        owner: &str,
        request: CaseRunRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedCaseRun, CaseRunsError> {
        let CaseRunRequest { input, trials, harnesses, models } = request;
        let input = match &input {
            CaseInput::Path(path) => vec![path.display().to_string()],
            CaseInput::Staged(staged) => fs::read_dir(staged.path())
                .unwrap()
                .flatten()
                .map(|one| {
                    let content = fs::read_to_string(one.path()).unwrap_or_default();
                    format!("{}={content}", one.file_name().display())
                })
                .collect(),
        };
        let key = idempotency.as_ref().map(|one| one.key.clone());
        let digest = idempotency.map(|one| one.body.as_str().to_owned());
        self.digests.lock().unwrap().extend(digest);
        let owner = owner.to_owned();
        let asked = Asked { owner, input, trials, harnesses, models, key };
        self.submitted.lock().unwrap().push(asked);
        let submitted =
            SubmittedCaseRun { run_id: "live".to_owned(), status: CaseRunStatus::Queued };
        self.refusal.lock().unwrap().clone().map_or(Ok(submitted), Err)
    }

    fn view(&self, owner: &str, id: &str) -> Result<CaseRunView, CaseRunsError> {
        let ended = self.find(owner, id)?;
        Ok(view(id, if ended { CaseRunStatus::Done } else { CaseRunStatus::Running }))
    }

    fn list(&self, owner: &str, query: &CaseRunQuery) -> Result<CaseRunPage, CaseRunsError> {
        self.listed.lock().unwrap().push(query.clone());
        let runs = match owner {
            "" | "one" => vec![view("live", CaseRunStatus::Running)],
            _ => Vec::new(),
        };
        Ok(CaseRunPage { runs, next_cursor: Some("2=".to_owned()) })
    }

    fn results(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError> {
        self.document(owner, id, r#"{"cells":[]}"#)
    }

    fn junit(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError> {
        self.document(owner, id, "<testsuites/>")
    }

    fn report(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError> {
        self.document(owner, id, "<!DOCTYPE html>")
    }

    fn events(&self, owner: &str, id: &str) -> Result<CaseRunEvents, CaseRunsError> {
        self.find(owner, id)?;
        let events = self.events.lock().unwrap();
        let (file, progress) = &*events;
        let progress = match &*self.sender.lock().unwrap() {
            Some(sender) => sender.subscribe(),
            None => watch::channel(*progress).1,
        };
        Ok(CaseRunEvents { file: file.try_clone().unwrap(), progress })
    }

    fn cancel(&self, owner: &str, id: &str) -> Result<CancelledCaseRun, CaseRunsError> {
        let had_ended = self.find(owner, id)?;
        let status = if had_ended { CaseRunStatus::Done } else { CaseRunStatus::Running };
        Ok(CancelledCaseRun { run_id: id.to_owned(), status, had_ended })
    }

    fn counts(&self) -> CaseRunCounts {
        CaseRunCounts {
            runs_queued: 3,
            runs_running: 2,
            runs_done_total: 7,
            cells_running: 4,
            cells_capacity: 5,
            cells_passed_total: 11,
            cells_duration_ms_total: 1500,
            ..CaseRunCounts::default()
        }
    }

    fn start_draining(&self) {
        self.told.lock().unwrap().push("start_draining");
    }

    fn interrupt_all(&self) {
        self.told.lock().unwrap().push("interrupt_all");
    }

    fn wait_idle(&self, _: Deadline) -> bool {
        self.told.lock().unwrap().push("wait_idle");
        true
    }
}
