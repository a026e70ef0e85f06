//! Runs one evaluation on its own thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::service_state::{ServiceFloor, end_early, now_text};
use crate::evaluation::pipeline::EvaluationObserver;
use crate::evaluation::request::EvaluationRequest;
use crate::evaluation::result::{
    EvaluationResult, EvaluationStatus, EvaluationStep, EvaluationVerdict, TestResult,
};
use crate::evaluation::service::evaluator::EvaluationCall;
use crate::evaluation::service::live::LiveEvaluation;
use crate::evaluation::service::record::{RESULT_BYTES_MAX, bounded_json, patch_bytes};
use crate::evaluation::verdict::EvaluationEnd;
use crate::store::StoreError;
use cofferdam_core::Watch;
use cofferdam_core::egress::EgressRecord;

/// How long to wait before a result is written again that could not be written.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Keeps the record of an evaluation that runs.
struct RecordingObserver<'a> {
    service: &'a ServiceFloor,
    live: &'a LiveEvaluation,
}

impl EvaluationObserver for RecordingObserver<'_> {
    fn step(&self, step: EvaluationStep) {
        let is_later = {
            let mut known = self.live.known();
            let is_later = step > known.step;
            known.step = known.step.max(step);
            is_later
        };
        if !is_later {
            return;
        }
        if let Some(record) = self.service.floor().index.get_mut(&self.live.record.eval_id) {
            record.step = step;
        }
        self.live.log().append(&self.service.records, "step", &json!({ "step": step }));
    }

    fn test(&self, result: &TestResult) {
        self.live.known().add_test(result.clone());
        self.live.log().append(&self.service.records, "test", result);
    }

    fn output(&self, step: EvaluationStep, name: Option<&str>, text: &str) {
        self.live.log().output(&self.service.records, step, name, text);
    }

    fn egress(&self, record: &EgressRecord) {
        self.live.known().egress.push(record.clone());
        self.live.log().append(&self.service.records, "egress", record);
    }

    fn snapshot(&self, result: &EvaluationResult) {
        self.live.learn(result);
        if let Some(record) = self.service.floor().index.get_mut(&self.live.record.eval_id) {
            record.language.clone_from(&result.task.language);
        }
    }
}

impl ServiceFloor {
    /// Runs an evaluation on a thread of its own, to its end.
    pub(super) fn spawn_run(
        self: &Arc<Self>,
        live: &Arc<LiveEvaluation>,
        request: EvaluationRequest,
    ) -> io::Result<()> {
        let (service, live) = (Arc::clone(self), Arc::clone(live));
        let run = move || {
            let result = service.run(&live, &request);
            service.finish(&live, result);
        };
        thread::Builder::new().name("evaluation".to_owned()).spawn(run).map(drop)
    }

    fn run(&self, live: &LiveEvaluation, request: &EvaluationRequest) -> EvaluationResult {
        let (started_at, began) = (now_text(), Instant::now());
        live.started(&started_at);
        if let Some(record) = self.floor().index.get_mut(&live.record.eval_id) {
            record.status = EvaluationStatus::Running;
            record.started_at = Some(started_at.clone());
        }
        let Some(token) = live.token() else { return live.known().clone() };
        let (watch, observer) = (Watch::of(token), RecordingObserver { service: self, live });
        let call = EvaluationCall {
            id: &live.record.eval_id,
            created_at: &live.record.created_at,
            owner: &live.record.owner,
            request,
        };
        let evaluate = || self.evaluator.evaluate(&call, &watch, &observer);
        let ended = catch_unwind(AssertUnwindSafe(evaluate));
        let mut result = ended.unwrap_or_else(|_| broken(live, "the evaluation's thread panicked"));
        if result.verdict.is_none() {
            result = broken(live, "the evaluation ended without a verdict");
        }
        live.identify(&mut result);
        result.started_at.get_or_insert(started_at);
        result.finished_at.get_or_insert_with(now_text);
        if result.duration_ms == 0 {
            let took = began.elapsed().as_millis();
            result.duration_ms = u64::try_from(took).unwrap_or(u64::MAX);
        }
        result
    }

    /// Records an end, frees the slot, and tells the end.
    pub(super) fn finish(&self, live: &LiveEvaluation, mut result: EvaluationResult) {
        loop {
            let written = self.write_end(live, &mut result);
            let Err(error) = written else { break };
            let id = live.record.eval_id.as_str();
            log::error!(eval = id, reason = error.to_string(); "result not written yet");
            let floor = self.floor();
            if floor.is_ending || !error.may_pass() {
                log::error!(eval = id; "result lost");
                break;
            }
            // It holds its slot: nothing else could be recorded either.
            let waited =
                self.changed.wait_timeout_while(floor, WRITE_AGAIN_AFTER, |floor| !floor.is_ending);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        let (id, is_item) = (&live.record.eval_id, live.record.batch_id.is_some());
        self.tally.ended(&result);
        let mut floor = self.floor();
        if let Some(record) = floor.index.get_mut(id) {
            record.end(&result);
        }
        floor.count(&result);
        floor.live.remove(id);
        floor.slots.free(is_item, Instant::now());
        // Under the lock: a client that is told of the end finds the result and a free slot, and a service whose
        // slots are all free has told every end.
        live.log().close();
        drop(floor);
        self.changed.notify_all();
        log::info!(
            eval = id.as_str(),
            verdict = result.verdict.map(EvaluationVerdict::word),
            duration_ms = result.duration_ms;
            "evaluation ended"
        );
    }

    /// Frees a slot.
    pub(super) fn release(&self, is_item: bool) {
        self.floor().slots.free(is_item, Instant::now());
        self.changed.notify_all();
    }

    /// Writes all of an end: first the result, which decides, then the last event, then the record.
    pub(super) fn write_end(
        &self,
        live: &LiveEvaluation,
        result: &mut EvaluationResult,
    ) -> Result<(), StoreError> {
        let id = live.record.eval_id.as_str();
        let patch = patch_bytes(result);
        let json = bounded_json(result, RESULT_BYTES_MAX);
        let json = json.map_err(|error| self.records.events_error(id, &error.into()))?;
        self.records.write_result(id, &json, patch.as_deref())?;
        live.log().end(&self.records, &json)?;
        let mut record = live.record.clone();
        record.end(result);
        self.records.update(&record)
    }
}

fn broken(live: &LiveEvaluation, words: &str) -> EvaluationResult {
    let mut result = live.known().clone();
    end_early(&mut result, EvaluationEnd::Broken, "sandbox.failed", words);
    result
}
