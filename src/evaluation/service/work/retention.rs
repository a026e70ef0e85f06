//! Removes records whose time is over.

use std::time::{Duration, SystemTime};

use super::service_state::{ServiceFloor, parse_time};
use crate::evaluation::service::floor::EvaluationFloor;
use crate::evaluation::service::record::RecordFile;

/// The longest between two looks, and the shortest.
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(60);
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(500);
/// How many records without a batch are removed at a look, and how many batches.
const SWEEP_RECORDS_MAX: usize = 200;
const SWEEP_BATCHES_MAX: usize = 4;

impl ServiceFloor {
    pub(super) fn sweep_every(&self) -> Duration {
        self.settings.retention.clamp(SWEEP_EVERY_MIN, SWEEP_EVERY_MAX)
    }

    /// Removes what ended longer ago than SESSION_TTL_SECS and EVAL_RETENTION, batches as a whole.
    pub fn remove_expired(&self, now: SystemTime) {
        let kept_for = self.settings.session_timeout.saturating_add(self.settings.retention);
        let is_old = |record: &RecordFile| {
            let ended = record.finished_at.as_deref().map(parse_time);
            ended
                .and_then(|ended| now.duration_since(ended).ok())
                .is_some_and(|age| age >= kept_for)
        };
        let (batches, ids) = {
            let _admitting = self.admitting();
            let mut floor = self.floor();
            let (batches, mut ids) = old_batches(&floor, is_old);
            ids.extend(old_records(&floor, is_old));
            for id in &batches {
                floor.batches.remove(id);
            }
            for id in &ids {
                floor.index.remove(id);
            }
            let floor = &mut *floor;
            let (index, kept) = (&floor.index, &floor.batches);
            floor
                .keys
                .retain(|_, used| index.get(&used.id).is_some() || kept.contains_key(&used.id));
            (batches, ids)
        };
        for id in batches {
            self.batch_files().remove(&id);
        }
        for id in ids {
            self.records.remove(&id);
        }
    }
}

fn old_batches(
    floor: &EvaluationFloor,
    is_old: impl Fn(&RecordFile) -> bool,
) -> (Vec<String>, Vec<String>) {
    let (mut batches, mut ids) = (Vec::new(), Vec::new());
    for batch in floor.batches.values() {
        let of_batch = || batch.file.items.iter().map(|item| &item.eval_id);
        if batches.len() < SWEEP_BATCHES_MAX
            && of_batch().all(|id| floor.index.get(id).is_none_or(&is_old))
        {
            batches.push(batch.file.batch_id.clone());
            ids.extend(of_batch().cloned());
        }
    }
    (batches, ids)
}

fn old_records(floor: &EvaluationFloor, is_old: impl Fn(&RecordFile) -> bool) -> Vec<String> {
    let is_item = |record: &RecordFile| {
        record.batch_id.as_ref().is_some_and(|batch| floor.batches.contains_key(batch))
    };
    let old = floor.index.all().filter(|record| !is_item(record) && is_old(record));
    old.take(SWEEP_RECORDS_MAX).map(|record| record.eval_id.clone()).collect()
}
