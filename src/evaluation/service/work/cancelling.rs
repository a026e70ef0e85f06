//! Cancels what runs and what waits.

use std::sync::Arc;

use super::service_state::{ServiceFloor, cancelled_result, now_text, store_failed};
use crate::evaluation::result::EvaluationStatus;
use crate::evaluation::service::api::CancelledEvaluation;
use crate::evaluation::service::batch::BatchFile;
use crate::evaluation::service::error::EvaluationsError;
use crate::evaluation::service::floor::EvaluationFloor;
use crate::evaluation::service::live::LiveEvaluation;
use crate::evaluation::service::record::{EventLog, RecordFile};

/// Items that were taken out of a queue, and their batch.
struct WithdrawnItems {
    file: BatchFile,
    records: Vec<RecordFile>,
    followed: Vec<Arc<LiveEvaluation>>,
    /// Agents with variables of whom no item waits.
    agents: Vec<usize>,
}

impl ServiceFloor {
    /// Cancels one evaluation.
    pub fn cancel_one(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<CancelledEvaluation, EvaluationsError> {
        let eval_id = id.to_owned();
        // What runs need not wait for the disk.
        if let Some(live) = self.running(owner, id) {
            live.cancel();
            let (status, had_ended) = (live.known().status, false);
            return Ok(CancelledEvaluation { eval_id, status, had_ended });
        }
        let _admitting = self.admitting();
        let mut floor = self.floor();
        let record = floor.index.of(owner, id).ok_or(EvaluationsError::NotFound)?;
        let (status, batch_id) = (record.status, record.batch_id.clone());
        if record.has_ended() {
            return Ok(CancelledEvaluation { eval_id, status, had_ended: true });
        }
        if let Some(live) = floor.live.get(id).filter(|live| live.runs()) {
            live.cancel();
            return Ok(CancelledEvaluation { eval_id, status, had_ended: false });
        }
        let is_it = |item: &str| item == id;
        let withdrawn = batch_id.and_then(|batch| withdraw(&mut floor, &batch, is_it));
        drop(floor);
        if let Some(withdrawn) = withdrawn {
            self.end_withdrawn(withdrawn)?;
        }
        let status = EvaluationStatus::Cancelled;
        Ok(CancelledEvaluation { eval_id, status, had_ended: false })
    }

    fn running(&self, owner: &str, id: &str) -> Option<Arc<LiveEvaluation>> {
        let floor = self.floor();
        floor.index.of(owner, id).filter(|record| !record.has_ended())?;
        floor.live.get(id).filter(|live| live.runs()).cloned()
    }

    /// Cancels what of a batch is live.
    pub fn cancel_items(&self, owner: &str, id: &str) -> Result<(), EvaluationsError> {
        let _admitting = self.admitting();
        let mut floor = self.floor();
        let batch = floor.batches.get_mut(id).filter(|batch| batch.file.owner == owner);
        let ids: Vec<String> = batch
            .as_ref()
            .map(|batch| batch.file.items.iter().map(|item| item.eval_id.clone()).collect())
            .ok_or(EvaluationsError::NotFound)?;
        let is_live = |id: &String| floor.index.get(id).is_some_and(|record| !record.has_ended());
        if !ids.iter().any(is_live) {
            return Ok(());
        }
        if let Some(batch) = floor.batches.get_mut(id) {
            batch.file.is_cancelled = true;
        }
        for live in ids.iter().filter_map(|id| floor.live.get(id)) {
            live.cancel();
        }
        let withdrawn = withdraw(&mut floor, id, |_| true);
        drop(floor);
        withdrawn.map_or(Ok(()), |withdrawn| self.end_withdrawn(withdrawn))
    }

    /// Records the end of items that waited: one write for all of them.
    fn end_withdrawn(&self, withdrawn: WithdrawnItems) -> Result<(), EvaluationsError> {
        let WithdrawnItems { file, records, followed, agents } = withdrawn;
        let written = self.batch_files().update(&file);
        for agent in agents {
            self.batch_files().remove_env(&file.batch_id, agent);
        }
        for record in &records {
            let at = record.finished_at.clone().unwrap_or_else(now_text);
            let result = cancelled_result(record, &at);
            self.tally.ended(&result);
            self.floor().count(&result);
        }
        for live in followed {
            self.end_followed(&live)?;
        }
        self.changed.notify_all();
        written.map_err(|error| store_failed(&error))
    }

    /// Writes the record of an item that was cancelled while it waited, which has a directory already.
    pub(super) fn end_followed(&self, live: &LiveEvaluation) -> Result<(), EvaluationsError> {
        let at = now_text();
        let known = self.floor().index.get(&live.record.eval_id).cloned();
        let at = known.and_then(|record| record.finished_at).unwrap_or(at);
        let mut result = cancelled_result(&live.record, &at);
        let written = self.write_end(live, &mut result);
        self.floor().live.remove(&live.record.eval_id);
        live.log().close();
        written.map_err(|error| store_failed(&error))
    }

    /// Makes the record of an item that waits, or was cancelled while it waited, for those who follow it.
    /// The caller holds `admitting`.
    pub(super) fn materialize(&self, record: &RecordFile) -> Result<(), EvaluationsError> {
        let id = record.eval_id.as_str();
        let is_there = self.records.root().entry(id).map_err(|error| store_failed(&error))?;
        if is_there.is_some() {
            return Ok(());
        }
        let waiting = {
            let floor = self.floor();
            let batch = record.batch_id.as_ref().and_then(|batch| floor.batches.get(batch));
            let batch = batch.map(|batch| &batch.file);
            let item = |file: &BatchFile| {
                file.items.iter().find(|item| item.eval_id == id).map(|item| file.record(item))
            };
            batch.and_then(item).ok_or(EvaluationsError::NotFound)?
        };
        self.records.create(&waiting).map_err(|error| store_failed(&error))?;
        let live = Arc::new(LiveEvaluation::new(waiting, EventLog::new(id)));
        let has_ended = {
            let mut floor = self.floor();
            let has_ended = floor.index.get(id).is_some_and(RecordFile::has_ended);
            if !has_ended {
                floor.live.insert(id.to_owned(), Arc::clone(&live));
            }
            has_ended
        };
        if has_ended { self.end_followed(&live) } else { Ok(()) }
    }
}

/// Takes items out of a queue and ends them in memory.
fn withdraw(
    floor: &mut EvaluationFloor,
    batch_id: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<WithdrawnItems> {
    let batch = floor.batches.get_mut(batch_id)?;
    let at = now_text();
    let (mut taken, mut left) = (Vec::new(), std::collections::VecDeque::new());
    for index in std::mem::take(&mut batch.waiting) {
        match batch.file.items.get_mut(index) {
            Some(item) if is_wanted(&item.eval_id) => {
                item.cancelled_at = Some(at.clone());
                taken.push(item.clone());
            }
            _ => left.push_back(index),
        }
    }
    let waits = |agent: &usize| {
        let mut agents = left.iter().filter_map(|index| batch.file.items.get(*index));
        agents.any(|item| item.agent == *agent)
    };
    let secret = batch.file.secret_agents.iter().copied();
    let agents = secret
        .filter(|agent| taken.iter().any(|item| item.agent == *agent) && !waits(agent))
        .collect();
    batch.waiting = left;
    let file = batch.file.clone();
    let (mut records, mut followed) = (Vec::new(), Vec::new());
    for item in taken {
        followed.extend(floor.live.get(&item.eval_id).cloned());
        if let Some(record) = floor.index.get_mut(&item.eval_id) {
            record.end(&cancelled_result(record, &at));
            records.push(record.clone());
        }
    }
    Some(WithdrawnItems { file, records, followed, agents })
}
