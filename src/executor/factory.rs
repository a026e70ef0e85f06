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
use cofferdam_core::{Limits, RunSpec, SetupFailure, StdinSource};
use cofferdam_sandbox::engine::{
    HostId, PreparedSandbox, PrestartBounds, PrestartFault, RunningSandbox, SandboxHost,
    SentProgram, WarmSandbox,
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

/// A sandbox whose program was executed ahead of its run, and waits.
#[derive(Debug)]
pub struct PrestartedSandbox {
    /// The sandbox.
    pub warm: WarmSandbox,
    place: PrestartPlace,
}

/// The files that a program executed ahead sees.
#[derive(Debug)]
enum PrestartPlace {
    /// Its own, without the posted ones.
    Filled(FilledWorkspace),
    /// Those of the workspace of this key.
    Mounted(Box<MountedKey>),
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

    /// Executes the program of `key` ahead of a run, within `bounds`, and waits until it is ready.
    /// Returns nothing if the template differs from the key, changed too recently to be sure, or is
    /// below an overlay, which must not change beneath a program that has looked at it. The sandbox dies
    /// with the calling thread.
    pub fn prestart(
        &self,
        key: &TemplateKey,
        bounds: &PrestartBounds<'_>,
    ) -> Result<Option<PrestartedSandbox>, PrestartFault> {
        if !key.contents.are_settled() || !key.contents.are_copied() {
            return Ok(None);
        }
        let host_id = Arc::new(self.acquire_id()?);
        let fs = self.sandbox.create_fs(key.limits(), host_id.id())?;
        let filled = self.fills.fill(&self.sandbox, &fs, Some(&key.template))?;
        if self.contents(&key.template)? != key.contents {
            return Ok(None);
        }
        let spec = key.spec(filled.remaining_fill());
        let warm = self.sandbox.prestart(spec, fs, Retained::of(host_id), bounds)?;
        Ok(Some(PrestartedSandbox { warm, place: PrestartPlace::Filled(filled) }))
    }

    /// As [`SandboxFactory::prestart`], over a workspace that outlives the sandbox. Returns nothing if it
    /// gives no mounts now, or holds files of clients that the program would load before it is ready.
    pub fn prestart_mounted(
        &self,
        key: &MountedKey,
        bounds: &PrestartBounds<'_>,
    ) -> Result<Option<PrestartedSandbox>, PrestartFault> {
        if !key.is_untouched() {
            return Ok(None);
        }
        let Some(view) = key.view()? else { return Ok(None) };
        let MountedView { mounts, host_id, lender } = view;
        let fs = self.sandbox.create_fs_around(&mounts, false, &host_id)?;
        let retained = lender.and(Arc::new(host_id));
        let warm = self.sandbox.prestart(key.spec(mounts), fs, retained, bounds)?;
        Ok(Some(PrestartedSandbox { warm, place: PrestartPlace::Mounted(Box::new(key.clone())) }))
    }

    /// Whether the program of `prestarted` still waits in a sandbox like one created now.
    pub fn is_waiting(&self, prestarted: &PrestartedSandbox) -> Result<bool, SetupFailure> {
        let is_untouched = match &prestarted.place {
            PrestartPlace::Filled(_) => true,
            PrestartPlace::Mounted(key) => key.is_untouched(),
        };
        Ok(is_untouched && self.sandbox.is_waiting(&prestarted.warm)?)
    }

    /// Writes the posted files into `prestarted`, whose program then goes on as the run, with `input` if
    /// it has any. The sandbox then holds `retained` as well.
    pub fn release(
        &self,
        prestarted: PrestartedSandbox,
        files: &[(&RelPath, &[u8])],
        (limits, input): (Limits, StdinSource),
        retained: Retained,
        began: Instant,
    ) -> Result<RunningSandbox, SetupFailure> {
        let PrestartedSandbox { warm, place } = prestarted;
        if let PrestartPlace::Filled(filled) = place {
            filled.put(files)?;
        }
        self.sandbox.release(warm, (limits, input), retained, began)
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
