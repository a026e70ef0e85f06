//! The files of a phase of whose programs the next one may find a prepared sandbox.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::phase_tree::PhaseTree;
use crate::executor::{MountSource, MountedIdentity, MountedRun, MountedView, SandboxExecutor};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, Watch, WorkspacePath,
};

/// How long a prepared sandbox may take to be gone.
const UNUSED_WAIT: Duration = Duration::from_secs(10);

/// A [`PhaseTree`] for whose programs the standby pool of `executor` prepares sandboxes, if it has one.
#[derive(Debug)]
pub struct PreparedTree {
    // Dropped first: the pool prepares nothing for files that are gone.
    known: KnownTree,
    shown: Arc<ShownTree>,
}

/// What the standby pool has mounts of.
#[derive(Debug)]
struct ShownTree(PhaseTree);

/// A tree that the standby pool knows by its number, until this is dropped.
#[derive(Debug)]
struct KnownTree {
    executor: Arc<SandboxExecutor>,
    number: u64,
}

impl PreparedTree {
    /// The files of `tree`, whose sandboxes are those of `executor`.
    pub fn new(tree: PhaseTree, executor: &Arc<SandboxExecutor>) -> Self {
        let executor = Arc::clone(executor);
        let number = executor.next_mounted_number();
        Self { known: KnownTree { executor, number }, shown: Arc::new(ShownTree(tree)) }
    }

    /// The files.
    pub fn tree(&self) -> &PhaseTree {
        &self.shown.0
    }

    /// As [`PhaseTree::run`] at the usual place, in a prepared sandbox if there is one that fits.
    ///
    /// # Errors
    /// The program did not start.
    pub fn run(
        &self,
        spec: RunSpec,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let KnownTree { executor, number } = &self.known;
        let source: Weak<ShownTree> = Arc::downgrade(&self.shown);
        let run = executor.begin_mounted(MountedIdentity { number: *number, source }, &spec);
        let is_prepared = run.as_ref().is_some_and(MountedRun::is_prepared);
        let view = if is_prepared { None } else { self.shown.view()? };
        executor.run_begun(spec, (run, view), Retained::default(), watch, sink)
    }

    /// The files alone, once no prepared sandbox shows them. No program runs over them.
    ///
    /// # Errors
    /// A prepared sandbox is still there after a while.
    pub fn into_tree(self) -> Result<PhaseTree, SetupFailure> {
        let Self { known, shown } = self;
        known.end()?;
        let shared = |_| SetupFailure::from_words("standby", "a sandbox is being prepared");
        Arc::try_unwrap(shown).map(|shown| shown.0).map_err(shared)
    }
}

impl MountSource for ShownTree {
    fn view(&self) -> Result<Option<MountedView>, SetupFailure> {
        self.0.view(&WorkspacePath::default()).map(Some)
    }
}

impl KnownTree {
    /// Waits until the pool has nothing of the tree, and prepares nothing for it.
    fn end(self) -> Result<(), SetupFailure> {
        self.executor.forget_mounted(self.number);
        let deadline = Deadline::after(UNUSED_WAIT);
        while !self.executor.discard_mounted(self.number) {
            if deadline.passed() {
                return Err(SetupFailure::from_words("standby", "a sandbox does not end"));
            }
        }
        Ok(())
    }
}

impl Drop for KnownTree {
    fn drop(&mut self) {
        // Without waiting: the preparer may be who drops it.
        self.executor.forget_mounted(self.number);
    }
}
