//! Takes over what an earlier service left.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde::Deserialize;
use uuid::Uuid;

use super::service_state::{
    ServiceFloor, cancelled_result, end_early, now_ns, now_text, parse_time,
};
use crate::evaluation::result::{EvaluationStatus, EvaluationStep, EvaluationVerdict};
use crate::evaluation::service::batch::{BatchFile, BatchItem};
use crate::evaluation::service::floor::OpenBatch;
use crate::evaluation::service::live::LiveEvaluation;
use crate::evaluation::service::record::{EventLog, FoundRecord, RecordFile, remove};
use crate::evaluation::verdict::EvaluationEnd;
use crate::store::{ReadFault, StoreError};

/// What of a result its record repeats.
#[derive(Deserialize)]
struct EndedFacts {
    eval_id: String,
    status: EvaluationStatus,
    step: EvaluationStep,
    verdict: EvaluationVerdict,
    passed: Option<bool>,
    started_at: Option<String>,
    finished_at: Option<String>,
    task: TaskLanguage,
}

#[derive(Deserialize)]
struct TaskLanguage {
    language: Option<String>,
}

impl ServiceFloor {
    /// Takes over every record and every batch. What is damaged is set aside.
    ///
    /// # Errors
    /// The disk failed.
    pub fn recover(&self) -> Result<(), StoreError> {
        let mut batches = self.find_batches()?;
        let (mut live, mut broken) = (Vec::new(), HashSet::new());
        for name in self.records.names()? {
            match self.find(&name) {
                Ok(Some(FoundRecord::Over(record))) => self.floor().index.put(record),
                Ok(Some(FoundRecord::Unrecorded(record, json))) => {
                    self.take_ended(&name, record, &json)?;
                }
                Ok(Some(FoundRecord::Live(record))) => live.push(record),
                Ok(None) => {}
                Err(ReadFault::System(error)) => return Err(error),
                Err(fault) => {
                    let reason = fault.at(self.records.root().path_of(&name)).to_string();
                    self.records.set_aside(self.records.root(), &name, &reason);
                    broken.extend(name.to_str().map(str::to_owned));
                }
            }
        }
        for record in live {
            let file = record.batch_id.as_ref().and_then(|id| batches.get_mut(id));
            self.take_live(record, file)?;
        }
        for file in batches.into_values() {
            self.take_batch(file, &broken)?;
        }
        self.take_keys();
        self.records.prune_quarantine()
    }

    fn find(&self, name: &OsStr) -> Result<Option<FoundRecord>, ReadFault> {
        let id = name.to_str().filter(|id| Uuid::parse_str(id).is_ok());
        let Some(id) = id else { return Err(ReadFault::Corrupt("not an id".to_owned())) };
        match self.records.inspect(id) {
            // The command line leaves a result alone.
            Err(ReadFault::Absent) if self.records.result(id).is_ok() => Ok(None),
            Err(ReadFault::Absent) => Err(ReadFault::Corrupt("a file is missing".to_owned())),
            found => found.map(Some),
        }
    }

    fn find_batches(&self) -> Result<HashMap<String, BatchFile>, StoreError> {
        let mut batches = HashMap::new();
        let directory = self.records.batches();
        for name in directory.names()? {
            if name.as_bytes().starts_with(b".") {
                remove(directory, &name);
                continue;
            }
            let id = name.to_str().unwrap_or_default();
            match self.batch_files().read(id) {
                Ok(batch) => drop(batches.insert(id.to_owned(), batch)),
                Err(ReadFault::System(error)) => return Err(error),
                Err(fault) => {
                    let reason = fault.at(directory.path_of(&name)).to_string();
                    self.records.set_aside(directory, &name, &reason);
                }
            }
        }
        Ok(batches)
    }

    /// Completes the record of an evaluation whose result was written.
    fn take_ended(
        &self,
        name: &OsStr,
        mut record: RecordFile,
        json: &[u8],
    ) -> Result<(), StoreError> {
        let facts = serde_json::from_slice::<EndedFacts>(json).ok();
        let Some(facts) = facts.filter(|facts| facts.eval_id == record.eval_id) else {
            self.records.set_aside(self.records.root(), name, "result.json is damaged");
            return Ok(());
        };
        (record.status, record.step) = (facts.status, facts.step);
        (record.verdict, record.passed) = (Some(facts.verdict), facts.passed);
        (record.started_at, record.finished_at) = (facts.started_at, facts.finished_at);
        record.language = facts.task.language;
        EventLog::resume(&self.records, &record.eval_id)?.end(&self.records, json)?;
        self.records.update(&record)?;
        self.floor().index.put(record);
        Ok(())
    }

    /// Ends what ran. An item that ran is to run once more; one that waited waits.
    fn take_live(
        &self,
        record: RecordFile,
        batch: Option<&mut BatchFile>,
    ) -> Result<(), StoreError> {
        let log = EventLog::resume(&self.records, &record.eval_id)?;
        let item = batch.as_ref().and_then(|file| {
            file.items.iter().find(|item| item.eval_id == record.eval_id).cloned()
        });
        if let Some(item) = &item
            && record.started_at.is_none()
            && item.cancelled_at.is_none()
        {
            let live = LiveEvaluation::new(record.clone(), log);
            self.floor().live.insert(record.eval_id.clone(), live.into());
            return Ok(());
        }
        if let (Some(file), Some(item)) = (batch, &item) {
            self.run_again(file, item)?;
        }
        let mut result = record.to_result();
        result.step = log.step().unwrap_or(result.step);
        let words = "the service ended while the evaluation ran";
        end_early(&mut result, EvaluationEnd::Broken, "evaluation.interrupted", words);
        if let Some(at) = item.and_then(|item| item.cancelled_at) {
            result = cancelled_result(&record, &at);
        }
        let live = LiveEvaluation::new(record.clone(), log);
        self.write_end(&live, &mut result)?;
        let mut record = record;
        record.end(&result);
        self.floor().index.put(record);
        Ok(())
    }

    /// Adds the second run of an item, unless it was the second, the batch is cancelled, or the variables of
    /// the agent are gone: without them it would not be the same run.
    fn run_again(&self, file: &mut BatchFile, item: &BatchItem) -> Result<(), StoreError> {
        let has_second = file
            .items
            .iter()
            .any(|other| other.rerun_of.as_ref().is_some_and(|first| *first == item.eval_id));
        let is_wanted = item.rerun_of.is_none() && item.cancelled_at.is_none() && !has_second;
        if !is_wanted || file.is_cancelled || !self.batch_files().has_env(file, item.agent) {
            return Ok(());
        }
        let highest = file.items.iter().map(|item| item.order).max().unwrap_or(0);
        file.items.push(BatchItem {
            eval_id: Uuid::new_v4().to_string(),
            order: now_ns().max(highest.saturating_add(1)),
            created_at: now_text(),
            rerun_of: Some(item.eval_id.clone()),
            ..item.clone()
        });
        self.batch_files().update(file)
    }

    fn take_batch(&self, mut file: BatchFile, broken: &HashSet<String>) -> Result<(), StoreError> {
        let mut waiting = VecDeque::new();
        let is_cancelled = file.is_cancelled;
        for index in 0..file.items.len() {
            let Some(item) = file.items.get_mut(index) else { continue };
            if self.floor().index.get(&item.eval_id).is_some() {
                continue;
            }
            if is_cancelled {
                item.cancelled_at.get_or_insert_with(now_text);
            }
            let item = item.clone();
            let mut record = file.record(&item);
            if let Some(at) = &item.cancelled_at {
                record.end(&cancelled_result(&record, at));
            } else if broken.contains(&item.eval_id) {
                self.end_damaged(&mut record)?;
            } else {
                waiting.push_back(index);
            }
            self.floor().index.put(record);
        }
        let waits = |agent: &usize| {
            let items = waiting.iter().filter_map(|index| file.items.get(*index));
            items.map(|item| item.agent).any(|other| other == *agent)
        };
        for agent in file.secret_agents.iter().filter(|agent| !waits(agent)) {
            self.batch_files().remove_env(&file.batch_id, *agent);
        }
        let id = file.batch_id.clone();
        self.floor().batches.insert(id, OpenBatch { file, waiting });
        Ok(())
    }

    /// Ends an item whose record was damaged, so that it is not taken for one that waits.
    fn end_damaged(&self, record: &mut RecordFile) -> Result<(), StoreError> {
        record.started_at = Some(now_text());
        self.records.create(record)?;
        let log = EventLog::new(&record.eval_id);
        let live = LiveEvaluation::new(record.clone(), log);
        let mut result = record.to_result();
        let words = "the record of the evaluation was damaged and set aside";
        end_early(&mut result, EvaluationEnd::Broken, "evaluation.interrupted", words);
        self.write_end(&live, &mut result)?;
        record.end(&result);
        Ok(())
    }

    fn take_keys(&self) {
        let mut floor = self.floor();
        let of_record = |record: &RecordFile| {
            let key = record.idempotency.clone()?;
            Some((record.owner.clone(), key, record.eval_id.clone(), record.created_at.clone()))
        };
        let mut keys: Vec<_> = floor.index.all().filter_map(of_record).collect();
        keys.extend(floor.batches.values().filter_map(|batch| {
            let file = &batch.file;
            let key = file.idempotency.clone()?;
            Some((file.owner.clone(), key, file.batch_id.clone(), file.created_at.clone()))
        }));
        keys.sort_by(|one, other| one.3.cmp(&other.3));
        for (owner, key, id, created_at) in keys {
            floor.use_key(&owner, Some(&key), &id, parse_time(&created_at));
        }
    }
}
