//! Workspaces: created, found, listed, prolonged and ended.

mod counts;
pub(super) mod ends;
mod executing;
pub(super) mod ledger;
pub(super) mod live;
pub(super) mod merge_queue;
mod networks;
pub(super) mod registry;
pub(super) mod settings;
mod snapshots;
pub(super) mod span;
pub(super) mod tally;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::counts::EngineMetrics;
use self::ends::keeper::{Keeper, OpenedStore};
use self::ends::reaper::Reaping;
use self::ends::save_queue::SaveQueue;
use self::ends::saver::Saver;
pub use self::executing::ExecutionCall;
use self::ledger::DiskLedger;
use self::live::{LiveProgram, LiveWorkspace, WorkspaceProgram, WorkspaceUse};
use self::registry::Kept;
pub use self::settings::{EngineSettings, memory_bytes};
use self::snapshots::FirstFiles;
use self::tally::{Tally, TallyFull};
use super::disk::StoredSkill;
use super::error::{EngineCode, EngineError};
use super::execute::KernelPool;
use super::files::staging::stores::EngineStores;
use super::request::{CreateRequest, PatchRequest, pick};
use super::run::{PreparedRun, ProgramSettings, RunRequest, RunTerms};
use super::sessions::{self, Session, SessionState, StartRequest, no_session};
use super::trees::TreeMaker;
use super::trees::snapshots::{Merger, SnapshotTable};
use super::view::{EngineView, WorkspacePage, WorkspaceStatus, WorkspaceView};
use crate::config::{RequestRange, TokenName};
use cofferdam_core::Watch;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;

/// How long killed programs may take to die.
const PROGRAMS_DEAD_WITHIN: Duration = Duration::from_secs(5);

/// The workspaces of one service.
#[derive(Debug)]
pub struct WorkspaceService {
    settings: EngineSettings,
    trees: Box<dyn TreeMaker>,
    workspaces: Arc<Tally>,
    runs: Arc<Tally>,
    kernels: KernelPool,
    ledger: Arc<DiskLedger>,
    snapshots: Arc<SnapshotTable>,
    snapshot_count: Arc<Tally>,
    merger: Merger,
    keeper: Arc<Keeper>,
    _saver: Saver,
    stores: Arc<EngineStores>,
    reaping: Reaping,
    reaper: Option<JoinHandle<()>>,
    draining: AtomicBool,
}

/// Counts a call in its workspace and in the service.
#[derive(Debug)]
struct CallPermit {
    _program: WorkspaceProgram,
    _permit: Retained,
}

/// Which workspaces to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceQuery {
    /// Only those with this label.
    pub exec_id: Option<String>,
    /// Only those with this status.
    pub status: Option<WorkspaceStatus>,
    /// How many at most.
    pub limit: usize,
    /// The end of the page before.
    pub before: Option<u64>,
}

impl WorkspaceService {
    /// Starts a service without workspaces, whose file systems `trees` makes.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(settings: EngineSettings, trees: Box<dyn TreeMaker>) -> io::Result<Self> {
        let reaping = Reaping::default();
        let (maxima, per_token) = (&settings.maxima, &settings.per_token);
        let merger = Merger::start(Arc::clone(&reaping.registry))?;
        let snapshots = Arc::new(SnapshotTable::default());
        let snapshot_count = Tally::new(maxima.snapshots, None);
        let keeper = Arc::new(Keeper {
            directory: settings.store.clone(),
            keep: settings.parked_keep,
            registry: Arc::clone(&reaping.registry),
            snapshots: Arc::clone(&snapshots),
            snapshot_count: Arc::clone(&snapshot_count),
            merges: Arc::clone(merger.queue()),
            saves: Arc::new(SaveQueue::new(settings.save_every)),
            bell: Arc::clone(&reaping.bell),
            counts: Arc::clone(&reaping.counts),
            opened: OpenedStore::default(),
        });
        keeper.open_if_present();
        let reaper = Some(reaping.start(Arc::clone(&keeper))?);
        Ok(Self {
            workspaces: Tally::new(maxima.workspaces, per_token.workspaces),
            runs: Tally::new(maxima.runs, per_token.runs),
            kernels: KernelPool::new(maxima.kernels),
            ledger: DiskLedger::new(settings.disk_total_bytes, per_token.disk_bytes),
            snapshots,
            snapshot_count,
            merger,
            _saver: Saver::start(Arc::clone(&keeper))?,
            keeper,
            stores: Arc::default(),
            settings,
            trees,
            reaping,
            reaper,
            draining: AtomicBool::new(false),
        })
    }

    /// The service with these stores of inputs and outputs.
    #[must_use]
    pub fn with_stores(mut self, stores: EngineStores) -> Self {
        self.stores = Arc::new(stores);
        self
    }

    /// Where inputs come from and outputs go to, besides workspaces.
    pub fn stores(&self) -> &Arc<EngineStores> {
        &self.stores
    }

    /// Stores the archive that `source` gives as a skill, if its files have this digest.
    ///
    /// # Errors
    /// The digest is another one, the archive is not safe or too long, or the store has no room.
    pub fn save_skill(
        &self,
        digest: &str,
        source: &mut dyn io::Read,
    ) -> Result<StoredSkill, EngineError> {
        self.check_open()?;
        self.stores.save_skill(digest, source, self.settings.requests.disk_bytes.max)
    }

    /// The engine, for clients that choose one.
    pub fn describe(&self) -> EngineView {
        EngineView::of(&self.settings, self.trees.fork_kind(), self.trees.can_mount())
    }

    /// Creates a workspace of `owner`, or acquires one. The second value is whether it is new.
    ///
    /// # Errors
    /// The request is invalid, or a limit is reached. Nothing has changed then.
    pub fn create(
        &self,
        owner: &TokenName,
        request: CreateRequest,
    ) -> Result<(WorkspaceView, bool), EngineError> {
        let is_empty = request.snapshot.is_none();
        let (view, is_new) = self.create_for_call(owner, request)?;
        if is_new && is_empty {
            self.expect_kernels(owner, view.workspace_id());
        }
        Ok((view, is_new))
    }

    /// As [`WorkspaceService::create`], for a call that needs the workspace at once.
    fn create_for_call(
        &self,
        owner: &TokenName,
        request: CreateRequest,
    ) -> Result<(WorkspaceView, bool), EngineError> {
        let Some(id) = &request.snapshot else {
            return self.acquire_or_make(owner, request, None, &FirstFiles::None);
        };
        let snapshot = self.snapshots.find(owner, id)?;
        let files = FirstFiles::Snapshot(&snapshot);
        self.acquire_or_make(owner, request, Some(&snapshot.source), &files)
    }

    /// The workspace `id` of `owner`.
    ///
    /// # Errors
    /// No such workspace belongs to the token.
    pub fn view(&self, owner: &TokenName, id: &str) -> Result<WorkspaceView, EngineError> {
        WorkspaceView::of_kept(&self.reaping.registry.look(owner, id)?)
    }

    /// A page of the workspaces of `owner`.
    ///
    /// # Errors
    /// A file system cannot be measured.
    pub fn list(
        &self,
        owner: &TokenName,
        query: &WorkspaceQuery,
    ) -> Result<WorkspacePage, EngineError> {
        let is_asked_for = |kept: &Kept| {
            (query.exec_id.is_none() || query.exec_id == kept.settings().exec_id)
                && query.status.is_none_or(|status| status == WorkspaceStatus::of(kept))
        };
        let registry = &self.reaping.registry;
        let (found, has_more) = registry.page(owner, query.before, query.limit, is_asked_for);
        let last = found.last().filter(|_| has_more).map(|kept| kept.number().to_string());
        let views = found.iter().map(WorkspaceView::of_kept);
        Ok(WorkspacePage { workspaces: views.collect::<Result<_, _>>()?, next_cursor: last })
    }

    /// Changes how long a workspace lives.
    ///
    /// # Errors
    /// The request is invalid, or there is no such workspace.
    pub fn patch(
        &self,
        owner: &TokenName,
        id: &str,
        request: &PatchRequest,
    ) -> Result<WorkspaceView, EngineError> {
        let ranges = &self.settings.requests;
        let time = |range, path, value: Option<u64>| {
            let picked = value.map(|value| pick(range, path, Some(value))).transpose();
            picked.map(|picked| picked.map(Duration::from_millis))
        };
        let ttl = time(ranges.ttl_ms, "ttl_ms", request.ttl_ms)?;
        let idle = time(ranges.idle_ms, "idle_ms", request.idle_ms)?;
        match self.reaping.registry.look(owner, id)? {
            Kept::Live(workspace) => {
                workspace.prolong(ttl, idle)?;
                WorkspaceView::of(&workspace)
            }
            Kept::Parked(parked) => self.prolong_parked(&parked, ttl, idle),
        }
    }

    /// Takes the permits of a program in a workspace, and makes its sandbox. `watch` is for its run.
    ///
    /// # Errors
    /// The request is invalid, a limit is reached, or the sandbox cannot be made.
    pub fn prepare_run(
        &self,
        owner: &TokenName,
        id: &str,
        request: RunRequest,
        watch: &mut Watch,
    ) -> Result<PreparedRun, EngineError> {
        let workspace = self.enter(owner, id)?;
        let program = LiveProgram::of(watch)?;
        let timeouts = self.settings.requests.run_timeout_ms;
        self.prepare(owner, workspace, (request, false), timeouts, program)
    }

    /// Starts a session in a workspace.
    ///
    /// # Errors
    /// As [`WorkspaceService::prepare_run`], or the program does not start.
    pub fn start_session(
        &self,
        owner: &TokenName,
        id: &str,
        request: StartRequest,
    ) -> Result<SessionState, EngineError> {
        let workspace = self.enter(owner, id)?;
        let live = Arc::clone(workspace.workspace());
        let (request, terminal) = request.split()?;
        live.sessions.forget_ended(self.settings.session_keep);
        let cancel = CancelToken::new().map_err(|error| {
            EngineError::new(EngineCode::SandboxFailed, format!("eventfd: {error}"))
        })?;
        let mut watch = Watch::of(cancel);
        let program = LiveProgram::of(&mut watch)?;
        let slot = live.sessions.reserve(self.settings.maxima.sessions)?;
        let timeouts = self.settings.requests.session_timeout_ms;
        let prepared = self.prepare(owner, workspace, (request, true), timeouts, program)?;
        let session = sessions::start(prepared, watch, terminal)?;
        slot.fill(Arc::clone(&session));
        Ok(session.state())
    }

    /// A session of a workspace. To look for it is no use of the workspace.
    ///
    /// # Errors
    /// There is no such workspace or session.
    pub fn session(
        &self,
        owner: &TokenName,
        id: &str,
        name: &str,
    ) -> Result<Arc<Session>, EngineError> {
        let live = self.reaping.registry.find_live(owner, id)?.ok_or_else(no_session)?;
        live.sessions.forget_ended(self.settings.session_keep);
        live.sessions.find(name)
    }

    /// At most `limit` sessions of a workspace after number `after`, and the last number if there are
    /// more.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn sessions(
        &self,
        owner: &TokenName,
        id: &str,
        limit: usize,
        after: Option<u64>,
    ) -> Result<(Vec<SessionState>, Option<u64>), EngineError> {
        let Some(live) = self.reaping.registry.find_live(owner, id)? else {
            return Ok((Vec::new(), None));
        };
        live.sessions.forget_ended(self.settings.session_keep);
        Ok(live.sessions.page(after, limit))
    }

    /// Forgets an ended session.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn forget_session(
        &self,
        owner: &TokenName,
        id: &str,
        name: &str,
    ) -> Result<(), EngineError> {
        if let Some(live) = self.reaping.registry.find_live(owner, id)? {
            live.sessions.forget(name);
        }
        Ok(())
    }

    fn prepare(
        &self,
        owner: &TokenName,
        workspace: WorkspaceUse,
        (request, is_interactive): (RunRequest, bool),
        timeouts: RequestRange,
        program: LiveProgram,
    ) -> Result<PreparedRun, EngineError> {
        let live = Arc::clone(workspace.workspace());
        let ranges = &self.settings.requests;
        let settings = request.resolve(live.settings.limits, ranges, timeouts)?;
        let settings = ProgramSettings { is_interactive, ..settings };
        self.check_open()?;
        let permit = self.enter_run(owner)?;
        self.prepare_program(settings, live, Some(workspace), program, permit)
    }

    /// Counts a program in the service, until the value is dropped.
    fn enter_run(&self, owner: &TokenName) -> Result<Retained, EngineError> {
        let permit = self.runs.enter(owner).map_err(|full| refusal(full, "programs"))?;
        Ok(Retained::of(Arc::new(permit)))
    }

    /// Counts a call in its workspace and in the service, until the value is dropped.
    fn begin_call(
        &self,
        owner: &TokenName,
        live: &Arc<LiveWorkspace>,
        cancel: CancelToken,
    ) -> Result<Arc<CallPermit>, EngineError> {
        let permit = self.enter_run(owner)?;
        let program = live.begin_program(&live.doors().share(), LiveProgram::call(cancel))?;
        Ok(Arc::new(CallPermit { _program: program, _permit: permit }))
    }

    fn prepare_program(
        &self,
        settings: ProgramSettings,
        live: Arc<LiveWorkspace>,
        used: Option<WorkspaceUse>,
        program: LiveProgram,
        retained: Retained,
    ) -> Result<PreparedRun, EngineError> {
        let (base_env, controls) = (&self.settings.base_env, self.trees.controls());
        PreparedRun::new(settings, RunTerms { live, used, program, retained, base_env, controls })
    }

    /// The counters.
    pub fn metrics(&self) -> EngineMetrics {
        self.reaping.counts.read(&EngineMetrics {
            workspaces: self.workspaces.count(),
            parked: self.reaping.registry.parked().len(),
            workspaces_max: self.workspaces.max(),
            runs: self.runs.count(),
            runs_max: self.runs.max(),
            sessions: self.reaping.registry.all().iter().map(|live| live.sessions.running()).sum(),
            kernels: self.kernels.count(),
            kernels_max: self.kernels.max(),
            snapshots: self.snapshot_count.count(),
            snapshots_max: self.snapshot_count.max(),
            disk_bytes: self.ledger.total(),
            disk_bytes_max: self.ledger.max(),
            ..EngineMetrics::default()
        })
    }

    /// Counts a refusal, if it is for a limit.
    pub fn count_refusal(&self, code: EngineCode) {
        self.reaping.counts.count_refusal(code);
    }

    /// Refuses new workspaces and programs from now on.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Kills all programs, and the sandboxes that they share. Returns when they are dead.
    pub fn cancel_all(&self) {
        let deadline = Deadline::after(PROGRAMS_DEAD_WITHIN);
        let workspaces = self.reaping.registry.all();
        workspaces.iter().for_each(|workspace| workspace.cancel_programs());
        if !self.kernels.wait_none(deadline) {
            log::error!("a killed kernel has not ended");
        }
        for workspace in workspaces {
            if !workspace.wait_programs(deadline) {
                log::error!(workspace_id = workspace.id; "a killed program has not ended");
            }
        }
    }

    /// Waits until no program lives. A kernel that executes nothing does not count. Returns false if the deadline passes first.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        self.runs.wait_none(deadline)
    }

    fn check_open(&self) -> Result<(), EngineError> {
        if self.draining.load(Ordering::Acquire) {
            let words = "the service is shutting down";
            return Err(EngineError::new(EngineCode::EngineClosed, words));
        }
        Ok(())
    }
}

impl Drop for WorkspaceService {
    fn drop(&mut self) {
        self.reaping.bell.close();
        if let Some(reaper) = self.reaper.take() {
            // A panic of the reaper has been logged.
            let _ = reaper.join();
        }
    }
}

/// The refusal of one more of `what`.
fn refusal(full: TallyFull, what: &str) -> EngineError {
    let words = match full {
        TallyFull::Token => format!("the token has as many {what} as it may have"),
        TallyFull::Total => format!("as many {what} as there may be at once"),
    };
    let code = match (full, what) {
        (TallyFull::Token, _) => EngineCode::TokenLimit,
        (TallyFull::Total, "workspaces") => EngineCode::WorkspacesFull,
        (TallyFull::Total, _) => EngineCode::EngineBusy,
    };
    EngineError::new(code, words).with("limit", what)
}
