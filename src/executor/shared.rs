//! Sandboxes of workspaces that many programs share, each kept by a thread of its own, and those whose
//! program is executed before it is asked for.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::Instant;

use super::factory::PrestartedSandbox;
use super::mounted_key::{MountedIdentity, MountedKey, MountedView};
use super::pool_key::PoolKey;
use super::sandbox::{SandboxExecutor, told};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{
    EgressService, Limits, NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, StdinSource,
    Watch,
};
use cofferdam_sandbox::engine::{ProgramLabel, SharedSandbox};

/// A sandbox over a workspace whose program was executed ahead, and waits.
#[derive(Debug)]
pub struct AheadRun(PrestartedSandbox);

impl SandboxExecutor {
    /// Executes the program of `spec` ahead over the workspace `identity`, if it names one for that.
    pub fn expect_mounted(&self, identity: MountedIdentity, spec: &RunSpec) {
        if let (Some(pool), Some(key)) = (self.warm_pool(), MountedKey::ahead(identity, spec)) {
            pool.expect(PoolKey::Mounted(key));
        }
    }

    /// The sandbox in which the program of `spec` waits over the workspace `identity`, if there is one.
    pub fn take_ahead(&self, identity: MountedIdentity, spec: &RunSpec) -> Option<AheadRun> {
        let (pool, key) = (self.warm_pool()?, MountedKey::ahead(identity, spec)?);
        pool.begin(PoolKey::Mounted(key)).take().map(AheadRun)
    }

    /// Lets the program of `ahead` go on as that of `spec`, with its input. Returns nothing if it cannot.
    ///
    /// # Errors
    /// The supervision failed.
    pub fn run_ahead(
        &self,
        AheadRun(ready): AheadRun,
        spec: &RunSpec,
        retained: &Retained,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Option<Result<RunReport, NotStarted>> {
        let StdinSource::Queue(input) = &spec.stdin else { return None };
        let terms = (spec.limits.clone(), StdinSource::Queue(Arc::clone(input)));
        let began = Instant::now();
        match self.factory().release(ready, &[], terms, retained.clone(), began) {
            Ok(running) => {
                let report = running.supervise(watch, sink);
                Some(told(watch, report.map(|report| RunReport { standby: true, ..report })))
            }
            Err(failure) => {
                log::warn!("warm sandbox: {failure}; creating a new one");
                None
            }
        }
    }

    /// Creates a sandbox with the mounts of `view` that lasts until `watch` is cancelled, and holds
    /// `retained` until it is dead. `limits` bound all its programs together, which reach
    /// what `egress` lets them.
    ///
    /// # Errors
    /// The step that failed.
    pub fn open_shared(
        self: &Arc<Self>,
        view: MountedView,
        limits: Limits,
        egress: Option<Arc<dyn EgressService>>,
        retained: Retained,
        watch: Watch,
    ) -> Result<SharedSandbox, SetupFailure> {
        let (answer, answered) = sync_channel(1);
        let executor = Arc::clone(self);
        let keep = move || {
            let MountedView { mounts, host_id, lender } = view;
            let mut retained = retained.and(Arc::new(host_id.clone()));
            retained.extend(lender);
            let created = executor.sandbox().create_shared(
                mounts,
                &limits,
                &host_id,
                retained,
                egress.as_ref(),
            );
            // The sandbox outlives no executor that it does not need.
            drop(executor);
            let kept = match created {
                Ok(kept) => kept,
                Err(failure) => {
                    tell_ended(&watch);
                    // A caller that still waits gets the failure.
                    let _ = answer.send(Err(failure));
                    return;
                }
            };
            if let Some(control) = &watch.control {
                control.note_started();
            }
            if answer.send(Ok(kept.handle())).is_ok() {
                kept.keep(&watch);
            }
            tell_ended(&watch);
        };
        let spawned = Builder::new().name("sandbox".to_owned()).spawn(keep);
        spawned.map_err(|error| SetupFailure::from_io("thread", &error))?;
        let ended = |_| SetupFailure::from_words("thread", "it ended without an answer");
        answered.recv().map_err(ended)?
    }

    /// Runs the program of `spec` in `shared` on this thread.
    ///
    /// # Errors
    /// The program did not start.
    pub fn run_shared(
        &self,
        shared: &SharedSandbox,
        spec: RunSpec,
        label: ProgramLabel,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        told(watch, self.sandbox().run_shared(shared, spec, label, watch, sink))
    }
}

/// Orders fail from now on.
fn tell_ended(watch: &Watch) {
    if let Some(control) = &watch.control {
        control.note_ended::<()>(&Ok(()));
    }
}
