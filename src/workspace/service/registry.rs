//! The live workspaces, by id, label and owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::live::{LiveWorkspace, WorkspaceEnd, not_found};
use crate::config::TokenName;
use crate::workspace::error::EngineError;
use cofferdam_core::values::deadline::Deadline;

/// The label of a workspace, with its owner.
type Label = (TokenName, String);

/// The live workspaces.
#[derive(Debug, Default)]
pub struct Registry {
    state: Mutex<RegistryState>,
    /// Notified when an acquire has made its workspace, or has failed.
    acquired: Condvar,
}

#[derive(Debug, Default)]
struct RegistryState {
    live: BTreeMap<u64, Arc<LiveWorkspace>>,
    numbers: HashMap<String, u64>,
    labels: BTreeMap<Label, BTreeSet<u64>>,
    /// The labels for which a workspace is being made.
    acquiring: BTreeSet<Label>,
    numbers_given: u64,
}

/// What an acquire finds.
#[derive(Debug)]
pub enum Acquired<'a> {
    /// A live workspace with the label.
    Live(Arc<LiveWorkspace>),
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

    /// Adds a workspace.
    pub fn insert(&self, workspace: Arc<LiveWorkspace>) {
        let mut state = self.lock();
        let number = workspace.number;
        state.numbers.insert(workspace.id.clone(), number);
        if let Some(label) = label_of(&workspace) {
            state.labels.entry(label).or_default().insert(number);
        }
        state.live.insert(number, workspace);
    }

    /// Removes a workspace.
    pub fn remove(&self, workspace: &LiveWorkspace) {
        let mut state = self.lock();
        state.live.remove(&workspace.number);
        state.numbers.remove(&workspace.id);
        if let Some(label) = label_of(workspace)
            && let Some(numbers) = state.labels.get_mut(&label)
        {
            numbers.remove(&workspace.number);
            if numbers.is_empty() {
                state.labels.remove(&label);
            }
        }
    }

    /// The workspace `id` of `owner`.
    ///
    /// # Errors
    /// The workspace does not exist, or belongs to another token.
    pub fn find(&self, owner: &TokenName, id: &str) -> Result<Arc<LiveWorkspace>, EngineError> {
        let state = self.lock();
        let found = state.numbers.get(id).and_then(|number| state.live.get(number));
        let found = found.filter(|workspace| workspace.owner == *owner).cloned();
        drop(state);
        found.filter(|workspace| !workspace.is_over()).ok_or_else(not_found)
    }

    /// The newest live workspace with the label, or the right to make one. Waits until `deadline`
    /// for another that makes it; if that fails, this caller may.
    pub fn acquire(&self, owner: &TokenName, exec_id: &str, deadline: Deadline) -> Acquired<'_> {
        let label = (owner.clone(), exec_id.to_owned());
        let mut state = self.lock();
        loop {
            let numbers = state.labels.get(&label).into_iter().flatten().rev();
            let mut found = numbers.filter_map(|number| state.live.get(number));
            if let Some(live) = found.find(|workspace| !workspace.is_over()) {
                return Acquired::Live(Arc::clone(live));
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
        is_asked_for: impl Fn(&LiveWorkspace) -> bool,
    ) -> (Vec<Arc<LiveWorkspace>>, bool) {
        let state = self.lock();
        let older = state.live.range(..before.unwrap_or(u64::MAX)).rev();
        let fits = |workspace: &&Arc<LiveWorkspace>| {
            workspace.owner == *owner && !workspace.is_over() && is_asked_for(workspace)
        };
        let mut found = older.map(|(_, workspace)| workspace).filter(fits);
        let page = found.by_ref().take(limit).cloned().collect();
        (page, found.next().is_some())
    }

    /// The one with that number.
    pub fn by_number(&self, number: u64) -> Option<Arc<LiveWorkspace>> {
        self.lock().live.get(&number).cloned()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<LiveWorkspace>> {
        self.lock().live.values().cloned().collect()
    }

    /// Begins the end of those that are over by their times. Also returns when the next one is.
    pub fn end_due(
        &self,
        now: Instant,
    ) -> (Vec<(Arc<LiveWorkspace>, WorkspaceEnd)>, Option<Instant>) {
        let (mut due, mut next) = (Vec::new(), None);
        for workspace in self.all() {
            match workspace.begin_end_if_due(now) {
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

fn label_of(workspace: &LiveWorkspace) -> Option<Label> {
    let exec_id = workspace.settings.exec_id.clone()?;
    Some((workspace.owner.clone(), exec_id))
}
