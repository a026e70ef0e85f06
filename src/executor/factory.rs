//! Creates the sandboxes of runs, each with its own host id and a filled workspace.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::home_files::put_home_files;
use super::host_ids::{AcquiredId, HostIds};
use crate::executor::fill::{FillChoices, FilledWorkspace, TemplateContents};
use crate::executor::mounted_key::{MountedKey, MountedView};
use crate::executor::pool_key::{PoolKey, TemplateKey};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{Limits, RunSpec, SetupFailure};
use cofferdam_sandbox::engine::{
    HostId, PreparedSandbox, RunningSandbox, SandboxHost, SentProgram,
};
use cofferdam_tree::Owner;

/// Creates sandboxes.
#[derive(Debug)]
pub struct SandboxFactory {
    sandbox: SandboxHost,
    fills: FillChoices,
    host_ids: Arc<HostIds>,
}

/// A prepared sandbox. What its key leaves open is still missing.
#[derive(Debug)]
pub struct ReadySandbox {
    prepared: PreparedSandbox,
    /// Where posted files go; none over a mounted workspace.
    filled: Option<FilledWorkspace>,
}

impl SandboxFactory {
    /// A factory that uses `sandbox`.
    pub fn new(sandbox: SandboxHost) -> Self {
        Self { sandbox, fills: FillChoices::default(), host_ids: Arc::default() }
    }

    /// What sandboxes are created with.
    pub fn sandbox(&self) -> &SandboxHost {
        &self.sandbox
    }

    /// Reserves `count` host ids.
    pub fn reserve_ids(&self, count: usize) -> Result<(), SetupFailure> {
        self.host_ids.reserve(&self.sandbox, count)
    }

    /// Identifies the current contents of `template`.
    pub fn contents(&self, template: &Path) -> Result<TemplateContents, SetupFailure> {
        self.fills.contents(&self.sandbox, template)
    }

    /// A host id that no other sandbox uses.
    pub fn acquire_id(&self) -> Result<AcquiredId, SetupFailure> {
        self.host_ids.acquire(&self.sandbox)
    }

    /// Creates a sandbox for one run as `host_id` and starts its program. The sandbox dies with
    /// the calling thread. It holds `retained`, which includes the host id, until it is dead.
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
        spec.workspace = filled.remaining_fill();
        if let Some(egress) = &spec.egress {
            let owner = Owner { uid: fs.tenant(), gid: fs.tenant() };
            put_home_files(fs.as_fd(), owner, egress.as_ref());
        }
        self.sandbox.start(spec, fs, retained, began)
    }

    /// Prepares a sandbox. Returns nothing if the template differs from the key or changed too
    /// recently to be sure, or the workspace has no mounts now. The sandbox dies with the calling
    /// thread, even if a run uses it.
    pub fn prepare(&self, key: &PoolKey) -> Result<Option<ReadySandbox>, SetupFailure> {
        match key {
            PoolKey::Template(key) => self.prepare_filled(key),
            PoolKey::Mounted(key) => self.prepare_mounted(key),
        }
    }

    fn prepare_mounted(&self, key: &MountedKey) -> Result<Option<ReadySandbox>, SetupFailure> {
        let Some(view) = key.view()? else { return Ok(None) };
        let MountedView { mounts, host_id, lender } = view;
        let fs = self.sandbox.create_fs_around(&mounts, false, &host_id)?;
        let retained = lender.and(Arc::new(host_id));
        let prepared = self.sandbox.prepare_without_program(key.spec(mounts), fs, retained)?;
        Ok(Some(ReadySandbox { prepared, filled: None }))
    }

    fn prepare_filled(&self, key: &TemplateKey) -> Result<Option<ReadySandbox>, SetupFailure> {
        if !key.contents.are_settled() {
            return Ok(None);
        }
        let host_id = Arc::new(self.acquire_id()?);
        let fs = self.sandbox.create_fs(key.limits(), host_id.id())?;
        let filled = self.fills.fill(&self.sandbox, &fs, Some(&key.template))?;
        // Compared after the copy, to detect a change during it.
        if self.contents(&key.template)? != key.contents {
            return Ok(None);
        }
        let spec = key.spec(filled.remaining_fill());
        let prepared = self.sandbox.prepare(spec, fs, Retained::of(host_id))?;
        Ok(Some(ReadySandbox { prepared, filled: Some(filled) }))
    }

    /// Whether a sandbox created now would equal `ready`.
    pub fn is_current(&self, ready: &ReadySandbox) -> Result<bool, SetupFailure> {
        self.sandbox.is_usable(&ready.prepared)
    }

    /// Writes the posted files into `ready` and resumes its program. The sandbox then holds
    /// `retained` as well.
    pub fn resume(
        &self,
        ready: ReadySandbox,
        files: &[(&RelPath, &[u8])],
        limits: Limits,
        retained: Retained,
        began: Instant,
    ) -> Result<RunningSandbox, SetupFailure> {
        let ReadySandbox { prepared, filled } = ready;
        filled.map_or(Ok(()), |filled| filled.put(files))?;
        self.sandbox.resume(prepared, None, limits, retained, began, None)
    }

    /// Sends `program`, made of `spec`, to `ready`, which was prepared over a mounted workspace. The
    /// sandbox then holds `retained` as well.
    pub fn resume_with(
        &self,
        ready: ReadySandbox,
        program: SentProgram,
        spec: &RunSpec,
        retained: Retained,
        began: Instant,
    ) -> Result<RunningSandbox, SetupFailure> {
        let (limits, egress) = (spec.limits.clone(), spec.egress.as_deref());
        self.sandbox.resume(ready.prepared, Some(program), limits, retained, began, egress)
    }
}
