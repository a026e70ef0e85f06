//! The workspaces, live and parked, by id, label and owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::ends::parked::ParkedWorkspace;
use super::live::{LiveWorkspace, WorkspaceEnd, not_found};
use crate::config::TokenName;
use crate::workspace::error::EngineError;
use crate::workspace::request::WorkspaceSettings;
use cofferdam_core::values::deadline::Deadline;

/// The label of a workspace, with its owner.
type Label = (TokenName, String);

/// The workspaces.
#[derive(Debug, Default)]
pub struct Registry {
    state: Mutex<RegistryState>,
    /// Notified when an acquire has made its workspace, or has failed.
    acquired: Condvar,
    /// Notified when a workspace has been parked, woken or removed, or that has failed.
    changed: Condvar,
}

/// A workspace.
#[derive(Debug, Clone)]
pub enum Kept {
    /// It is live.
    Live(Arc<LiveWorkspace>),
    /// It is in the store only.
    Parked(Arc<ParkedWorkspace>),
}

/// The right to park, wake or remove a workspace.
#[derive(Debug)]
pub struct ChangeGuard<'a> {
    registry: &'a Registry,
    number: u64,
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.registry.lock().changing.remove(&self.number);
        self.registry.changed.notify_all();
    }
}

impl Kept {
    /// Its place in the order of creation.
    pub fn number(&self) -> u64 {
        match self {
            Self::Live(live) => live.number,
            Self::Parked(parked) => parked.number,
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Live(live) => &live.id,
            Self::Parked(parked) => &parked.record.id,
        }
    }

    fn owner(&self) -> &TokenName {
        match self {
            Self::Live(live) => &live.owner,
            Self::Parked(parked) => &parked.owner,
        }
    }

    /// Whether it is gone, but for what is still to be done. One that is parked in the end is not.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Live(live) if live.is_over() && !live.settings.persist)
    }

    /// The workspace, if it is not parked.
    pub fn live(&self) -> Option<&Arc<LiveWorkspace>> {
        match self {
            Self::Live(live) => Some(live),
            Self::Parked(_) => None,
        }
    }

    /// What it was created with.
    pub fn settings(&self) -> &WorkspaceSettings {
        match self {
            Self::Live(live) => &live.settings,
            Self::Parked(parked) => &parked.record.settings,
        }
    }

    fn label(&self) -> Option<Label> {
        Some((self.owner().clone(), self.settings().exec_id.clone()?))
    }
}

#[derive(Debug, Default)]
struct RegistryState {
    kept: BTreeMap<u64, Kept>,
    numbers: HashMap<String, u64>,
    labels: BTreeMap<Label, BTreeSet<u64>>,
    /// The labels for which a workspace is being made.
    acquiring: BTreeSet<Label>,
    /// The numbers of workspaces that are being parked, woken or removed.
    changing: BTreeSet<u64>,
    numbers_given: u64,
}

/// What an acquire finds.
#[derive(Debug)]
pub enum Acquired<'a> {
    /// A workspace with the label.
    Known(Kept),
    /// None: the caller makes it, and others wait until the guard is dropped.
    Leader(AcquireGuard<'a>),
    /// Another makes it, and takes too long.
    TimedOut,
}

/// The right to make the workspace with a label.
#[derive(Debug)]
pub struct AcquireGuard<'a> {
    registry: &'a Registry,
    label: Label,
}

impl Drop for AcquireGuard<'_> {
    fn drop(&mut self) {
        self.registry.lock().acquiring.remove(&self.label);
        self.registry.acquired.notify_all();
    }
}

impl Registry {
    /// The number of the next workspace.
    pub fn next_number(&self) -> u64 {
        let mut state = self.lock();
        state.numbers_given += 1;
        state.numbers_given
    }

    /// Adds a workspace, in place of the parked one with its number.
    pub fn insert(&self, workspace: Arc<LiveWorkspace>) {
        self.put(&workspace.id.clone(), Kept::Live(workspace));
    }

    /// Adds a parked workspace, in place of the live one with its number.
    pub fn insert_parked(&self, parked: ParkedWorkspace) {
        self.put(&parked.record.id.clone(), Kept::Parked(Arc::new(parked)));
    }

    fn put(&self, id: &str, kept: Kept) {
        let mut state = self.lock();
        let number = kept.number();
        state.numbers.insert(id.to_owned(), number);
        if let Some(label) = kept.label() {
            state.labels.entry(label).or_default().insert(number);
        }
        // Dropped without the lock: it frees the files.
        let before = state.kept.insert(number, kept);
        drop(state);
        drop(before);
    }

    /// Removes a workspace.
    pub fn remove(&self, workspace: &LiveWorkspace) {
        self.take(workspace.number, &workspace.id);
    }

    /// Removes a parked workspace.
    pub fn remove_parked(&self, parked: &ParkedWorkspace) {
        self.take(parked.number, &parked.record.id);
    }

    fn take(&self, number: u64, id: &str) {
        let mut state = self.lock();
        state.numbers.remove(id);
        let kept = state.kept.remove(&number);
        if let Some(label) = kept.as_ref().and_then(Kept::label)
            && let Some(numbers) = state.labels.get_mut(&label)
        {
            numbers.remove(&number);
            if numbers.is_empty() {
                state.labels.remove(&label);
            }
        }
        drop(state);
    }

    /// The right to park, wake or remove the workspace with that number. Waits until `deadline` for another
    /// that has it.
    pub fn begin_change(&self, number: u64, deadline: Deadline) -> Option<ChangeGuard<'_>> {
        let mut state = self.lock();
        while !state.changing.insert(number) {
            let left = deadline.remaining();
            if left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(ChangeGuard { registry: self, number })
    }

    /// The workspace `id` of `owner`, live or parked.
    ///
    /// # Errors
    /// The workspace does not exist, or belongs to another token.
    pub fn look(&self, owner: &TokenName, id: &str) -> Result<Kept, EngineError> {
        let state = self.lock();
        let found = state.numbers.get(id).and_then(|number| state.kept.get(number));
        let found = found.filter(|kept| kept.owner() == owner).cloned();
        drop(state);
        found.filter(|kept| !kept.is_gone()).ok_or_else(not_found)
    }

    /// The live workspace `id` of `owner`.
    ///
    /// # Errors
    /// The workspace does not exist, or belongs to another token.
    #[cfg(test)]
    pub fn find(&self, owner: &TokenName, id: &str) -> Result<Arc<LiveWorkspace>, EngineError> {
        self.find_live(owner, id)?.filter(|live| !live.is_over()).ok_or_else(not_found)
    }

    /// The live workspace `id` of `owner`; nothing if it is parked.
    ///
    /// # Errors
    /// The workspace does not exist, or belongs to another token.
    pub fn find_live(
        &self,
        owner: &TokenName,
        id: &str,
    ) -> Result<Option<Arc<LiveWorkspace>>, EngineError> {
        Ok(self.look(owner, id)?.live().cloned())
    }

    /// The newest workspace with the label, a live one if there is any; or the right to make one. Waits until
    /// `deadline` for another that makes it; if that fails, this caller may.
    pub fn acquire(&self, owner: &TokenName, exec_id: &str, deadline: Deadline) -> Acquired<'_> {
        let label = (owner.clone(), exec_id.to_owned());
        let mut state = self.lock();
        loop {
            let numbers = state.labels.get(&label).into_iter().flatten().rev();
            let found = numbers.filter_map(|number| state.kept.get(number));
            let mut found: Vec<&Kept> = found.filter(|kept| !kept.is_gone()).collect();
            // The order among live ones, and among parked ones, stays.
            found.sort_by_key(|kept| kept.live().is_none());
            if let Some(kept) = found.first() {
                return Acquired::Known((*kept).clone());
            }
            if state.acquiring.insert(label.clone()) {
                return Acquired::Leader(AcquireGuard { registry: self, label });
            }
            let left = deadline.remaining();
            if left.is_zero() {
                return Acquired::TimedOut;
            }
            let waited = self.acquired.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Up to `limit` workspaces of `owner` for which `is_asked_for` holds, the newest first, that are
    /// older than number `before`. The second value is whether there are more.
    pub fn page(
        &self,
        owner: &TokenName,
        before: Option<u64>,
        limit: usize,
        is_asked_for: impl Fn(&Kept) -> bool,
    ) -> (Vec<Kept>, bool) {
        let state = self.lock();
        let older = state.kept.range(..before.unwrap_or(u64::MAX)).rev();
        let fits = |kept: &&Kept| kept.owner() == owner && !kept.is_gone() && is_asked_for(kept);
        let mut found = older.map(|(_, kept)| kept).filter(fits);
        let page = found.by_ref().take(limit).cloned().collect();
        (page, found.next().is_some())
    }

    /// The one with that number.
    pub fn kept(&self, number: u64) -> Option<Kept> {
        self.lock().kept.get(&number).cloned()
    }

    /// The live one with that number.
    pub fn by_number(&self, number: u64) -> Option<Arc<LiveWorkspace>> {
        self.lock().kept.get(&number).and_then(Kept::live).cloned()
    }

    /// All live ones.
    pub fn all(&self) -> Vec<Arc<LiveWorkspace>> {
        self.lock().kept.values().filter_map(Kept::live).cloned().collect()
    }

    /// All parked ones.
    pub fn parked(&self) -> Vec<Arc<ParkedWorkspace>> {
        let state = self.lock();
        let parked = |kept: &Kept| match kept {
            Kept::Parked(parked) => Some(Arc::clone(parked)),
            Kept::Live(_) => None,
        };
        state.kept.values().filter_map(parked).collect()
    }

    /// Begins the end of those that are over by their times, but for those that are parked then. Also
    /// returns when the next one is.
    pub fn end_due(
        &self,
        now: Instant,
    ) -> (Vec<(Arc<LiveWorkspace>, WorkspaceEnd)>, Option<Instant>) {
        let (mut due, mut next) = (Vec::new(), None);
        for workspace in self.all() {
            let why = match workspace.settings.persist {
                true => workspace.is_to_be_parked(now),
                false => workspace.begin_end_if_due(now),
            };
            match why {
                Some(why) => due.push((workspace, why)),
                None if workspace.is_over() => {}
                None => {
                    let at = workspace.ends_at();
                    next = Some(next.map_or(at, |next: Instant| next.min(at)));
                }
            }
        }
        (due, next)
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        // The indexes are changed together, without a point at which a panic could interrupt them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
