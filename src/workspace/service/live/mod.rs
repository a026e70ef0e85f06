//! A live workspace: its file system, who uses it, and when it ends.

pub mod network;
mod saves;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use self::network::{NetworkTerms, WorkspaceNetwork};
pub use self::saves::SaveTurn;
use self::state::LiveState;
pub use self::state::{LiveFacts, LiveProgram, ProgramKind, WorkspaceEnd};
use super::ends::bell::ReaperBell;
use super::ends::save_queue::SaveQueue;
use super::ledger::DiskCharge;
use super::merge_queue::{LayerRelease, MergeQueue};
use super::tally::TallyEntry;
use crate::config::TokenName;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::execute::table::ContextTable;
use crate::workspace::files::staging::versions::StagedVersions;
use crate::workspace::request::{StorageKind, WorkspaceSettings};
use crate::workspace::run::shared::slot::SharedSlot;
use crate::workspace::sessions::table::SessionTable;
use crate::workspace::trees::{SharedTree, TreeDoors, WorkspaceTree};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_sandbox::engine::DiskUsage;
use cofferdam_tree::files::{PathRule, WorkspaceRoot};
use uuid::Uuid;

/// A workspace that exists.
pub struct LiveWorkspace {
    /// Its id.
    pub id: String,
    /// Its place in the order of creation.
    pub number: u64,
    /// The token that it belongs to.
    pub owner: TokenName,
    /// What it was created with.
    pub settings: WorkspaceSettings,
    /// When it was created.
    pub created_at: SystemTime,
    doors: TreeDoors,
    bell: Arc<ReaperBell>,
    merges: Arc<MergeQueue>,
    state: Mutex<LiveState>,
    program_ended: Condvar,
    rule: PathRule,
    runs: AtomicU64,
    /// Whether it has frozen layers.
    is_layered: AtomicBool,
    /// Its sessions.
    pub sessions: SessionTable,
    /// Its contexts.
    pub contexts: ContextTable,
    /// What its programs may reach.
    pub network: WorkspaceNetwork,
    /// Its one sandbox, if its programs share one.
    pub shared: SharedSlot,
    saves: Arc<SaveQueue>,
    /// The life of its file system, for one save at a time; none once it is never saved again.
    life: Mutex<Option<[u8; 16]>>,
    /// Which versions of artifacts were staged into it.
    pub staged: StagedVersions,
    _entry: TallyEntry,
    // Dropped after the files.
    _release: LayerRelease,
}

impl LiveWorkspace {
    /// A workspace of `owner` with the files behind `doors`, which are charged already.
    pub fn new(
        (id, number): (String, u64),
        owner: TokenName,
        settings: WorkspaceSettings,
        doors: TreeDoors,
        (charge, entry): (DiskCharge, TallyEntry),
        (bell, merges, saves): (Arc<ReaperBell>, Arc<MergeQueue>, Arc<SaveQueue>),
        network: NetworkTerms,
    ) -> Self {
        let shown = settings.path.as_path().to_str().unwrap_or_default();
        // Parsed already, by a rule that is as strict.
        let rule = PathRule::shown_at(shown).unwrap_or_default();
        let is_layered = doors.share().is_layered();
        let (now, today) = (Instant::now(), SystemTime::now());
        let state = LiveState {
            charge,
            reserved_bytes: 0,
            ttl: settings.ttl,
            idle: settings.idle,
            ttl_from: now,
            used_at: now,
            last_access: today,
            uses: 0,
            programs: BTreeMap::new(),
            programs_begun: 0,
            is_over: false,
            reaped_after: None,
            changes: 0,
            changes_saved: 0,
            saved_at: None,
        };
        let placeholders = settings.placeholders.clone();
        let network =
            WorkspaceNetwork::new(network, settings.network.clone(), placeholders, owner.as_str());
        Self {
            id,
            number,
            owner,
            network,
            settings,
            created_at: today,
            doors,
            bell,
            _release: LayerRelease(Arc::clone(&merges)),
            merges,
            state: Mutex::new(state),
            program_ended: Condvar::new(),
            rule,
            runs: AtomicU64::new(0),
            is_layered: AtomicBool::new(is_layered),
            sessions: SessionTable::default(),
            contexts: ContextTable::default(),
            shared: SharedSlot::default(),
            saves,
            life: Mutex::new(Some(Uuid::new_v4().into_bytes())),
            staged: StagedVersions::default(),
            _entry: entry,
        }
    }

    /// The way to its files.
    pub fn doors(&self) -> &TreeDoors {
        &self.doors
    }

    /// Calls `call` with the root of its files. `call` must not ask for them again.
    pub fn with_root<T>(&self, call: impl FnOnce(&WorkspaceRoot<'_>) -> T) -> T {
        let tree = self.doors.share();
        call(&self.root(&tree))
    }

    /// The root of its files, for a caller that shares `tree`.
    pub fn root<'a>(&'a self, tree: &'a SharedTree<'_>) -> WorkspaceRoot<'a> {
        WorkspaceRoot { directory: tree.root(), rule: &self.rule, owner: tree.owner() }
    }

    /// Which files paths name.
    pub fn rule(&self) -> &PathRule {
        &self.rule
    }

    /// The number of the next run.
    pub fn next_run(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Its times and counts.
    pub fn facts(&self) -> LiveFacts {
        let state = self.lock();
        let now = Instant::now();
        let left = state.end_unless_used(now).saturating_duration_since(now);
        LiveFacts {
            ttl: state.ttl,
            idle: state.idle,
            last_access: state.last_access,
            expires_at: SystemTime::now() + left,
            programs: state.runs(),
            saved_at: state.saved_at,
        }
    }

    /// Whether its end has begun.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// When the reaper has something to do if nothing else happens.
    pub fn ends_at(&self) -> Instant {
        self.lock().reaped_at()
    }

    /// Begins a request that uses it.
    ///
    /// # Errors
    /// Its end has begun.
    pub fn enter(self: &Arc<Self>) -> Result<WorkspaceUse, EngineError> {
        let mut state = self.lock();
        if state.is_over {
            return Err(not_found());
        }
        state.uses += 1;
        state.touch();
        drop(state);
        Ok(WorkspaceUse { workspace: Arc::clone(self), reserved_bytes: None })
    }

    /// Begins a program. From now on the workspace is charged for all that it may hold. The caller is
    /// in with `_tree` until the sandbox has its mounts, so that a freeze of the files finds a
    /// program that has its mounts, or no program.
    ///
    /// # Errors
    /// Its end has begun, or so much cannot be charged.
    pub fn begin_program(
        self: &Arc<Self>,
        _tree: &SharedTree<'_>,
        program: LiveProgram,
    ) -> Result<WorkspaceProgram, EngineError> {
        let usage = self.doors.usage()?;
        let mut state = self.lock();
        if state.is_over {
            return Err(not_found());
        }
        if state.programs.is_empty() {
            state.charge.set(usage.own_bytes_max())?;
        }
        let (number, kind) = (state.programs_begun, program.kind);
        state.programs_begun += 1;
        state.programs.insert(number, program);
        state.touch();
        drop(state);
        Ok(WorkspaceProgram { workspace: Arc::clone(self), number, kind })
    }

    /// Changes how long it lives, from now, and how long unused.
    ///
    /// # Errors
    /// Its end has begun.
    pub fn prolong(
        &self,
        ttl: Option<Duration>,
        idle: Option<Duration>,
    ) -> Result<(), EngineError> {
        let mut state = self.lock();
        if state.is_over {
            return Err(not_found());
        }
        state.touch();
        if let Some(ttl) = ttl {
            (state.ttl, state.ttl_from) = (ttl, Instant::now());
        }
        state.idle = idle.unwrap_or(state.idle);
        self.note_change(&mut state);
        let end = state.reaped_at();
        drop(state);
        self.bell.expect(end);
        Ok(())
    }

    /// Begins its end, and kills its programs. Returns whether this call began it.
    pub fn begin_end(&self) -> bool {
        self.lock().mark_over()
    }

    /// As [`LiveWorkspace::begin_end`], if it is over by its times. Returns why.
    pub fn begin_end_if_due(&self, now: Instant) -> Option<WorkspaceEnd> {
        let mut state = self.lock();
        let (at, why) = state.end();
        (at <= now && state.mark_over()).then_some(why)
    }

    /// Kills its programs.
    pub fn cancel_programs(&self) {
        self.lock().programs.values().for_each(|program| program.cancel.cancel());
    }

    /// Waits until no program of it lives. Returns false if the deadline passes first.
    pub fn wait_programs(&self, deadline: Deadline) -> bool {
        self.wait_while(deadline, |state| !state.programs.is_empty())
    }

    /// The programs that live, with their numbers.
    pub fn programs(&self) -> Vec<(u64, LiveProgram)> {
        let state = self.lock();
        state.programs.iter().map(|(number, program)| (*number, program.clone())).collect()
    }

    /// Waits until the program with that number is dead. Returns false if the deadline passes first.
    pub fn wait_program(&self, number: u64, deadline: Deadline) -> bool {
        self.wait_while(deadline, |state| state.programs.contains_key(&number))
    }

    fn wait_while(&self, deadline: Deadline, waits: impl Fn(&LiveState) -> bool) -> bool {
        let mut state = self.lock();
        while waits(&state) {
            let left = deadline.remaining();
            if left.is_zero() {
                return false;
            }
            let waited = self.program_ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Discards prepared sandboxes over its files, once its end has begun. Returns false if that takes
    /// long.
    pub fn discard_prepared(&self) -> bool {
        // One who is in alone has done so.
        self.doors.try_share().is_none_or(|tree| tree.discard_prepared())
    }

    /// How full its file system is.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn usage(&self) -> Result<DiskUsage, EngineError> {
        Ok(self.doors.usage()?.disk)
    }

    /// Charges what is used now, and what writes in progress may add. With a program, it stays
    /// charged for all that it may hold.
    fn recharge(&self, state: &mut LiveState) {
        // An unmeasured workspace stays charged as before.
        if let Ok(usage) = self.doors.usage() {
            state.charge_usage(usage);
        }
    }

    /// A charge of its own with `bytes`, for its token and its kind of storage.
    ///
    /// # Errors
    /// So much cannot be charged.
    pub fn charge_more(&self, bytes: u64) -> Result<DiskCharge, EngineError> {
        let is_in_memory = self.settings.storage == StorageKind::Memory;
        let mut more = self.lock().charge.split_off(0, is_in_memory);
        more.set(bytes)?;
        Ok(more)
    }

    /// A charge for what workspaces of all tokens share.
    pub fn charge_shared(&self) -> DiskCharge {
        self.lock().charge.open_shared()
    }

    /// Charges the layers of `tree` that are new, each by itself, and the workspace for the rest. The
    /// caller is in alone.
    ///
    /// # Errors
    /// The files cannot be measured.
    pub fn charge_layers(&self, tree: &dyn WorkspaceTree) -> Result<(), EngineError> {
        let usage = self.doors.measure(tree)?;
        let mut state = self.lock();
        // They lay in the workspace before: part of its charge becomes theirs.
        tree.frozen().charge_layers(&mut |bytes, is_in_memory| {
            Ok(Retained::of(Arc::new(state.charge.split_off(bytes, is_in_memory))))
        })?;
        state.charge_usage(usage);
        Ok(())
    }

    /// Lets the merger look whether there are layers that nothing else needs.
    fn offer_merge(&self, state: &LiveState) {
        if self.is_layered.load(Ordering::Relaxed) && state.uses == 0 && state.programs.is_empty() {
            self.merges.offer(self.number);
        }
    }

    /// Notes whether it has frozen layers.
    pub fn note_layers(&self, tree: &dyn WorkspaceTree) {
        self.is_layered.store(tree.is_layered(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        // Each change leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LiveWorkspace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LiveWorkspace").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What requests for a workspace are answered that does not exist, or belongs to another token.
pub fn not_found() -> EngineError {
    EngineError::new(EngineCode::WorkspaceNotFound, "no such workspace")
}

/// A request that uses a workspace. The workspace is not idle until it is dropped.
#[derive(Debug)]
pub struct WorkspaceUse {
    workspace: Arc<LiveWorkspace>,
    /// What it may write; none if it writes nothing.
    reserved_bytes: Option<u64>,
}

impl WorkspaceUse {
    /// The workspace.
    pub fn workspace(&self) -> &Arc<LiveWorkspace> {
        &self.workspace
    }

    /// Charges `bytes` more, which the request may write, until it ends. Whatever changes files calls this,
    /// if only with 0: at the end of the request they are saved.
    ///
    /// # Errors
    /// So much cannot be charged.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), EngineError> {
        let mut state = self.workspace.lock();
        let reserved = state.reserved_bytes.saturating_add(bytes);
        if state.programs.is_empty() {
            let usage = self.workspace.doors.usage()?;
            let most = usage.own_bytes().saturating_add(reserved).min(usage.own_bytes_max());
            let charged = state.charge.bytes();
            state.charge.set(most.max(charged))?;
        }
        state.reserved_bytes = reserved;
        self.reserved_bytes = Some(self.reserved_bytes.unwrap_or(0).saturating_add(bytes));
        Ok(())
    }
}

impl Drop for WorkspaceUse {
    fn drop(&mut self) {
        let mut state = self.workspace.lock();
        state.uses = state.uses.saturating_sub(1);
        state.touch();
        if let Some(reserved) = self.reserved_bytes {
            state.reserved_bytes = state.reserved_bytes.saturating_sub(reserved);
            self.workspace.recharge(&mut state);
            self.workspace.note_change(&mut state);
        }
        let end = state.reaped_at();
        self.workspace.offer_merge(&state);
        drop(state);
        self.workspace.program_ended.notify_all();
        self.workspace.bell.expect(end);
    }
}

/// A program of a workspace. Dropped when all that it started is dead.
#[derive(Debug)]
pub struct WorkspaceProgram {
    workspace: Arc<LiveWorkspace>,
    number: u64,
    kind: ProgramKind,
}

impl Drop for WorkspaceProgram {
    fn drop(&mut self) {
        let mut state = self.workspace.lock();
        state.programs.remove(&self.number);
        if self.kind == ProgramKind::Run {
            state.touch();
        }
        self.workspace.recharge(&mut state);
        self.workspace.note_change(&mut state);
        let end = state.reaped_at();
        self.workspace.offer_merge(&state);
        drop(state);
        self.workspace.program_ended.notify_all();
        self.workspace.bell.expect(end);
    }
}
