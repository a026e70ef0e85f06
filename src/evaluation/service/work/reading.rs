//! Answers what is asked of evaluations.

use std::sync::Arc;

use super::service_state::{ServiceFloor, cancelled_result, now_text, store_failed};
use crate::evaluation::service::api::EvaluationEvents;
use crate::evaluation::service::batch::{BatchEntry, BatchItem, summary_json};
use crate::evaluation::service::error::EvaluationsError;
use crate::evaluation::service::junit::JunitSource;
use crate::evaluation::service::live::LiveEvaluation;
use crate::evaluation::service::record::{EventLog, RecordFile};

/// What is known of an evaluation, and where.
enum Known {
    /// In memory, as JSON of a result that is not final.
    Live(String),
    /// In memory alone: it was cancelled while it waited.
    Unrecorded(Vec<u8>),
    /// On the disk.
    Ended,
}

impl ServiceFloor {
    fn known(&self, owner: &str, id: &str) -> Result<Known, EvaluationsError> {
        let (record, live) = {
            let floor = self.floor();
            let record = floor.index.of(owner, id).cloned().ok_or(EvaluationsError::NotFound)?;
            let live = floor.live.get(id).cloned();
            (record, live)
        };
        let json_failed = |error: serde_json::Error| EvaluationsError::Store(error.to_string());
        if !record.has_ended() {
            let result = live.map_or_else(|| record.to_result(), |live| live.known().clone());
            return Ok(Known::Live(serde_json::to_string(&result).map_err(json_failed)?));
        }
        let is_there = self.records.root().entry(id).map_err(|error| store_failed(&error))?;
        if is_there.is_some() && record.started_at.is_some() || record.batch_id.is_none() {
            return Ok(Known::Ended);
        }
        let at = record.finished_at.clone().unwrap_or_else(now_text);
        let json = serde_json::to_vec(&cancelled_result(&record, &at)).map_err(json_failed)?;
        Ok(if record.started_at.is_some() { Known::Ended } else { Known::Unrecorded(json) })
    }

    /// The result as JSON.
    pub fn result_json(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        let json = match self.known(owner, id)? {
            Known::Live(json) => return Ok(json),
            Known::Unrecorded(json) => json,
            Known::Ended => self.records.result(id).map_err(|error| store_failed(&error))?,
        };
        String::from_utf8(json).map_err(|_| EvaluationsError::Store("a damaged record".to_owned()))
    }

    /// The patch of what has ended.
    pub fn patch_of(&self, owner: &str, id: &str) -> Result<Vec<u8>, EvaluationsError> {
        match self.known(owner, id)? {
            Known::Live(_) => Err(not_over()),
            Known::Unrecorded(_) => Err(EvaluationsError::NotFound),
            Known::Ended => {
                let patch = self.records.patch(id).map_err(|error| store_failed(&error))?;
                patch.ok_or(EvaluationsError::NotFound)
            }
        }
    }

    /// The tests of what has ended.
    pub fn junit_xml(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        let json = match self.known(owner, id)? {
            Known::Live(_) => return Err(not_over()),
            Known::Unrecorded(json) => json,
            Known::Ended => self.records.result(id).map_err(|error| store_failed(&error))?,
        };
        let source = JunitSource::of_json(&json);
        let source = source.map_err(|error| EvaluationsError::Store(error.to_string()))?;
        Ok(source.xml())
    }

    /// The events.
    pub fn follow(&self, owner: &str, id: &str) -> Result<EvaluationEvents, EvaluationsError> {
        let find = || {
            let floor = self.floor();
            let record = floor.index.of(owner, id).cloned().ok_or(EvaluationsError::NotFound)?;
            Ok((record, floor.live.get(id).cloned()))
        };
        let (mut record, mut live): (RecordFile, Option<Arc<LiveEvaluation>>) = find()?;
        if record.batch_id.is_some() && record.started_at.is_none() && live.is_none() {
            let _admitting = self.admitting();
            (record, live) = find()?;
            if live.is_none() {
                self.materialize(&record)?;
                (record, live) = find()?;
            }
        }
        let followed = match live {
            Some(live) => live.log().follow(&self.records),
            None => EventLog::over(&record.eval_id).follow(&self.records),
        };
        followed.map_err(|error| store_failed(&error))
    }

    /// A batch as JSON.
    pub fn batch_json(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        let (entries, is_cancelled) = {
            let floor = self.floor();
            let batch = floor.batches.get(id).filter(|batch| batch.file.owner == owner);
            let file = &batch.ok_or(EvaluationsError::NotFound)?.file;
            let entry = |item: &BatchItem| {
                let record = floor.index.get(&item.eval_id)?.clone();
                Some(BatchEntry { agent: file.agent_name(item), record })
            };
            let entries: Vec<BatchEntry> = file.items.iter().filter_map(entry).collect();
            (entries, file.is_cancelled)
        };
        let json = summary_json(id, is_cancelled, &entries);
        json.map_err(|error| EvaluationsError::Store(error.to_string()))
    }
}

fn not_over() -> EvaluationsError {
    EvaluationsError::Conflict("the evaluation has not ended yet".to_owned())
}
