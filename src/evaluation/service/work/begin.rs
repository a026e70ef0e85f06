//! Begins the items of batches that wait.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::service_state::{ServiceFloor, end_early, now_text};
use crate::evaluation::service::batch::{BatchFile, BatchItem};
use crate::evaluation::service::floor::{EvaluationFloor, ItemWait};
use crate::evaluation::service::live::LiveEvaluation;
use crate::evaluation::service::record::EventLog;
use crate::evaluation::verdict::EvaluationEnd;
use crate::store::StoreError;
use cofferdam_core::sync::cancel::CancelToken;

/// How long to wait where the process has no descriptor left.
const DESCRIPTOR_WAIT: Duration = Duration::from_secs(1);

/// An item whose turn it is.
struct BegunItem {
    batch: BatchFile,
    item: BatchItem,
    live: Arc<LiveEvaluation>,
    is_recorded: bool,
    is_last_of_agent: bool,
}

impl ServiceFloor {
    /// Begins items and removes old records until the service ends.
    pub fn dispatch(self: &Arc<Self>) {
        let sweep_every = self.sweep_every();
        let mut swept = Instant::now();
        loop {
            let mut floor = self.floor();
            if floor.is_ending {
                return;
            }
            let wait = match self.next_item(&mut floor) {
                Ok(begun) => {
                    drop(floor);
                    self.begin_item(begun);
                    continue;
                }
                Err(wait) => wait,
            };
            let now = Instant::now();
            let sweep_in = sweep_every.saturating_sub(now.saturating_duration_since(swept));
            if sweep_in.is_zero() {
                drop(floor);
                self.remove_expired(std::time::SystemTime::now());
                swept = Instant::now();
                continue;
            }
            let wait = match wait {
                ItemWait::Change => sweep_in,
                ItemWait::Until(until) => until.saturating_duration_since(now).min(sweep_in),
            };
            // Spurious wakes look again.
            drop(self.changed.wait_timeout(floor, wait).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn next_item(&self, floor: &mut EvaluationFloor) -> Result<BegunItem, ItemWait> {
        let waiting = floor.waiting();
        if floor.is_draining || waiting.is_empty() {
            return Err(ItemWait::Change);
        }
        let later = |_| ItemWait::Until(Instant::now() + DESCRIPTOR_WAIT);
        let token = CancelToken::new().map_err(later)?;
        floor.slots.take_item(Instant::now())?;
        let begun = Self::take_turn(floor, &waiting, token);
        if begun.is_none() {
            floor.slots.free(true, Instant::now());
        }
        begun.ok_or(ItemWait::Change)
    }

    fn take_turn(
        floor: &mut EvaluationFloor,
        waiting: &crate::evaluation::service::batch::WaitingBatches,
        token: CancelToken,
    ) -> Option<BegunItem> {
        let batch_id = floor.turns.next(waiting)?;
        let batch = floor.batches.get_mut(&batch_id)?;
        let index = batch.waiting.pop_front()?;
        let file = batch.file.clone();
        let item = file.items.get(index)?.clone();
        let of_agent = |other: &usize| file.items.get(*other).map(|other| other.agent);
        let is_last_of_agent =
            !batch.waiting.iter().any(|other| of_agent(other) == Some(item.agent));
        let followed = floor.live.get(&item.eval_id).cloned();
        let is_recorded = followed.is_some();
        let live = followed.unwrap_or_else(|| {
            let log = EventLog::new(&item.eval_id);
            Arc::new(LiveEvaluation::new(file.record(&item), log))
        });
        live.begin(token);
        floor.live.insert(item.eval_id.clone(), Arc::clone(&live));
        Some(BegunItem { batch: file, item, live, is_recorded, is_last_of_agent })
    }

    fn begin_item(self: &Arc<Self>, begun: BegunItem) {
        let BegunItem { batch, item, live, is_recorded, is_last_of_agent } = begun;
        let request = self.batch_files().request(&batch, &item);
        let recorded = self.record_start(&live, is_recorded);
        if is_last_of_agent && batch.secret_agents.contains(&item.agent) {
            self.batch_files().remove_env(&batch.batch_id, item.agent);
        }
        let spawned = match (request, recorded) {
            (Ok(request), Ok(())) => {
                self.spawn_run(&live, request).map_err(|error| error.to_string())
            }
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        };
        if let Err(reason) = spawned {
            log::error!(eval = item.eval_id.as_str(), reason; "item of a batch not begun");
            let mut result = live.record.to_result();
            let words = "the item cannot be begun: its files or a thread are missing";
            end_early(&mut result, EvaluationEnd::Broken, "sandbox.failed", words);
            self.finish(&live, result);
        }
    }

    /// Records that an item has begun: after a kill it is not one that waits.
    fn record_start(&self, live: &LiveEvaluation, is_recorded: bool) -> Result<(), StoreError> {
        let mut record = live.record.clone();
        record.started_at = Some(now_text());
        if is_recorded { self.records.update(&record) } else { self.records.create(&record) }
    }
}
