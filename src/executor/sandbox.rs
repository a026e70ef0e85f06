//! The local backend: a workspace filled from a template, run in a box.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::host_ids::AcquiredId;
use crate::executor::factory::SandboxFactory;
use crate::executor::pool_key::PoolKey;
use crate::executor::standby_pool::{LiveRun, StandbyPool};
use cofferdam_core::executor::{
    COMMAND_PATH, Capabilities, Executor, FoundProgram, Room, Task, Unavailable,
};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{
    Limits, NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, StandbyFigures, Watch,
    WorkspaceFill,
};
use cofferdam_sandbox::{BEFORE_PROGRAM, BoxFs, HostId, ProgramAt, Sandbox};
use cofferdam_tree::Owner;

/// Files in memory take whole ones.
const PAGE_BYTES: u64 = 4096;

/// One run: what is in its workspace, and what is executed there.
#[derive(Debug)]
pub struct Job<'a> {
    /// The directory the workspace is a private copy of; empty where none is given.
    pub template: Option<&'a Path>,
    /// Files written over it.
    pub files: &'a [(&'a RelPath, &'a [u8])],
    /// The program. How its workspace is filled is decided here.
    pub spec: RunSpec,
    /// What stays taken until the box is dead, however long that takes: a permit.
    pub retained: Retained,
}

/// Runs jobs in boxes on this host.
#[derive(Debug)]
pub struct Sandboxed {
    // Before the boxes it is made of: dropped first.
    standby: Option<StandbyPool>,
    boxes: Arc<SandboxFactory>,
}

impl Sandboxed {
    /// A backend over `sandbox` that makes every box when it is asked for.
    pub fn new(sandbox: Sandbox) -> Self {
        Self { standby: None, boxes: Arc::new(SandboxFactory::new(sandbox)) }
    }

    /// Holds host ids for `runs` jobs at once, clears away behind their reports
    /// from now on, and makes at most `standby_max` boxes ahead for jobs like
    /// those that have come lately.
    pub fn prepare_for(&mut self, runs: usize, standby_max: usize) -> Result<(), SetupFailure> {
        self.boxes.sandbox().dispose_behind()?;
        if runs > 1 {
            self.boxes.sandbox().keep_net_namespaces(runs + standby_max)?;
        }
        self.boxes.reserve_ids(runs + standby_max)?;
        if standby_max > 0 {
            self.standby = Some(StandbyPool::start(Arc::clone(&self.boxes), standby_max)?);
        }
        Ok(())
    }

    /// What boxes are made with.
    pub fn sandbox(&self) -> &Sandbox {
        self.boxes.sandbox()
    }

    /// A host id that no other box has.
    pub(super) fn acquire_id(&self) -> Result<AcquiredId, SetupFailure> {
        self.boxes.acquire_id()
    }

    /// What there is of boxes made ahead; nothing where none are to be.
    pub fn standby_figures(&self) -> StandbyFigures {
        self.standby.as_ref().map(StandbyPool::figures).unwrap_or_default()
    }

    /// Lets go of the boxes made ahead and makes no more of them.
    pub fn close_standby(&self) {
        if let Some(standby) = &self.standby {
            standby.close();
        }
    }

    /// Runs `job` to its end on this thread.
    pub fn run(
        &self,
        job: Job<'_>,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        let live = self.expect(&job)?;
        if let Some((live, ready)) = live.as_ref().and_then(|live| Some((live, live.take()?))) {
            let (limits, retained) = (job.spec.limits.clone(), job.retained.clone());
            let running = self.boxes.release(ready, job.files, limits, retained, began)?;
            match running.supervise(watch, &mut sink) {
                // Somebody killed it while it stood: nothing of the job has begun.
                Err(NotStarted::Setup(failure)) if failure.step == BEFORE_PROGRAM => {
                    log::warn!("a box made ahead: {failure}: one is made now");
                    live.discard_others();
                }
                report => return report.map(|report| RunReport { standby: true, ..report }),
            }
        }
        let host_id = Arc::new(self.acquire_id()?);
        let retained = job.retained.clone().and(host_id.clone());
        self.run_in_new(Job { retained, ..job }, host_id.id(), began, watch, sink)
    }

    /// As [`Sandboxed::run`], in a box made now, as the caller's own `host_id`.
    pub fn run_as(
        &self,
        job: Job<'_>,
        host_id: &HostId,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        if !host_id.is_free() {
            let words = "the last box that had it is not dead";
            return Err(SetupFailure::from_words("host uid", words).into());
        }
        let retained = job.retained.clone().and(Arc::new(host_id.clone()));
        self.run_in_new(Job { retained, ..job }, host_id, Instant::now(), watch, sink)
    }

    fn run_in_new(
        &self,
        job: Job<'_>,
        host_id: &HostId,
        began: Instant,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let Job { template, files, spec, retained } = job;
        let running = self.boxes.start(host_id, template, files, spec, retained, began)?;
        running.supervise(watch, &mut sink)
    }

    /// Notes that `job` begins, where boxes for its like are made ahead.
    fn expect(&self, job: &Job<'_>) -> Result<Option<LiveRun<'_>>, SetupFailure> {
        let (Some(standby), Some(template)) = (&self.standby, job.template) else {
            return Ok(None);
        };
        let contents = self.boxes.contents(template)?;
        let key = PoolKey::of(template.to_owned(), contents, &job.spec);
        Ok(key.map(|key| standby.begin(key)))
    }

    /// The file system of a box for `spec`, with `room` and the program in it where that has to be.
    fn file_system(
        &self,
        spec: &mut RunSpec,
        room: Room,
        host_id: &HostId,
    ) -> Result<BoxFs, SetupFailure> {
        let sandbox = self.sandbox();
        let copied = sandbox.copied_bytes(&spec.program)?;
        let bytes = room.bytes.saturating_add(copied.next_multiple_of(PAGE_BYTES));
        let limits = Limits {
            disk_bytes_max: spec.limits.disk_bytes_max.saturating_add(bytes),
            disk_inodes_max: spec.limits.disk_inodes_max.saturating_add(room.inodes),
            ..spec.limits.clone()
        };
        let fs = sandbox.box_fs(&limits, host_id)?;
        spec.workspace = WorkspaceFill::Own;
        spec.program = sandbox.keep_program(std::mem::take(&mut spec.program), copied, &fs)?;
        Ok(fs)
    }
}

impl Executor for Sandboxed {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        let sandbox = self.sandbox();
        let not_enforced = sandbox.not_enforced().to_vec();
        Ok(Capabilities { enforced: sandbox.enforced(), not_enforced })
    }

    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        for path in places_of(name) {
            if let Some(ProgramAt { target, file }) = self.sandbox().program_at(&path)? {
                let (path, target) = (path.to_str(), target.to_str());
                // A file that no result can name counts as none.
                let (Some(path), Some(target)) = (path, target) else { continue };
                return Ok(Some(FoundProgram { path: path.into(), target: target.into(), file }));
            }
        }
        Ok(None)
    }

    fn execute(
        &self,
        task: Task<'_>,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        let Task { mut spec, room, retained, fill, collect } = task;
        let host_id = Arc::new(self.acquire_id()?);
        let fs = self.file_system(&mut spec, room, host_id.id())?;
        fill(fs.workspace(false)?.as_fd(), Owner { uid: fs.tenant(), gid: fs.tenant() })?;
        // Before the program begins: the directory itself, whatever the tenant makes of its path.
        let workspace = fs.workspace(false)?;
        let running = self.sandbox().start(spec, fs, retained.and(host_id), began)?;
        // Closed by then: whoever closes the last of a file system waits until it is freed.
        running.supervise_and(watch, &mut sink, move || collect(workspace.as_fd()))
    }
}

/// Where a program called `name` may be.
fn places_of(name: &str) -> Vec<PathBuf> {
    match name {
        impossible if impossible.is_empty() || impossible.contains('\0') => Vec::new(),
        // Below a working directory, in which there is nothing yet.
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
    fn bare_names_are_looked_for_in_the_fixed_path_and_others_only_at_their_place() {
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
            assert_eq!(places_of(name), places.iter().map(PathBuf::from).collect::<Vec<_>>());
        }
    }
}
