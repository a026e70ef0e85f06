//! The local backend: runs every program in a sandbox on this host.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::factory::SandboxFactory;
use super::home_files::put_home_files;
use super::host_ids::AcquiredId;
use super::mounted::MountedRun;
use super::mounted_key::{MountedIdentity, MountedView};
use super::pool_key::{PoolKey, TemplateKey};
use super::standby_pool::{LiveRun, StandbyPool};
use super::supply::{ColdSupply, WarmSupply};
use cofferdam_core::executor::{
    COMMAND_PATH, Capabilities, Executor, FoundProgram, Room, RunInput, Unavailable, WorkspaceInput,
};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    Limits, MountedWorkspace, NotStarted, OutputSink, PrestartMetrics, RunReport, RunSpec,
    SetupFailure, StandbyMetrics, StdinSource, Watch, WorkspaceFill,
};
use cofferdam_sandbox::engine::{BEFORE_PROGRAM, HostId, LocatedProgram, SandboxFs, SandboxHost};
use cofferdam_tree::Owner;

/// How long unused sandboxes may take to be prepared or discarded.
const UNUSED_WAIT: Duration = Duration::from_secs(1);
/// Files in memory take whole pages.
const PAGE_BYTES: u64 = 4096;

/// Runs programs in sandboxes on this host.
#[derive(Debug)]
pub struct SandboxExecutor {
    // Declared before the factory: the pool is dropped first.
    pool: Option<StandbyPool>,
    warm: Option<StandbyPool<WarmSupply>>,
    factory: Arc<SandboxFactory>,
    /// How many file systems that outlive their sandboxes there have been.
    mounted: AtomicU64,
}

/// What tells the pools that a run is over.
struct LivePools {
    cold: LiveRun,
    warm: Option<LiveRun<WarmSupply>>,
}

impl SandboxExecutor {
    /// A backend over `sandbox` that creates every sandbox on demand.
    pub fn new(sandbox: SandboxHost) -> Self {
        let factory = Arc::new(SandboxFactory::new(sandbox));
        Self { pool: None, warm: None, factory, mounted: AtomicU64::default() }
    }

    /// Reserves host ids for `runs` concurrent runs, starts background cleanup, and prepares up
    /// to `standby_max` sandboxes for runs like the most recent ones.
    pub fn prepare_for(&mut self, runs: usize, standby_max: usize) -> Result<(), SetupFailure> {
        self.factory.sandbox().start_cleanup_thread()?;
        if runs > 1 {
            self.factory.sandbox().keep_net_namespaces(runs + standby_max)?;
        }
        self.factory.reserve_ids(runs + standby_max)?;
        if standby_max > 0 {
            let supply = ColdSupply(Arc::clone(&self.factory));
            self.pool = Some(StandbyPool::start(supply, standby_max)?);
        }
        Ok(())
    }

    /// Executes the programs that runs name ahead of them, in up to `warm_max` sandboxes with at most
    /// `bytes_max` of memory together. Not without a standby pool, nor where no memory is counted.
    pub fn prestart_within(&mut self, warm_max: usize, bytes_max: u64) -> Result<(), SetupFailure> {
        if self.pool.is_none() || warm_max == 0 || bytes_max == 0 {
            return Ok(());
        }
        if !self.sandbox().enforced().counts_usage() {
            log::warn!("no runtime is started ahead: this host does not count what sandboxes use");
            return Ok(());
        }
        let supply = WarmSupply::new(Arc::clone(&self.factory), bytes_max);
        self.warm = Some(StandbyPool::start(supply, warm_max)?);
        Ok(())
    }

    /// Whether programs are executed ahead of their runs.
    pub fn prestarts(&self) -> bool {
        self.warm.is_some()
    }

    /// The counters of the warm sandboxes; zeros without any.
    pub fn prestart_metrics(&self) -> PrestartMetrics {
        let Some(pool) = &self.warm else { return PrestartMetrics::default() };
        let StandbyMetrics { made, used, dropped, failed, .. } = pool.metrics();
        let (bytes_max, cpu) = (pool.supply().bytes_max(), pool.supply().cpu());
        PrestartMetrics { ready: pool.holdings(), bytes_max, made, used, dropped, failed, cpu }
    }

    /// What sandboxes are created with.
    pub fn sandbox(&self) -> &SandboxHost {
        self.factory.sandbox()
    }

    /// A host id that no other sandbox has until it is dropped.
    pub fn acquire_host_id(&self) -> Result<AcquiredId, SetupFailure> {
        self.factory.acquire_id()
    }

    /// The counters of the standby pool; zeros without one.
    pub fn standby_metrics(&self) -> StandbyMetrics {
        self.pool.as_ref().map(StandbyPool::metrics).unwrap_or_default()
    }

    /// Discards the prepared sandboxes and prepares no more.
    pub fn close_standby(&self) {
        if let Some(pool) = &self.pool {
            pool.close();
        }
        if let Some(pool) = &self.warm {
            pool.close();
        }
    }

    /// Executes `input` in a new sandbox as the caller's own `host_id`.
    pub fn run_as(
        &self,
        input: RunInput<'_>,
        host_id: &HostId,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        if !host_id.is_free() {
            let words = "the last sandbox with it is not dead";
            return Err(SetupFailure::from_words("host uid", words).into());
        }
        let retained = input.retained.clone().and(Arc::new(host_id.clone()));
        let input = RunInput { retained, ..input };
        told(watch, self.run_in_new(input, host_id, Instant::now(), watch, &mut sink))
    }

    /// A number for a file system that outlives its sandboxes, by which the standby pool knows it.
    pub fn next_mounted_number(&self) -> u64 {
        self.mounted.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells the standby pool that the program of `spec` begins over the workspace `identity`. Returns
    /// nothing if the pool prepares no sandboxes for such programs.
    pub fn begin_mounted(&self, identity: MountedIdentity, spec: &RunSpec) -> Option<MountedRun> {
        let pool = self.pool.as_ref()?;
        MountedRun::begin(identity, spec, |key| pool.begin(PoolKey::Mounted(key)))
    }

    /// Discards the prepared sandboxes of the workspace with that number, which is gone.
    pub fn forget_mounted(&self, number: u64) {
        if let Some(pool) = &self.pool {
            pool.forget(number);
        }
        if let Some(pool) = &self.warm {
            pool.forget(number);
        }
    }

    /// Discards the prepared sandboxes of the workspace with that number, which gives no mounts now.
    /// Returns false if that takes long.
    pub fn discard_mounted(&self, number: u64) -> bool {
        let deadline = Deadline::after(UNUSED_WAIT);
        let (cold, warm) = (self.pool.as_ref(), self.warm.as_ref());
        cold.is_none_or(|pool| pool.discard(number, deadline))
            && warm.is_none_or(|pool| pool.discard(number, deadline))
    }

    /// The pool of programs that are executed ahead.
    pub(super) fn warm_pool(&self) -> Option<&StandbyPool<WarmSupply>> {
        self.warm.as_ref()
    }

    /// Creates the sandboxes.
    pub(super) fn factory(&self) -> &SandboxFactory {
        &self.factory
    }

    /// Executes the program of `spec` over a workspace that outlives the sandbox and belongs to
    /// `host_id`, which all its sandboxes share. The caller holds the id as long as the workspace.
    pub fn run_mounted(
        &self,
        spec: RunSpec,
        workspace: MountedWorkspace,
        host_id: &HostId,
        retained: Retained,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let retained = retained.and(Arc::new(host_id.clone()));
        told(watch, self.run_over(spec, workspace, host_id, retained, watch, &mut sink))
    }

    /// As [`SandboxExecutor::run_mounted`], in the prepared sandbox of `run`, or a new one over `view`.
    pub fn run_begun(
        &self,
        spec: RunSpec,
        (mut run, view): (Option<MountedRun>, Option<MountedView>),
        retained: Retained,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let execute = move || {
            if let Some(run) = &mut run
                && let Some(report) =
                    self.resume_mounted(run, &spec, &retained, watch, &mut sink)?
            {
                return Ok(report);
            }
            let view = match (view, &run) {
                (None, Some(run)) => run.view()?,
                (view, _) => view,
            };
            let no_mounts = || SetupFailure::from_words("mount workspace", "it is being exchanged");
            let MountedView { mounts, host_id, lender } = view.ok_or_else(no_mounts)?;
            let mut retained = retained.and(Arc::new(host_id.clone()));
            retained.extend(lender);
            self.run_over(spec, mounts, &host_id, retained, watch, &mut sink)
        };
        told(watch, execute())
    }

    fn run_over(
        &self,
        mut spec: RunSpec,
        mut workspace: MountedWorkspace,
        host_id: &HostId,
        retained: Retained,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        let sandbox = self.sandbox();
        let copied = sandbox.copied_bytes(&spec.program)?;
        let room = copied.next_multiple_of(PAGE_BYTES);
        workspace.own_bytes_max = workspace.own_bytes_max.saturating_add(room);
        let fs = sandbox.create_fs_around(&workspace, spec.terminal.is_some(), host_id)?;
        spec.program = sandbox.keep_program(std::mem::take(&mut spec.program), copied, &fs)?;
        spec.workspace = WorkspaceFill::Mounted(workspace);
        sandbox.start(spec, fs, retained, began)?.supervise(watch, sink)
    }

    /// Executes the program in the prepared sandbox, if one is alive.
    fn resume_mounted(
        &self,
        run: &mut MountedRun,
        spec: &RunSpec,
        retained: &Retained,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<Option<RunReport>, NotStarted> {
        let resumed = run.resume(&self.factory, spec, retained.clone(), Instant::now());
        let report = resumed.map(|running| running?.supervise(watch, sink)).transpose();
        repeatable(report)
    }

    /// Tells the pools that `input` begins, if they prepare sandboxes for such runs.
    fn begin_live(&self, input: &RunInput<'_>) -> Result<Option<LivePools>, SetupFailure> {
        let (Some(pool), WorkspaceInput::Template { dir: Some(dir), .. }) =
            (&self.pool, &input.workspace)
        else {
            return Ok(None);
        };
        let contents = self.factory.contents(dir)?;
        let Some(key) = TemplateKey::of(dir.to_path_buf(), contents, &input.spec) else {
            return Ok(None);
        };
        let prestart = input.spec.prestart.clone().filter(|_| contents.are_copied());
        let warm = self
            .warm
            .as_ref()
            .zip(prestart)
            .map(|(warm, prestart)| warm.begin(PoolKey::Template(key.prestarted(prestart))));
        Ok(Some(LivePools { cold: pool.begin(PoolKey::Template(key)), warm }))
    }

    /// Runs `input` in a warm sandbox; `None` if no sandbox is ready.
    fn run_warm(
        &self,
        live: &LiveRun<WarmSupply>,
        input: &RunInput<'_>,
        began: Instant,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<Option<RunReport>, NotStarted> {
        let WorkspaceInput::Template { files, .. } = input.workspace else { return Ok(None) };
        let Some(ready) = live.take() else { return Ok(None) };
        let (limits, retained) = (input.spec.limits.clone(), input.retained.clone());
        let terms = (limits, StdinSource::Null);
        match self.factory.release(ready, files, terms, retained, began) {
            Ok(running) => repeatable(running.supervise(watch, sink).map(Some)),
            Err(failure) => {
                log::warn!("warm sandbox: {failure}; taking another one");
                Ok(None)
            }
        }
    }

    /// Runs `input` in a prepared sandbox; nothing if the pool has none that is alive.
    fn run_prepared(
        &self,
        live: &LiveRun,
        input: &RunInput<'_>,
        began: Instant,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<Option<RunReport>, NotStarted> {
        let WorkspaceInput::Template { files, .. } = input.workspace else { return Ok(None) };
        let Some(ready) = live.take() else { return Ok(None) };
        let (limits, retained) = (input.spec.limits.clone(), input.retained.clone());
        let running = self.factory.resume(ready, files, limits, retained, began)?;
        let report = repeatable(running.supervise(watch, sink).map(Some))?;
        if report.is_none() {
            live.discard_others();
        }
        Ok(report)
    }

    fn execute_untold(
        &self,
        input: RunInput<'_>,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        let live = self.begin_live(&input)?;
        if let Some(LivePools { warm: Some(warm), .. }) = &live
            && let Some(report) = self.run_warm(warm, &input, began, watch, sink)?
        {
            return Ok(report);
        }
        if let Some(LivePools { cold, .. }) = &live
            && let Some(report) = self.run_prepared(cold, &input, began, watch, sink)?
        {
            return Ok(report);
        }
        let host_id = Arc::new(self.factory.acquire_id()?);
        let retained = input.retained.clone().and(host_id.clone());
        let input = RunInput { retained, ..input };
        self.run_in_new(input, host_id.id(), began, watch, sink)
    }

    fn run_in_new(
        &self,
        input: RunInput<'_>,
        host_id: &HostId,
        began: Instant,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let RunInput { mut spec, workspace, retained } = input;
        match workspace {
            WorkspaceInput::Template { dir, files } => {
                let running = self.factory.start(host_id, dir, files, spec, retained, began)?;
                running.supervise(watch, sink)
            }
            WorkspaceInput::Filled { room, fill, collect } => {
                let fs = self.file_system(&mut spec, room, host_id)?;
                let owner = Owner { uid: fs.tenant(), gid: fs.tenant() };
                fill(fs.workspace(false)?.as_fd(), owner)?;
                if let Some(egress) = &spec.egress {
                    put_home_files(fs.as_fd(), owner, egress.as_ref());
                }
                // Opened before the program begins: the tenant may replace what is at its path.
                let workspace = fs.workspace(false)?;
                let running = self.sandbox().start(spec, fs, retained, began)?;
                // Moved, so that it is closed before cleanup: closing the last descriptor of a
                // file system waits until its memory is freed.
                running.supervise_and(watch, sink, move || collect(workspace.as_fd()))
            }
        }
    }

    /// The file system of a sandbox for `spec`, with `room` and, where needed, a copy of the
    /// program.
    fn file_system(
        &self,
        spec: &mut RunSpec,
        room: Room,
        host_id: &HostId,
    ) -> Result<SandboxFs, SetupFailure> {
        let sandbox = self.sandbox();
        let copied = sandbox.copied_bytes(&spec.program)?;
        let bytes = room.bytes.saturating_add(copied.next_multiple_of(PAGE_BYTES));
        let limits = Limits {
            disk_bytes_max: spec.limits.disk_bytes_max.saturating_add(bytes),
            disk_inodes_max: spec.limits.disk_inodes_max.saturating_add(room.inodes),
            ..spec.limits.clone()
        };
        let fs = sandbox.create_fs(&limits, host_id)?;
        spec.workspace = WorkspaceFill::Own;
        spec.program = sandbox.keep_program(std::mem::take(&mut spec.program), copied, &fs)?;
        Ok(fs)
    }
}

impl Executor for SandboxExecutor {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        let sandbox = self.sandbox();
        let not_enforced = sandbox.not_enforced().to_vec();
        Ok(Capabilities { enforced: sandbox.enforced(), not_enforced })
    }

    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        for path in candidates(name) {
            if let Some(LocatedProgram { target, file }) = self.sandbox().locate_program(&path)? {
                let (path, target) = (path.to_str(), target.to_str());
                // A result cannot name a file whose path is not UTF-8: not found.
                let (Some(path), Some(target)) = (path, target) else { continue };
                return Ok(Some(FoundProgram { path: path.into(), target: target.into(), file }));
            }
        }
        Ok(None)
    }

    fn execute(
        &self,
        input: RunInput<'_>,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        told(watch, self.execute_untold(input, watch, &mut sink))
    }
}

/// The report of a run in a prepared sandbox; nothing if the sandbox was killed before the program
/// began, so that the run can be repeated.
fn repeatable(
    report: Result<Option<RunReport>, NotStarted>,
) -> Result<Option<RunReport>, NotStarted> {
    match report {
        Err(NotStarted::Setup(failure)) if failure.step == BEFORE_PROGRAM => {
            log::warn!("prepared sandbox: {failure}; creating a new one");
            Ok(None)
        }
        report => Ok(report?.map(|report| RunReport { standby: true, ..report })),
    }
}

/// Tells the controller of the run, if there is one, how it ended.
pub(super) fn told(
    watch: &Watch,
    result: Result<RunReport, NotStarted>,
) -> Result<RunReport, NotStarted> {
    if let Some(control) = &watch.control {
        control.note_ended(&result);
    }
    result
}

/// The paths at which a program called `name` may be.
fn candidates(name: &str) -> Vec<PathBuf> {
    match name {
        impossible if impossible.is_empty() || impossible.contains('\0') => Vec::new(),
        // Relative to the working directory, which is still empty.
        relative if !relative.starts_with('/') && relative.contains('/') => Vec::new(),
        absolute if absolute.starts_with('/') => {
            let path = Path::new(absolute);
            if path.starts_with("/workspace") { Vec::new() } else { vec![path.to_owned()] }
        }
        bare => COMMAND_PATH.split(':').map(|directory| Path::new(directory).join(bare)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_looked_up_in_the_fixed_path_and_absolute_paths_at_their_place() {
        for (name, places) in [
            ("", &[][..]),
            ("a\0b", &[]),
            ("./python", &[]),
            ("bin/python", &[]),
            ("/opt/a", &["/opt/a"]),
            ("/workspace/a", &[]),
            ("//workspace/./a", &[]),
            ("/workspaces/a", &["/workspaces/a"]),
            (
                "a",
                &[
                    "/usr/local/sbin/a",
                    "/usr/local/bin/a",
                    "/usr/sbin/a",
                    "/usr/bin/a",
                    "/sbin/a",
                    "/bin/a",
                ],
            ),
        ] {
            assert_eq!(candidates(name), places.iter().map(PathBuf::from).collect::<Vec<_>>());
        }
    }
}
