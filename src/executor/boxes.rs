//! Boxes as a run needs them: with a host id of their own and a filled workspace.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::blueprint::Blueprint;
use super::filling::{Contents, Filled, Fills};
use super::host_ids::{HostIds, LentId};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{Limits, RunSpec, SetupFailure};
use cofferdam_sandbox::{HostId, PreparedSandbox, RunningSandbox, Sandbox};

/// Makes them.
#[derive(Debug)]
pub struct Boxes {
    sandbox: Sandbox,
    fills: Fills,
    host_ids: Arc<HostIds>,
}

/// A box made ahead: it lacks the posted files and the times of its run.
#[derive(Debug)]
pub struct Ready {
    prepared: PreparedSandbox,
    filled: Filled,
}

impl Boxes {
    /// Boxes of `sandbox`.
    pub fn new(sandbox: Sandbox) -> Self {
        Self { sandbox, fills: Fills::default(), host_ids: Arc::default() }
    }

    /// What they are made with.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Holds so many host ids ahead.
    pub fn reserve_ids(&self, count: usize) -> Result<(), SetupFailure> {
        self.host_ids.reserve(&self.sandbox, count)
    }

    /// What a workspace filled from `template` holds now.
    pub fn contents(&self, template: &Path) -> Result<Contents, SetupFailure> {
        self.fills.contents(&self.sandbox, template)
    }

    /// A host id that no other box has.
    pub fn lend_id(&self) -> Result<LentId, SetupFailure> {
        self.host_ids.lend(&self.sandbox)
    }

    /// Makes a box for one run as `host_id` and starts its program. It dies with the calling
    /// thread, and keeps what is `retained`, the host id among it, until it is dead.
    pub fn start(
        &self,
        host_id: &HostId,
        template: Option<&Path>,
        files: &[(&RelPath, &[u8])],
        mut spec: RunSpec,
        retained: Retained,
        began: Instant,
    ) -> Result<RunningSandbox, SetupFailure> {
        let fs = self.sandbox.create_fs(&spec.limits, host_id)?;
        let filled = self.fills.fill(&self.sandbox, &fs, template)?;
        filled.put(files)?;
        spec.workspace = filled.left_to_do();
        self.sandbox.start(spec, fs, retained, began)
    }

    /// Makes a box ahead; none where the template is no longer, or not yet for
    /// certain, what the blueprint says. It dies with the calling thread,
    /// whoever has it then.
    pub fn stand(&self, blueprint: &Blueprint) -> Result<Option<Ready>, SetupFailure> {
        if !blueprint.contents.are_settled() {
            return Ok(None);
        }
        let host_id = Arc::new(self.lend_id()?);
        let fs = self.sandbox.create_fs(blueprint.limits(), host_id.id())?;
        let filled = self.fills.fill(&self.sandbox, &fs, Some(&blueprint.template))?;
        // After it was read: a change while it was shows now.
        if self.contents(&blueprint.template)? != blueprint.contents {
            return Ok(None);
        }
        let spec = blueprint.spec(filled.left_to_do());
        let prepared = self.sandbox.prepare(spec, fs, Retained::of(host_id))?;
        Ok(Some(Ready { prepared, filled }))
    }

    /// Whether `ready` is what a box made now would be.
    pub fn is_fit(&self, ready: &Ready) -> Result<bool, SetupFailure> {
        self.sandbox.is_usable(&ready.prepared)
    }

    /// Gives `ready` the posted files and what it is to retain, and starts its program.
    pub fn release(
        &self,
        ready: Ready,
        files: &[(&RelPath, &[u8])],
        limits: Limits,
        retained: Retained,
        began: Instant,
    ) -> Result<RunningSandbox, SetupFailure> {
        let Ready { prepared, filled } = ready;
        filled.put(files)?;
        self.sandbox.resume(prepared, limits, retained, began)
    }
}
