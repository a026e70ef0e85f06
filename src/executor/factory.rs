//! SandboxFactory as a run needs them: with a host id of their own and a filled workspace.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::host_ids::{AcquiredId, HostIds};
use crate::executor::fill::{FillChoices, FilledWorkspace, TemplateContents};
use crate::executor::pool_key::PoolKey;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{Limits, RunSpec, SetupFailure};
use cofferdam_sandbox::{HostId, Running, Sandbox, Standing};

/// Makes them.
#[derive(Debug)]
pub struct SandboxFactory {
    sandbox: Sandbox,
    fills: FillChoices,
    host_ids: Arc<HostIds>,
}

/// A box made ahead: it lacks the posted files and the times of its run.
#[derive(Debug)]
pub struct ReadySandbox {
    standing: Standing,
    filled: FilledWorkspace,
}

impl SandboxFactory {
    /// SandboxFactory of `sandbox`.
    pub fn new(sandbox: Sandbox) -> Self {
        Self { sandbox, fills: FillChoices::default(), host_ids: Arc::default() }
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
    pub fn contents(&self, template: &Path) -> Result<TemplateContents, SetupFailure> {
        self.fills.contents(&self.sandbox, template)
    }

    /// A host id that no other box has.
    pub fn acquire_id(&self) -> Result<AcquiredId, SetupFailure> {
        self.host_ids.acquire(&self.sandbox)
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
    ) -> Result<Running, SetupFailure> {
        let fs = self.sandbox.box_fs(&spec.limits, host_id)?;
        let filled = self.fills.fill(&self.sandbox, &fs, template)?;
        filled.put(files)?;
        spec.workspace = filled.remaining_fill();
        self.sandbox.start(spec, fs, retained, began)
    }

    /// Makes a box ahead; none where the template is no longer, or not yet for
    /// certain, what the key says. It dies with the calling thread,
    /// whoever has it then.
    pub fn stand(&self, key: &PoolKey) -> Result<Option<ReadySandbox>, SetupFailure> {
        if !key.contents.are_settled() {
            return Ok(None);
        }
        let host_id = Arc::new(self.acquire_id()?);
        let fs = self.sandbox.box_fs(key.limits(), host_id.id())?;
        let filled = self.fills.fill(&self.sandbox, &fs, Some(&key.template))?;
        // After it was read: a change while it was shows now.
        if self.contents(&key.template)? != key.contents {
            return Ok(None);
        }
        let spec = key.spec(filled.remaining_fill());
        let standing = self.sandbox.stand(spec, fs, Retained::of(host_id))?;
        Ok(Some(ReadySandbox { standing, filled }))
    }

    /// Whether `ready` is what a box made now would be.
    pub fn is_current(&self, ready: &ReadySandbox) -> Result<bool, SetupFailure> {
        self.sandbox.is_fit(&ready.standing)
    }

    /// Gives `ready` the posted files and what it is to retain, and starts its program.
    pub fn release(
        &self,
        ready: ReadySandbox,
        files: &[(&RelPath, &[u8])],
        limits: Limits,
        retained: Retained,
        began: Instant,
    ) -> Result<Running, SetupFailure> {
        let ReadySandbox { standing, filled } = ready;
        filled.put(files)?;
        self.sandbox.release(standing, limits, retained, began)
    }
}
