//! What is known of every run, in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::live::LiveRun;
use super::turns::{Candidate, next_turn};
use crate::case::run::PlannedCell;
use crate::case::service::api::{CaseRunCounts, CaseRunPage, CaseRunQuery, CaseRunStatus};
use crate::case::service::error::CaseRunsError;
use crate::case::service::record::ServiceFile;

/// How long a key is known.
const KEY_TIMEOUT: Duration = Duration::from_hours(24);

/// How far a live run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It waits for a worker.
    Waiting,
    /// A worker reads its Case and makes its runner.
    Preparing,
    /// Its Cells are run.
    Open,
    /// A worker ends it.
    Ending,
}

/// A run that has not ended.
#[derive(Debug)]
pub struct LiveEntry {
    pub run: Arc<LiveRun>,
    pub phase: Phase,
    /// Cells with the number of their next attempt, the last one first.
    pub waiting: Vec<(PlannedCell, u64)>,
    /// Workers that run a Cell of it.
    pub running: usize,
}

/// What a worker does next.
#[derive(Debug, Clone)]
pub enum WorkUnit {
    /// Prepares a run.
    Prepare(Arc<LiveRun>),
    /// Runs a Cell.
    Cell(Arc<LiveRun>, PlannedCell, u64),
}

/// Every run of the service.
#[derive(Debug, Default)]
pub struct State {
    files: HashMap<String, ServiceFile>,
    /// By owner, then by order.
    ordered: BTreeMap<(String, u64), String>,
    /// Runs that have not ended, by order.
    pub live: BTreeMap<u64, LiveEntry>,
    /// By owner and key.
    keys: HashMap<(String, String), String>,
    last_order: u64,
    /// Runs that are being admitted.
    pub admitting: usize,
    /// Workers.
    pub active: usize,
    pub is_draining: bool,
    /// Whether Cells are ended, to be run by the next service.
    pub is_interrupting: bool,
    pub is_ending: bool,
    pub totals: CaseRunCounts,
}

impl State {
    /// An order that is larger than every other.
    pub fn next_order(&mut self, now_ns: u64) -> u64 {
        self.last_order = now_ns.max(self.last_order.saturating_add(1));
        self.last_order
    }

    /// Inserts a run.
    pub fn put(&mut self, file: ServiceFile) {
        self.last_order = self.last_order.max(file.order);
        self.ordered.insert((file.owner.clone(), file.order), file.run_id.clone());
        if let Some(used) = &file.idempotency {
            let key = (file.owner.clone(), used.key.clone());
            let newer = |id: &String| self.files.get(id).is_some_and(|old| old.order > file.order);
            if !self.keys.get(&key).is_some_and(newer) {
                self.keys.insert(key, file.run_id.clone());
            }
        }
        self.files.insert(file.run_id.clone(), file);
    }

    /// Removes a run.
    pub fn remove(&mut self, id: &str) {
        let Some(file) = self.files.remove(id) else { return };
        self.ordered.remove(&(file.owner.clone(), file.order));
        if let Some(used) = file.idempotency {
            let key = (file.owner, used.key);
            if self.keys.get(&key).is_some_and(|of_key| of_key == id) {
                self.keys.remove(&key);
            }
        }
    }

    /// The run of `owner` that was admitted with `key`, if that is not too long ago.
    pub fn of_key(&self, owner: &str, key: &str, now: SystemTime) -> Option<&ServiceFile> {
        let file = self.files.get(self.keys.get(&(owner.to_owned(), key.to_owned()))?)?;
        let created = humantime::parse_rfc3339(&file.created_at).ok()?;
        let is_fresh = now.duration_since(created).map_or(true, |age| age < KEY_TIMEOUT);
        is_fresh.then_some(file)
    }

    /// A run.
    pub fn file(&self, id: &str) -> Option<&ServiceFile> {
        self.files.get(id)
    }

    /// A run, to be changed besides its owner, order and key.
    pub fn file_mut(&mut self, id: &str) -> Option<&mut ServiceFile> {
        self.files.get_mut(id)
    }

    /// All runs.
    pub fn files(&self) -> impl Iterator<Item = &ServiceFile> {
        self.files.values()
    }

    /// A run of `owner`.
    ///
    /// # Errors
    /// There is none of that id.
    pub fn of(&self, owner: &str, id: &str) -> Result<&ServiceFile, CaseRunsError> {
        self.files.get(id).filter(|file| file.owner == owner).ok_or(CaseRunsError::NotFound)
    }

    /// A run that has not ended.
    pub fn live_of(&mut self, id: &str) -> Option<&mut LiveEntry> {
        let order = self.files.get(id)?.order;
        self.live.get_mut(&order)
    }

    /// Runs that wait for a worker.
    pub fn queued(&self) -> usize {
        self.live.values().filter(|entry| entry.phase == Phase::Waiting).count()
    }

    /// Takes the next work, if there is any.
    pub fn next_unit(&mut self) -> Option<WorkUnit> {
        if self.is_draining {
            return None;
        }
        let order = next_turn(self.live.iter().filter_map(|(order, entry)| {
            let owner = self.files.get(&entry.run.id)?.owner.as_str();
            let is_prepared = usize::from(entry.phase == Phase::Preparing);
            let has_work = match entry.phase {
                Phase::Waiting => true,
                Phase::Open => !entry.waiting.is_empty(),
                Phase::Preparing | Phase::Ending => false,
            };
            let running = entry.running + is_prepared;
            Some(Candidate { owner, order: *order, running, has_work })
        }))?;
        let entry = self.live.get_mut(&order)?;
        let run = Arc::clone(&entry.run);
        if entry.phase == Phase::Waiting {
            entry.phase = Phase::Preparing;
            return Some(WorkUnit::Prepare(run));
        }
        let (cell, attempt) = entry.waiting.pop()?;
        entry.running += 1;
        Some(WorkUnit::Cell(run, cell, attempt))
    }

    /// Takes work back that was not begun.
    pub fn give_back(&mut self, unit: WorkUnit) {
        match unit {
            WorkUnit::Prepare(run) => {
                if let Some(entry) = self.live_of(&run.id) {
                    entry.phase = Phase::Waiting;
                }
            }
            WorkUnit::Cell(run, cell, attempt) => {
                if let Some(entry) = self.live_of(&run.id) {
                    entry.running -= 1;
                    entry.waiting.push((cell, attempt));
                }
            }
        }
    }

    /// A page of the list of `owner`, the newest first.
    ///
    /// # Errors
    /// A cursor that no list returned.
    pub fn page(&self, owner: &str, query: &CaseRunQuery) -> Result<CaseRunPage, CaseRunsError> {
        let before = query.cursor.as_deref().map_or(Some(u64::MAX), parse_cursor);
        let before =
            before.ok_or_else(|| CaseRunsError::invalid("cursor", "not a cursor of this list"))?;
        let range = (owner.to_owned(), 0)..(owner.to_owned(), before);
        let mut wanted = self
            .ordered
            .range(range)
            .rev()
            .filter_map(|(_, id)| self.files.get(id))
            .filter(|file| query.status.is_none_or(|status| file.status == status));
        let files: Vec<&ServiceFile> = wanted.by_ref().take(query.limit).collect();
        let has_more = wanted.next().is_some();
        let last = files.last().map(|file| format!("{:016x}", file.order));
        let runs = files.iter().map(|file| file.view()).collect();
        Ok(CaseRunPage { runs, next_cursor: last.filter(|_| has_more) })
    }

    /// What is counted.
    pub fn counts(&self, capacity: usize) -> CaseRunCounts {
        let of = |status| {
            let ids = self.live.values().filter_map(|entry| self.files.get(&entry.run.id));
            ids.filter(|file| file.status == status).count() as u64
        };
        CaseRunCounts {
            runs_queued: of(CaseRunStatus::Queued),
            runs_running: of(CaseRunStatus::Running),
            cells_running: self.live.values().map(|entry| entry.running as u64).sum(),
            cells_capacity: capacity as u64,
            ..self.totals
        }
    }
}

fn parse_cursor(cursor: &str) -> Option<u64> {
    let is_ours = cursor.len() == 16 && cursor.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_ours { u64::from_str_radix(cursor, 16).ok() } else { None }
}
