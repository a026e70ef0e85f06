//! Who may use the files of a workspace now: requests and starting programs together, or one who
//! freezes or merges layers alone, which exchanges the mount that all others use.

use std::ops::{Deref, DerefMut};
use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use super::maker::{TreeUsage, WorkspaceTree};
use crate::workspace::error::EngineError;
use cofferdam_core::values::deadline::Deadline;

/// The files of a workspace, behind doors.
#[derive(Debug)]
pub struct TreeDoors {
    /// Locked only by those whom `state` lets in, so its lock never waits.
    tree: RwLock<Box<dyn WorkspaceTree>>,
    state: Mutex<DoorState>,
    changed: Condvar,
    /// The usage when it was last measured.
    usage: Mutex<TreeUsage>,
}

#[derive(Debug, Default)]
struct DoorState {
    /// How many are in who share the files.
    sharing: usize,
    /// Whether one is in alone.
    is_alone: bool,
    /// How many wait to be in alone. No other gets in meanwhile.
    waiting_alone: usize,
    /// How many wait to share.
    waiting: usize,
}

/// The files, shared with others.
#[derive(Debug)]
pub struct SharedTree<'a> {
    tree: RwLockReadGuard<'a, Box<dyn WorkspaceTree>>,
    // Dropped after the lock.
    _leave: LeaveShared<'a>,
}

/// The files, for one alone.
#[derive(Debug)]
pub struct LoneTree<'a> {
    tree: RwLockWriteGuard<'a, Box<dyn WorkspaceTree>>,
    // Dropped after the lock.
    _leave: LeaveAlone<'a>,
}

#[derive(Debug)]
struct LeaveShared<'a>(&'a TreeDoors);

#[derive(Debug)]
struct LeaveAlone<'a>(&'a TreeDoors);

impl TreeDoors {
    /// The doors of `tree`.
    ///
    /// # Errors
    /// It cannot be measured.
    pub fn new(tree: Box<dyn WorkspaceTree>) -> Result<Self, EngineError> {
        let usage = Mutex::new(tree.usage()?);
        let (state, changed) = (Mutex::default(), Condvar::new());
        Ok(Self { tree: RwLock::new(tree), state, changed, usage })
    }

    /// Waits while a thread is in alone, or waits to be: both have deadlines. A thread that is in must not
    /// call this again.
    pub fn share(&self) -> SharedTree<'_> {
        let mut state = self.lock();
        while state.is_alone || state.waiting_alone > 0 {
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting = state.waiting.saturating_sub(1);
        }
        self.let_in(state)
    }

    /// As [`TreeDoors::share`] without waiting; none if one is in alone.
    pub fn try_share(&self) -> Option<SharedTree<'_>> {
        let state = self.lock();
        if state.is_alone { None } else { Some(self.let_in(state)) }
    }

    /// Waits until no other is in, and discards prepared sandboxes; `None` when `deadline` passes first.
    pub fn enter_alone(&self, deadline: Deadline) -> Option<LoneTree<'_>> {
        let mut state = self.lock();
        state.waiting_alone += 1;
        while state.is_alone || state.sharing > 0 {
            let left = deadline.remaining();
            if left.is_zero() {
                state.waiting_alone -= 1;
                self.changed.notify_all();
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting_alone -= 1;
        state.is_alone = true;
        drop(state);
        let tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        let alone = LoneTree { tree, _leave: LeaveAlone(self) };
        // No other gets mounts meanwhile, so none is prepared.
        alone.discard_prepared().then_some(alone)
    }

    /// Whether somebody waits to get in.
    pub fn is_wanted(&self) -> bool {
        let state = self.lock();
        state.waiting > 0 || state.waiting_alone > 0
    }

    /// How full the files are; as they were before while one is in alone.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn usage(&self) -> Result<TreeUsage, EngineError> {
        let Some(tree) = self.try_share() else {
            return Ok(*self.usage.lock().unwrap_or_else(PoisonError::into_inner));
        };
        self.measure(&**tree)
    }

    /// How full `tree` is, for one who is in.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn measure(&self, tree: &dyn WorkspaceTree) -> Result<TreeUsage, EngineError> {
        let usage = tree.usage()?;
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        Ok(usage)
    }

    fn let_in<'a>(&'a self, mut state: MutexGuard<'a, DoorState>) -> SharedTree<'a> {
        state.sharing += 1;
        drop(state);
        // A panic cannot leave a file system half exchanged.
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        SharedTree { tree, _leave: LeaveShared(self) }
    }

    fn lock(&self) -> MutexGuard<'_, DoorState> {
        // Counts change without a point at which a panic could interrupt them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for SharedTree<'_> {
    type Target = Box<dyn WorkspaceTree>;

    fn deref(&self) -> &Self::Target {
        &self.tree
    }
}

impl Deref for LoneTree<'_> {
    type Target = Box<dyn WorkspaceTree>;

    fn deref(&self) -> &Self::Target {
        &self.tree
    }
}

impl DerefMut for LoneTree<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tree
    }
}

impl Drop for LeaveShared<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.sharing = state.sharing.saturating_sub(1);
        let is_last = state.sharing == 0;
        drop(state);
        if is_last {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for LeaveAlone<'_> {
    fn drop(&mut self) {
        self.0.lock().is_alone = false;
        self.0.changed.notify_all();
    }
}
