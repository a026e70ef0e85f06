//! File systems of workspaces on this host, each with a host id of its own.

use std::fs::DirBuilder;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use super::lasting::HostLastingSandbox;
use super::maker::{
    ForkKind, FrozenTree, LastingSandbox, PlainProgram, ReadCall, TreeMaker, TreeSandbox,
    TreeSettings, TreeUsage, WorkspaceTree,
};
use super::read_only::ReadOnlyTrees;
use crate::executor::{
    AcquiredId, AheadRun, Capabilities, MountSource, MountedIdentity, MountedRun, MountedView,
    SandboxExecutor,
};
use crate::workspace::disk::LazyEngineDir;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::helpers::WorkspaceMetadata;
use crate::workspace::request::StorageKind;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{
    EgressService, Limits, MountedWorkspace, NotStarted, OutputSink, RunReport, RunSpec,
    SetupFailure, Watch, WorkspacePath,
};
use cofferdam_sandbox::engine::{
    DiskSpace, FrozenChain, LayerError, LayerHost, MountedTree, ReadOnlyTree, ReadOnlyTreeDraft,
    Storage, WorkspaceFs, WorkspaceMounts,
};
use cofferdam_tree::files::{PathRule, WorkspaceRoot, ensure_layout};
use cofferdam_tree::{Owner, StopCheck, TreeDigest};

/// The directory of images, in that of the engine.
const IMAGES: &str = "images";
/// Files and directories that a sandbox may have outside of its workspace.
const OWN_INODES_MAX: u64 = 16_384;

/// Makes the file systems of workspaces.
#[derive(Debug, Clone)]
pub struct HostTrees(Arc<HostLayers>);

/// What all of them share.
#[derive(Debug)]
struct HostLayers {
    layers: LayerHost,
    directory: Arc<LazyEngineDir>,
    with_images: Mutex<Option<LayerHost>>,
    /// Lends the host ids.
    executor: Arc<SandboxExecutor>,
    /// The read-only trees that they share.
    read_only: Arc<ReadOnlyTrees>,
}

/// The file system of one workspace, with the host id that its sandboxes run as.
#[derive(Debug)]
struct HostTree {
    // Dropped before the id, which the next workspace may have.
    fs: WorkspaceFs,
    host_id: Arc<AcquiredId>,
    host: Arc<HostLayers>,
    /// Whether others may have the host id.
    shares_host_id: bool,
    /// The number by which the standby pool knows it.
    number: u64,
}

/// Files that no longer change.
#[derive(Debug)]
struct HostFrozenTree {
    // Dropped before the id, to which these files may be bound.
    chain: FrozenChain,
    host_id: Arc<AcquiredId>,
    host: Arc<HostLayers>,
}

/// A sandbox that is prepared, or not created yet.
#[derive(Debug)]
struct HostSandbox {
    executor: Arc<SandboxExecutor>,
    run: Option<MountedRun>,
    /// Where its program waits, if it was executed ahead.
    ahead: Option<AheadRun>,
    /// None if a sandbox was prepared.
    view: Option<MountedView>,
}

impl HostTrees {
    /// Tries what this host can do for workspaces, whose host ids `executor` lends. Images of workspaces
    /// on disk are in `directory`.
    ///
    /// # Errors
    /// The host cannot have file systems of workspaces.
    pub fn open(
        executor: Arc<SandboxExecutor>,
        directory: Arc<LazyEngineDir>,
    ) -> Result<Self, SetupFailure> {
        let probe = executor.acquire_host_id()?;
        let layers = LayerHost::open(probe.id()).map_err(|error| match error {
            LayerError::Failed(failure) => failure,
            other => SetupFailure::from_words("file system of workspace", other.to_string()),
        })?;
        let with_images = Mutex::default();
        let read_only = Arc::default();
        let host = HostLayers { layers, directory, with_images, executor, read_only };
        Ok(Self(Arc::new(host)))
    }
}

impl HostLayers {
    /// The layers with images. The directory is made, and the host tried, with the first workspace that
    /// asks for it.
    fn of_images(&self) -> Result<LayerHost, EngineError> {
        let unavailable = |reason: &str| EngineError::new(EngineCode::StorageUnavailable, reason);
        let mut with_images = self.with_images.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layers) = &*with_images {
            return Ok(layers.clone());
        }
        self.directory.get()?;
        let images = self.directory.path().join(IMAGES);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&images);
        made.map_err(|error| {
            log::error!("{}: {error}", images.display());
            unavailable("there is no directory for images")
        })?;
        let layers = self.layers.clone().with_images(&images);
        layers.images().map_err(unavailable)?;
        *with_images = Some(layers.clone());
        Ok(layers)
    }

    /// The layers for files of that kind.
    fn of(&self, storage: StorageKind) -> Result<(LayerHost, Storage), EngineError> {
        Ok(match storage {
            StorageKind::Memory => (self.layers.clone(), Storage::Memory),
            StorageKind::Disk => (self.of_images()?, Storage::Disk),
        })
    }

    fn next_number(&self) -> u64 {
        self.executor.next_mounted_number()
    }

    fn acquire_host_id(&self) -> Result<Arc<AcquiredId>, EngineError> {
        self.executor.acquire_host_id().map(Arc::new).map_err(|failure| failed(&failure))
    }
}

impl TreeMaker for HostTrees {
    fn make(&self, settings: TreeSettings) -> Result<Box<dyn WorkspaceTree>, EngineError> {
        let host = Arc::clone(&self.0);
        let (layers, storage) = host.of(settings.storage)?;
        let host_id = host.acquire_host_id()?;
        let fs = layers.create(limit(settings), storage, host_id.id()).map_err(refused)?;
        let number = host.next_number();
        let tree = HostTree { fs, host_id, host, shares_host_id: false, number };
        let metadata = WorkspaceMetadata::new(SystemTime::now()).to_contents();
        let rule = PathRule::default();
        let root = WorkspaceRoot { directory: tree.root(), rule: &rule, owner: tree.owner() };
        ensure_layout(&root, &metadata).map_err(|error| {
            let words = format!("the workspace could not be laid out: {error}");
            EngineError::new(EngineCode::SandboxFailed, words)
        })?;
        Ok(Box::new(tree))
    }

    fn fork_kind(&self) -> ForkKind {
        let overlay = &self.0.layers.features().overlay;
        if overlay.is_ok() { ForkKind::Overlay } else { ForkKind::Copy }
    }

    fn can_mount(&self) -> bool {
        self.0.layers.features().read_only_trees.is_ok()
    }

    fn controls(&self) -> Capabilities {
        let sandbox = self.0.executor.sandbox();
        let not_enforced = sandbox.not_enforced().to_vec();
        Capabilities { enforced: sandbox.enforced(), not_enforced }
    }

    fn check_shared(&self) -> Result<(), EngineError> {
        let checked = self.0.executor.sandbox().check_shared();
        checked.map_err(|reason| EngineError::new(EngineCode::SandboxUnavailable, reason))
    }
}

impl WorkspaceTree for HostTree {
    fn root(&self) -> BorrowedFd<'_> {
        self.fs.tree()
    }

    fn owner(&self) -> Owner {
        let id = self.fs.host_id().id();
        Owner { uid: id, gid: id }
    }

    fn usage(&self) -> Result<TreeUsage, EngineError> {
        let disk = self.fs.usage().map_err(refused)?;
        Ok(TreeUsage { disk, frozen_bytes: self.fs.chain().used().bytes })
    }

    fn shares_host_id(&self) -> bool {
        self.shares_host_id
    }

    fn freeze(&mut self, stop: StopCheck<'_>) -> Result<Arc<dyn FrozenTree>, EngineError> {
        let chain = self.fs.freeze(stop).map_err(refused)?;
        self.shares_host_id |= chain.bound_to().is_some();
        Ok(self.of_chain(chain))
    }

    fn copy(&self, stop: StopCheck<'_>) -> Result<Arc<dyn FrozenTree>, EngineError> {
        Ok(self.of_chain(self.fs.copy_top(stop).map_err(refused)?))
    }

    fn frozen(&self) -> Arc<dyn FrozenTree> {
        self.of_chain(self.fs.chain())
    }

    fn is_layered(&self) -> bool {
        self.fs.chain().depth() > 0
    }

    fn can_merge(&self) -> bool {
        self.fs.can_merge()
    }

    fn merge(&mut self, stop: StopCheck<'_>) -> Result<(), EngineError> {
        self.fs.merge(stop).map_err(refused)
    }

    fn view(&self, path: WorkspacePath, own_bytes_max: u64) -> Result<MountedView, EngineError> {
        let WorkspaceMounts { workspace, tmp } = self.fs.mounts().map_err(refused)?;
        let own_inodes_max = OWN_INODES_MAX;
        Ok(MountedView {
            mounts: MountedWorkspace {
                workspace,
                tmp,
                path,
                others: Vec::new(),
                own_bytes_max,
                own_inodes_max,
            },
            host_id: self.fs.host_id().clone(),
            lender: Retained::of(Arc::clone(&self.host_id) as _),
        })
    }

    fn sandbox(
        &self,
        path: WorkspacePath,
        own_bytes_max: u64,
        plain: Option<PlainProgram<'_>>,
    ) -> Result<Box<dyn TreeSandbox>, EngineError> {
        let executor = Arc::clone(&self.host.executor);
        let (mut run, mut ahead) = (None, None);
        if let Some(PlainProgram { spec, source }) = plain {
            let identity = self.identity(source);
            match spec.prestart {
                Some(_) => ahead = executor.take_ahead(identity, spec),
                None => run = executor.begin_mounted(identity, spec),
            }
        }
        let is_prepared = run.as_ref().is_some_and(MountedRun::is_prepared);
        let view = if is_prepared { None } else { Some(self.view(path, own_bytes_max)?) };
        Ok(Box::new(HostSandbox { executor, run, ahead, view }))
    }

    fn expect(&self, PlainProgram { spec, source }: PlainProgram<'_>) {
        self.host.executor.expect_mounted(self.identity(source), spec);
    }

    fn mountable(&self) -> Option<Arc<ReadOnlyTrees>> {
        let can_mount = self.host.layers.features().read_only_trees.is_ok();
        can_mount.then(|| Arc::clone(&self.host.read_only))
    }

    fn begin_tree(&self, room: DiskSpace) -> Result<ReadOnlyTreeDraft, EngineError> {
        self.fs.begin_tree(room).map_err(refused)
    }

    fn mark(&self, path: &Path, tree: &ReadOnlyTree) -> Result<(), EngineError> {
        self.fs.mark(path, tree).map_err(refused)
    }

    fn mount(&mut self, mounted: MountedTree) -> Result<(), EngineError> {
        self.fs.mount_tree(mounted).map_err(refused)
    }

    fn mounted(&self) -> Vec<MountedTree> {
        self.fs.chain().trees().to_vec()
    }

    fn limit(&mut self, settings: TreeSettings) -> Result<(), EngineError> {
        self.fs.set_limit(limit(settings)).map_err(refused)
    }

    fn discard_prepared(&self) -> bool {
        self.host.executor.discard_mounted(self.number)
    }

    fn lasting_sandbox(
        &self,
        path: WorkspacePath,
        own_bytes_max: u64,
        limits: Limits,
        egress: Option<Arc<dyn EgressService>>,
        retained: Retained,
        watch: Watch,
    ) -> Result<Arc<dyn LastingSandbox>, EngineError> {
        let executor = Arc::clone(&self.host.executor);
        let view = self.view(path, own_bytes_max)?;
        let sandbox = executor.open_shared(view, limits, egress, retained, watch);
        let sandbox = sandbox.map_err(|failure| failed(&failure))?;
        Ok(Arc::new(HostLastingSandbox { executor, sandbox }))
    }
}

impl Drop for HostTree {
    fn drop(&mut self) {
        // Without waiting: the preparer may be who drops it.
        self.host.executor.forget_mounted(self.number);
    }
}

impl HostTree {
    fn identity(&self, source: Weak<dyn MountSource>) -> MountedIdentity {
        MountedIdentity { number: self.number, source }
    }

    fn of_chain(&self, chain: FrozenChain) -> Arc<dyn FrozenTree> {
        let (host_id, host) = (Arc::clone(&self.host_id), Arc::clone(&self.host));
        Arc::new(HostFrozenTree { chain, host_id, host })
    }
}

impl FrozenTree for HostFrozenTree {
    fn digest(&self, stop: StopCheck<'_>) -> Result<TreeDigest, EngineError> {
        self.host.layers.digest(&self.chain, stop).map_err(refused)
    }

    fn read(&self, call: &mut ReadCall<'_>) -> Result<(), EngineError> {
        call(self.host.layers.view(&self.chain).map_err(refused)?.tree())
    }

    fn fork(&self, settings: TreeSettings) -> Result<Box<dyn WorkspaceTree>, EngineError> {
        let host = Arc::clone(&self.host);
        let (layers, storage) = host.of(settings.storage)?;
        let shares_host_id = self.chain.bound_to().is_some();
        let host_id =
            if shares_host_id { Arc::clone(&self.host_id) } else { host.acquire_host_id()? };
        let fs = layers.fork(&self.chain, limit(settings), storage, host_id.id());
        let (fs, number) = (fs.map_err(refused)?, host.next_number());
        Ok(Box::new(HostTree { fs, host_id, host, shares_host_id, number }))
    }

    fn mounted(&self) -> Vec<MountedTree> {
        self.chain.trees().to_vec()
    }

    fn charge_layers(
        &self,
        charge: &mut dyn FnMut(u64, bool) -> Result<Retained, EngineError>,
    ) -> Result<(), EngineError> {
        let charge =
            |used: DiskSpace, storage: Storage| charge(used.bytes, storage == Storage::Memory);
        self.chain.retain_with_layers(charge)
    }

    fn charges(&self) -> Retained {
        self.chain.retained()
    }
}

impl TreeSandbox for HostSandbox {
    fn run(
        self: Box<Self>,
        spec: RunSpec,
        retained: Retained,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let Self { executor, run, ahead, view } = *self;
        if let Some(ahead) = ahead
            && let Some(report) = executor.run_ahead(ahead, &spec, &retained, watch, &mut sink)
        {
            return report;
        }
        executor.run_begun(spec, (run, view), retained, watch, sink)
    }
}

fn limit(settings: TreeSettings) -> DiskSpace {
    DiskSpace { bytes: settings.bytes, inodes: settings.inodes }
}

fn refused(error: LayerError) -> EngineError {
    match error {
        LayerError::Failed(failure) => failed(&failure),
        LayerError::DiskFull { left } => {
            EngineError::new(EngineCode::WorkspaceDiskFull, "the workspace would have no room")
                .with("bytes", left.bytes)
                .with("inodes", left.inodes)
        }
        LayerError::StorageUnavailable { reason } => {
            EngineError::new(EngineCode::StorageUnavailable, reason)
        }
        LayerError::Busy | LayerError::Stopped => {
            EngineError::new(EngineCode::SnapshotUnavailable, error.to_string())
        }
    }
}

/// The reason is for the operator: it names steps on this host.
fn failed(failure: &SetupFailure) -> EngineError {
    log::error!("file system of a workspace: {failure}");
    EngineError::new(EngineCode::SandboxFailed, failure.to_string())
}
