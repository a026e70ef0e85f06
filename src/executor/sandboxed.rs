//! The local backend: a workspace filled from a template, run in a box.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::blueprint::Blueprint;
use super::boxes::Boxes;
use super::host_ids::LentId;
use super::standby::{LiveRun, Standby};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{
    NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, StandbyMetrics, Watch,
};
use cofferdam_sandbox::{BEFORE_PROGRAM, HostId, Sandbox};

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
    standby: Option<Standby>,
    boxes: Arc<Boxes>,
}

impl Sandboxed {
    /// A backend over `sandbox` that makes every box when it is asked for.
    pub fn new(sandbox: Sandbox) -> Self {
        Self { standby: None, boxes: Arc::new(Boxes::new(sandbox)) }
    }

    /// Holds host ids for `runs` jobs at once, clears away behind their reports
    /// from now on, and makes at most `standby_max` boxes ahead for jobs like
    /// those that have come lately.
    pub fn prepare_for(&mut self, runs: usize, standby_max: usize) -> Result<(), SetupFailure> {
        self.boxes.sandbox().start_cleanup_thread()?;
        if runs > 1 {
            self.boxes.sandbox().keep_net_namespaces(runs + standby_max)?;
        }
        self.boxes.reserve_ids(runs + standby_max)?;
        if standby_max > 0 {
            self.standby = Some(Standby::start(Arc::clone(&self.boxes), standby_max)?);
        }
        Ok(())
    }

    /// What boxes are made with.
    pub fn sandbox(&self) -> &Sandbox {
        self.boxes.sandbox()
    }

    /// A host id that no other box has.
    pub(super) fn lend_id(&self) -> Result<LentId, SetupFailure> {
        self.boxes.lend_id()
    }

    /// What there is of boxes made ahead; nothing where none are to be.
    pub fn standby_figures(&self) -> StandbyMetrics {
        self.standby.as_ref().map(Standby::figures).unwrap_or_default()
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
                    live.let_go_of_others();
                }
                report => return report.map(|report| RunReport { standby: true, ..report }),
            }
        }
        let host_id = Arc::new(self.lend_id()?);
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
        let blueprint = Blueprint::of(template.to_owned(), contents, &job.spec);
        Ok(blueprint.map(|blueprint| standby.begin(blueprint)))
    }
}
