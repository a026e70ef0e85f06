//! The file systems of phases: made, forked, frozen.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

use crate::executor::{AcquiredId, Executor, MountedView, SandboxExecutor};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{
    MountedDirectory, MountedWorkspace, NotStarted, OutputSink, RunReport, RunSpec, SetupFailure,
    Watch, WorkspacePath,
};
use cofferdam_sandbox::engine::{
    DiskSpace, DiskUsage, FrozenChain, FrozenView, LayerError, LayerHost, Storage, WorkspaceFs,
    WorkspaceMounts,
};
use cofferdam_sandbox::plan::PATH_DEFAULT;
use cofferdam_tree::{Owner, StopCheck};

/// The directory of a phase's files that sandboxes show as the repository.
pub const WORKSPACE: &str = "workspace";
/// The directory that they show at `/tmp`.
pub const TMP: &str = "tmp";
/// Where the sandboxes of evaluations see what is installed.
const DEPS: ShownDirectory = ShownDirectory { name: "deps", path: "/deps" };
/// The directory that the sandboxes of tests which write a reward show at [`LOGS_PATH`].
pub const LOGS: &str = "logs";
/// Where they see it.
const LOGS_PATH: &str = "/logs";
/// The directory that the sandboxes in which agents' needs are installed show at [`AGENT_PATH`].
pub const AGENT: &str = "agent";
/// Where they see it.
const AGENT_PATH: &str = "/agent";
/// What of it agents see, below the root, and where.
const AGENT_VENV: (&str, &str) = ("agent/venv", "/agent/venv");
/// Bytes and files that a sandbox may have in `/run`, `/dev/shm` and `/var/tmp`.
const OWN_BYTES_MAX: u64 = 64 << 20;
const OWN_INODES_MAX: u64 = 16_384;

/// A directory of a file system that all its sandboxes show, besides [`WORKSPACE`] and [`TMP`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownDirectory {
    /// Its name below the root.
    pub name: &'static str,
    /// Where sandboxes see it.
    pub path: &'static str,
}

/// Makes the file systems of phases. Clones are the same one.
#[derive(Debug, Clone)]
pub struct EvaluationTrees(Arc<TreeMakers>);

struct TreeMakers {
    layers: LayerHost,
    storage: Storage,
    executor: Arc<SandboxExecutor>,
    installed: ShownDirectory,
}

/// A file system with the directories [`WORKSPACE`], [`TMP`] and one for what is installed, whose sandboxes have a
/// host id of their own.
#[derive(Debug)]
pub struct PhaseTree {
    // Dropped before the id, which the next one may have.
    fs: WorkspaceFs,
    host_id: Arc<AcquiredId>,
    makers: EvaluationTrees,
    /// More directories, and where sandboxes see them.
    others: Vec<(&'static str, &'static str)>,
    /// What was installed for the agent whose tree this is.
    tools: Option<FrozenView>,
}

/// The files of a [`PhaseTree`] at one moment. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct FrozenFiles {
    // Dropped before the id, to which these files may be bound.
    chain: FrozenChain,
    host_id: Arc<AcquiredId>,
    makers: EvaluationTrees,
}

impl EvaluationTrees {
    /// File systems of evaluations: on disk, in images in the directory `images`, or in memory without one.
    ///
    /// # Errors
    /// The host cannot have such file systems.
    pub fn open(
        executor: Arc<SandboxExecutor>,
        images: Option<&Path>,
    ) -> Result<Self, SetupFailure> {
        Self::open_showing(DEPS, executor, images)
    }

    /// The same for other phases, whose sandboxes see `installed`.
    ///
    /// # Errors
    /// As [`EvaluationTrees::open`].
    pub fn open_showing(
        installed: ShownDirectory,
        executor: Arc<SandboxExecutor>,
        images: Option<&Path>,
    ) -> Result<Self, SetupFailure> {
        let probe = executor.acquire_host_id()?;
        let mut layers = LayerHost::open(probe.id()).map_err(failure)?;
        let mut storage = Storage::Memory;
        if let Some(images) = images {
            layers = layers.with_images(images);
            layers.images().map_err(|reason| SetupFailure::from_words("images", reason))?;
            storage = Storage::Disk;
        }
        Ok(Self(Arc::new(TreeMakers { layers, storage, executor, installed })))
    }

    /// Where files are.
    pub fn storage(&self) -> Storage {
        self.0.storage
    }

    /// What runs the programs of all phases.
    pub fn executor(&self) -> &Arc<SandboxExecutor> {
        &self.0.executor
    }

    /// An empty file system with room for `room`.
    ///
    /// # Errors
    /// A step of making it failed.
    pub fn create(&self, room: DiskSpace) -> Result<PhaseTree, SetupFailure> {
        let TreeMakers { layers, storage, executor, installed } = &*self.0;
        let host_id = Arc::new(executor.acquire_host_id()?);
        let fs = layers.create(room, *storage, host_id.id()).map_err(failure)?;
        let tree = PhaseTree { fs, host_id, makers: self.clone(), others: Vec::new(), tools: None };
        tree.make_directory(installed.name)?;
        Ok(tree)
    }
}

impl PhaseTree {
    /// The root, with the three directories. Its files belong to [`PhaseTree::owner`].
    pub fn root(&self) -> BorrowedFd<'_> {
        self.fs.tree()
    }

    /// The owner of its files, as this host sees them.
    pub fn owner(&self) -> Owner {
        let id = self.fs.host_id().id();
        Owner { uid: id, gid: id }
    }

    /// How full it is.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn usage(&self) -> Result<DiskUsage, SetupFailure> {
        self.fs.usage().map_err(failure)
    }

    /// Lets programs use `room` besides what is used now.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn limit(&mut self, room: DiskSpace) -> Result<(), SetupFailure> {
        let DiskUsage { used_bytes, used_inodes, .. } = self.usage()?;
        let used = DiskSpace { bytes: used_bytes, inodes: used_inodes };
        self.fs.set_limit(used.plus(room)).map_err(failure)
    }

    /// Makes the empty directory `/logs` with `directory` in it for the sandboxes of this tree.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn show_logs(&mut self, directory: &str) -> Result<(), SetupFailure> {
        self.make_directory(LOGS)?;
        self.make_directory(&format!("{LOGS}/{directory}"))?;
        self.others.push((LOGS, LOGS_PATH));
        Ok(())
    }

    /// Makes the empty directory `/agent` for the sandboxes of this tree.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn show_agent(&mut self) -> Result<(), SetupFailure> {
        self.make_directory(AGENT)?;
        self.others.push((AGENT, AGENT_PATH));
        Ok(())
    }

    /// Shows the virtual environment of `tools` at its place, read-only.
    ///
    /// # Errors
    /// The kernel refused a step.
    pub fn show_tools(&mut self, tools: &FrozenFiles) -> Result<(), SetupFailure> {
        self.tools = Some(tools.view()?);
        Ok(())
    }

    /// Whether [`PhaseTree::show_tools`] was called.
    pub fn shows_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// The mounts for one sandbox, which shows the repository at `place`.
    ///
    /// # Errors
    /// The kernel refused a step.
    pub fn mounts(&self, place: &WorkspacePath) -> Result<MountedWorkspace, SetupFailure> {
        let ShownDirectory { name, path } = self.makers.0.installed;
        let (WorkspaceMounts { workspace, tmp }, mount) =
            self.fs.mounts_with(name).map_err(failure)?;
        let mut others = vec![MountedDirectory { mount, target: path.into() }];
        for (name, target) in &self.others {
            let mount = self.fs.mount_of(name).map_err(failure)?;
            others.push(MountedDirectory { mount, target: target.into() });
        }
        if let Some(tools) = &self.tools {
            let (name, target) = AGENT_VENV;
            let mount = tools.mount_of(name).map_err(failure)?;
            others.push(MountedDirectory { mount, target: target.into() });
        }
        Ok(MountedWorkspace {
            workspace,
            tmp,
            path: place.clone(),
            others,
            own_bytes_max: OWN_BYTES_MAX,
            own_inodes_max: OWN_INODES_MAX,
        })
    }

    /// The same with what its sandboxes share.
    ///
    /// # Errors
    /// As [`PhaseTree::mounts`].
    pub fn view(&self, place: &WorkspacePath) -> Result<MountedView, SetupFailure> {
        Ok(MountedView {
            mounts: self.mounts(place)?,
            host_id: self.fs.host_id().clone(),
            lender: Retained::of(Arc::clone(&self.host_id) as _),
        })
    }

    /// How a shell of that name is executed in an environment: by its name, or by its path in the root file system
    /// where a PATH of the task's may not lead to it.
    ///
    /// # Errors
    /// The root file system cannot be searched.
    pub fn shell(
        &self,
        name: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<String, SetupFailure> {
        if env.get("PATH").is_none_or(|path| path.ends_with(PATH_DEFAULT)) {
            return Ok(name.to_owned());
        }
        let found = self.makers.executor().find_program(name)?;
        Ok(found.map_or_else(|| name.to_owned(), |found| found.path))
    }

    /// Runs the program of `spec` to its end on this thread, in a sandbox of its own. All that it started
    /// is dead when this returns.
    ///
    /// # Errors
    /// The program did not start.
    pub fn run(
        &self,
        spec: RunSpec,
        place: &WorkspacePath,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let mounts = self.mounts(place)?;
        let lender = Retained::of(Arc::clone(&self.host_id) as _);
        let executor = self.makers.executor();
        executor.run_mounted(spec, mounts, self.fs.host_id(), lender, watch, sink)
    }

    /// Freezes the files as they are, while nothing runs.
    ///
    /// # Errors
    /// A file is open for writing, or a step failed.
    pub fn freeze(self, stop: StopCheck<'_>) -> Result<FrozenFiles, SetupFailure> {
        let Self { fs, host_id, makers, .. } = self;
        let chain = fs.into_frozen(stop).map_err(failure)?;
        Ok(FrozenFiles { chain, host_id, makers })
    }

    /// Makes the directory `path`, of names below the root, unless it is there. Its parent is there, and
    /// nothing runs.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn make_directory(&self, path: &str) -> Result<(), SetupFailure> {
        let owner = self.owner();
        let made = match mkdirat(self.root(), path, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {
                let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
                fchownat(self.root(), path, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
            }
            Err(errno) => Err(errno),
        };
        made.map_err(|errno| SetupFailure::from_errno(format!("make {path}"), errno as i32))
    }

    /// Opens the directory `path`, of names below the root, without following links.
    ///
    /// # Errors
    /// There is no directory.
    pub fn open_directory(&self, path: &str) -> Result<OwnedFd, SetupFailure> {
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        openat2(self.root(), path, how)
            .map_err(|errno| SetupFailure::from_errno(format!("open {path}"), errno as i32))
    }
}

impl FrozenFiles {
    /// A writable copy with room for `room` besides these files.
    ///
    /// # Errors
    /// A step of making it failed.
    pub fn fork(&self, room: DiskSpace) -> Result<PhaseTree, SetupFailure> {
        let TreeMakers { layers, storage, executor, .. } = &*self.makers.0;
        let host_id = match self.chain.bound_to() {
            Some(_) => Arc::clone(&self.host_id),
            None => Arc::new(executor.acquire_host_id()?),
        };
        let room = room.plus(self.chain.used());
        let fs = layers.fork(&self.chain, room, *storage, host_id.id()).map_err(failure)?;
        Ok(PhaseTree { fs, host_id, makers: self.makers.clone(), others: Vec::new(), tools: None })
    }

    /// Shows the files, to be read, with their owners on disk.
    ///
    /// # Errors
    /// The kernel refused a step.
    pub fn view(&self) -> Result<FrozenView, SetupFailure> {
        self.makers.0.layers.view(&self.chain).map_err(failure)
    }

    /// Shows what was written above `base`, of which this is a copy: its newest layer by itself. `None` if
    /// nothing was written.
    ///
    /// # Errors
    /// The kernel refused a step.
    pub fn view_above(&self, base: &Self) -> Result<Option<FrozenView>, SetupFailure> {
        let above = self.chain.above(&base.chain);
        if above.depth() == 0 {
            return Ok(None);
        }
        self.makers.0.layers.view(&above).map(Some).map_err(failure)
    }

    /// Their layers.
    pub fn chain(&self) -> &FrozenChain {
        &self.chain
    }

    /// What they use.
    pub fn used(&self) -> DiskSpace {
        self.chain.used()
    }
}

impl AsFd for PhaseTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root()
    }
}

impl fmt::Debug for TreeMakers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TreeMakers").field("storage", &self.storage).finish_non_exhaustive()
    }
}

fn failure(error: LayerError) -> SetupFailure {
    match error {
        LayerError::Failed(failure) => failure,
        other => SetupFailure::from_words("file system", other.to_string()),
    }
}
