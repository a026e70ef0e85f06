//! Scripted evaluations: a test sets their state and reads the calls they got.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use cofferdam::evaluation::request::EvaluationRequest;
use cofferdam::evaluation::result::{EvaluationStatus, EvaluationVerdict};
use cofferdam::evaluation::service::{
    BatchRequest, CacheKind, CancelledEvaluation, EvaluationCounts, EvaluationEvents,
    EvaluationMetrics, EvaluationPage, EvaluationQuery, EvaluationTally, Evaluations,
    EvaluationsError, EventsProgress, SubmittedBatch,
};
use cofferdam_core::job::Idempotency;
use cofferdam_core::values::deadline::Deadline;
use tokio::sync::watch;

/// Evaluations of the token `one`: `live` runs, `ended` has ended.
pub struct ScriptedEvaluations {
    /// The error for every submission, if any.
    pub refusal: Mutex<Option<EvaluationsError>>,
    /// The submissions: whose, what, and under which key.
    pub submitted: Mutex<Vec<(String, EvaluationRequest, Option<Idempotency>)>>,
    /// The batches.
    pub batches: Mutex<Vec<(BatchRequest, Option<Idempotency>)>>,
    /// The list requests.
    pub listed: Mutex<Vec<EvaluationQuery>>,
    /// The calls that concern all evaluations.
    pub told: Mutex<Vec<&'static str>>,
    events: Mutex<(File, EventsProgress)>,
    sender: Mutex<Option<watch::Sender<EventsProgress>>>,
}

impl ScriptedEvaluations {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            refusal: Mutex::default(),
            submitted: Mutex::default(),
            batches: Mutex::default(),
            listed: Mutex::default(),
            told: Mutex::default(),
            events: Mutex::new((tempfile::tempfile().unwrap(), EventsProgress::default())),
            sender: Mutex::new(Some(watch::channel(EventsProgress::default()).0)),
        })
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

    fn find(&self, owner: &str, id: &str) -> Result<bool, EvaluationsError> {
        match (owner, id) {
            ("" | "one", "live") => Ok(false),
            ("" | "one", "ended") => Ok(true),
            _ => Err(EvaluationsError::NotFound),
        }
    }

    fn find_ended(&self, owner: &str, id: &str) -> Result<(), EvaluationsError> {
        match self.find(owner, id)? {
            true => Ok(()),
            false => Err(EvaluationsError::Conflict("the evaluation runs".to_owned())),
        }
    }
}

impl Evaluations for ScriptedEvaluations {
    fn submit(
        &self,
        owner: &str,
        request: EvaluationRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<String, EvaluationsError> {
        self.submitted.lock().unwrap().push((owner.to_owned(), request, idempotency));
        self.refusal.lock().unwrap().clone().map_or(Ok("live".to_owned()), Err)
    }

    fn submit_batch(
        &self,
        _owner: &str,
        request: BatchRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedBatch, EvaluationsError> {
        self.batches.lock().unwrap().push((request, idempotency));
        let eval_ids = vec!["live".to_owned(), "ended".to_owned()];
        Ok(SubmittedBatch { batch_id: "all".to_owned(), eval_ids })
    }

    fn view(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.find(owner, id).map(|ended| format!(r#"{{"eval_id":"{id}","ended":{ended}}}"#))
    }

    fn patch(&self, owner: &str, id: &str) -> Result<Vec<u8>, EvaluationsError> {
        self.find_ended(owner, id).map(|()| b"diff --git a/x b/x\n".to_vec())
    }

    fn junit(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.find_ended(owner, id).map(|()| "<testsuite/>".to_owned())
    }

    fn events(&self, owner: &str, id: &str) -> Result<EvaluationEvents, EvaluationsError> {
        self.find(owner, id)?;
        let events = self.events.lock().unwrap();
        let (file, progress) = &*events;
        let progress = match &*self.sender.lock().unwrap() {
            Some(sender) => sender.subscribe(),
            None => watch::channel(*progress).1,
        };
        Ok(EvaluationEvents { file: file.try_clone().unwrap(), progress })
    }

    fn cancel(&self, owner: &str, id: &str) -> Result<CancelledEvaluation, EvaluationsError> {
        let had_ended = self.find(owner, id)?;
        let status =
            if had_ended { EvaluationStatus::Completed } else { EvaluationStatus::Cancelled };
        Ok(CancelledEvaluation { eval_id: id.to_owned(), status, had_ended })
    }

    fn list(
        &self,
        _owner: &str,
        query: &EvaluationQuery,
    ) -> Result<EvaluationPage, EvaluationsError> {
        self.listed.lock().unwrap().push(query.clone());
        if query.cursor.as_deref() == Some("stale") {
            return Err(EvaluationsError::invalid("cursor", "not one of ours"));
        }
        let next_cursor = query.cursor.is_none().then(|| "2=".to_owned());
        Ok(EvaluationPage { json: "[]".to_owned(), next_cursor })
    }

    fn batch(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        match (owner, id) {
            ("" | "one", "all") => Ok(r#"{"batch_id":"all"}"#.to_owned()),
            _ => Err(EvaluationsError::NotFound),
        }
    }

    fn cancel_batch(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.told.lock().unwrap().push("cancel_batch");
        self.batch(owner, id)
    }

    fn counts(&self) -> EvaluationCounts {
        EvaluationCounts {
            active: 1,
            passed: 5,
            failed: 3,
            cancelled: 2,
            duration_ms_sum: 1234,
            capacity: 4,
        }
    }

    fn metrics(&self) -> EvaluationMetrics {
        let metrics = EvaluationTally::default().read();
        let mut metrics = metrics.with_cache_bytes(&[(CacheKind::Archives, 4096)]);
        for (verdict, count) in &mut metrics.verdicts {
            *count = u64::from(*verdict == EvaluationVerdict::Partial);
        }
        metrics
    }

    fn start_draining(&self) {
        self.told.lock().unwrap().push("start_draining");
    }

    fn cancel_all(&self) {
        self.told.lock().unwrap().push("cancel_all");
    }

    fn wait_idle(&self, _: Deadline) -> bool {
        self.told.lock().unwrap().push("wait_idle");
        true
    }
}
