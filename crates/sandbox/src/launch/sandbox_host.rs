//! Opens a host for sandboxes, and holds what every sandbox on it shares.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::controls::controls;
use super::unprivileged;
use crate::cgroup;
use crate::cgroup::CgroupTree;
use crate::files::layers::{RootLayers, mappable_or_copy};
use crate::files::masked_paths::MaskedPaths;
use crate::files::programs;
use crate::files::programs::LocatedProgram;
use crate::files::root_directory::RootDirectory;
use crate::files::sandbox_fs::SandboxFs;
use crate::files::unowned::UnownedProbe;
use crate::host::abandoned::{SWEEP_WAIT, sweep_abandoned};
use crate::host::hard_limits::HardLimits;
use crate::host::root_source::{
    RootSource, has_message_queues, init_filter, last_capability, layout_of, lock_filter,
    mountpoint, user_namespaces_are_doubtful,
};
use crate::host::state::{Instance, StateDirectory};
use crate::host::weakened;
use crate::host::weakened::Wall;
use crate::landlock::Landlock;
use crate::locks::LockFilter;
use crate::plan::rootfs::{MaskedPath, RootLayout};
use crate::pool::host_id::HostId;
use crate::pool::idmap::IdMaps;
use crate::pool::net_namespaces::NetNamespaces;
use crate::supervise::cleanup::Cleanup;
use crate::supervise::cleanup::queue::BACKLOG_MAX;
use crate::supervise::cleanup::undying::UNDYING_MAX;
use crate::supervise::kill_count::KillFailures;
use crate::sys;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    Enforced, Limits, ProgramFile, RunSpec, SandboxMetrics, SetupFailure, StdinSource, SweepCounts,
    WorkspaceFill,
};
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::profile::Profile;

/// How sandboxes are created on this host.
#[derive(Debug)]
pub struct SandboxConfig {
    /// The profile of every sandbox.
    pub profile: Profile,
    /// The root of every sandbox.
    pub root: RootSource,
    /// Host paths of the service itself, which sandboxes never show.
    pub private: Vec<PathBuf>,
    /// Whether a host that lacks any control is refused. Otherwise reports name the missing controls.
    pub strict: bool,
}

/// What is created for the first sandbox while the host is still being examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefetch {
    Nothing,
    NetNamespace,
}

/// Creates sandboxes on this host. Everything that does not depend on a run is looked up once, when
/// it is opened.
#[derive(Debug)]
pub struct SandboxHost {
    pub(crate) cleanup: Cleanup,
    pub(crate) kill_failures: KillFailures,
    pub(crate) swept: SweepCounts,
    pub(crate) net_namespaces: Arc<NetNamespaces>,
    pub(crate) profile: Profile,
    pub(crate) locks: LockFilter,
    pub(crate) init_filter: Filter,
    pub(crate) layout: RootLayout,
    pub(crate) masked: MaskedPaths,
    /// The user namespace that shown trees are mounted with, if the host has ID-mapped mounts.
    pub(crate) unowned: Option<Arc<OwnedFd>>,
    pub(crate) root: RootDirectory,
    pub(crate) root_is_given: bool,
    pub(crate) layers: RootLayers,
    pub(crate) state: StateDirectory,
    pub(crate) instance: Instance,
    pub(crate) cgroups: CgroupTree,
    pub(crate) mountpoint: CString,
    pub(crate) last_capability: u32,
    pub(crate) user_namespace: bool,
    pub(crate) unprivileged: bool,
    pub(crate) landlock: Option<Landlock>,
    pub(crate) message_queues: bool,
    pub(crate) hard_limits: HardLimits,
    pub(crate) idmaps: IdMaps,
    pub(crate) started: AtomicU64,
    pub(crate) not_enforced: Vec<String>,
    pub(crate) strict: bool,
}

impl SandboxHost {
    /// Removes what dead servers left, examines the host, and tries a whole sandbox. A host that
    /// cannot create one is refused here, with the step that failed. On a host without user
    /// namespaces, sandboxes do without.
    pub fn open(config: SandboxConfig) -> Result<Self, SetupFailure> {
        let mut sandbox = Self::open_untried(config, Prefetch::Nothing)?;
        if let Err(with) = sandbox.try_workspace(WorkspaceFill::Own) {
            if sandbox.unprivileged {
                // Without it, a program would be root in the user namespace that owns its mounts.
                return Err(with);
            }
            sandbox.user_namespace = false;
            // If this fails too, the user namespace was not the reason: report the first failure.
            sandbox.try_workspace(WorkspaceFill::Own).map_err(|_| with.clone())?;
            sandbox
                .not_enforced
                .push(format!("uid: no user namespace ({with}); programs see their host uid"));
            sandbox.refuse_if_strict()?;
        }
        Ok(sandbox)
    }

    /// As [`SandboxHost::open`], for a caller that creates one sandbox, which is then the trial. Only a
    /// host that may refuse user namespaces is tried before.
    pub fn open_for_one(config: SandboxConfig) -> Result<Self, SetupFailure> {
        if user_namespaces_are_doubtful() {
            Self::open(config)
        } else {
            Self::open_untried(config, Prefetch::NetNamespace)
        }
    }

    fn open_untried(config: SandboxConfig, prefetch: Prefetch) -> Result<Self, SetupFailure> {
        let failed =
            |step: &'static str| move |error: std::io::Error| SetupFailure::from_io(step, &error);
        let unprivileged = unprivileged::is_active()?;
        let state = StateDirectory::open().map_err(failed("state directory"))?;
        let swept = sweep_abandoned(&state).map_err(failed("sweep"))?;
        let instance = state.register().map_err(failed("state directory"))?;
        let mut private = config.private;
        private.push(state.path().to_owned());
        let root = RootDirectory::open(config.root.path()).map_err(failed("read root"))?;
        let (mut layout, mut masked) = layout_of(&config.root, &root, &config.profile, &private)
            .map_err(failed("read root"))?;
        let net_namespaces = Arc::new(NetNamespaces::open().map_err(failed("net namespace"))?);
        let (trees, mount_points) = masked.trees().map_err(failed("read mounts"))?;
        let probe = if unprivileged {
            UnownedProbe::impossible(trees.len())
        } else {
            let wanted = prefetch == Prefetch::NetNamespace;
            let then = wanted.then(|| net_namespaces.prefetch_one());
            UnownedProbe::begin(trees, mount_points, then).map_err(failed("thread"))?
        };
        let cgroups = CgroupTree::open(instance.id())?;
        instance.record_cgroups(&cgroups.directories()).map_err(failed("state directory"))?;
        let unowned = probe.finish();
        layout.show_unowned(&unowned.trees);
        masked.trust_unowned(&unowned.trees);
        let mut sandbox = Self {
            cleanup: Cleanup::default(),
            kill_failures: KillFailures::default(),
            swept,
            net_namespaces,
            layout,
            masked,
            unowned: unowned.namespace,
            root,
            root_is_given: config.root != RootSource::Host,
            layers: RootLayers::default(),
            profile: config.profile,
            locks: lock_filter()?,
            init_filter: init_filter()?,
            state,
            instance,
            cgroups,
            mountpoint: mountpoint().map_err(failed("mount point"))?,
            last_capability: last_capability().map_err(failed("read cap_last_cap"))?,
            user_namespace: unprivileged || !weakened::lacks(Wall::User),
            unprivileged,
            landlock: None,
            message_queues: has_message_queues(),
            hard_limits: HardLimits::read().map_err(failed("read limits"))?,
            idmaps: IdMaps::default(),
            started: AtomicU64::new(0),
            not_enforced: Vec::new(),
            strict: config.strict,
        };
        sandbox.note_missing_controls();
        sandbox.refuse_if_strict()?;
        Ok(sandbox)
    }

    fn note_missing_controls(&mut self) {
        if self.unprivileged {
            self.not_enforced.push(unprivileged::NOT_ENFORCED.to_owned());
        }
        let support = self.cgroups.support();
        for (name, control) in
            [("memory", &support.memory), ("processes", &support.processes), ("cpu", &support.cpu)]
        {
            if control.by.is_none() {
                let reason = control.reason.as_deref().unwrap_or("no cgroup controller");
                self.not_enforced.push(format!("{name}: {reason}"));
            }
        }
        match Landlock::from_answer(sys::landlock_abi()) {
            Ok(landlock) => self.landlock = Some(landlock),
            Err(reason) => self.not_enforced.push(format!("landlock: {reason}")),
        }
    }

    fn refuse_if_strict(&self) -> Result<(), SetupFailure> {
        if self.strict && !self.not_enforced.is_empty() {
            return Err(SetupFailure::from_words("strict isolation", self.not_enforced.join("; ")));
        }
        Ok(())
    }

    /// Creates a whole sandbox with this kind of workspace, up to the point where a program would be
    /// executed.
    pub fn try_workspace(&self, workspace: WorkspaceFill) -> Result<(), SetupFailure> {
        let limits = Limits::default();
        let host_id = Arc::new(self.host_id()?);
        let fs = self.create_fs(&limits, &host_id)?;
        let spec = RunSpec {
            argv: Vec::new(),
            program: ProgramFile::Named,
            without_shell: None,
            env: Vec::new(),
            workdir: "/workspace".into(),
            stdin: StdinSource::Null,
            limits,
            workspace,
            binds: Vec::new(),
            tmpfs: Vec::new(),
        };
        let (mut running, _) = self.launch(spec, fs, Retained::of(host_id), Instant::now())?;
        running.resume()?;
        running.run_trial()
    }

    /// Starts the thread that cleans up dead sandboxes after their reports are sent.
    pub fn start_cleanup_thread(&self) -> Result<(), SetupFailure> {
        self.cleanup.start(&self.net_namespaces)
    }

    /// Keeps network namespaces ready for this many sandboxes from now on.
    pub fn keep_net_namespaces(&self, count: usize) -> Result<(), SetupFailure> {
        if self.unprivileged { Ok(()) } else { self.net_namespaces.keep(count) }
    }

    /// A host uid, for one sandbox at a time.
    pub fn host_id(&self) -> Result<HostId, SetupFailure> {
        if self.unprivileged {
            return Ok(HostId::shared());
        }
        HostId::acquire(&self.state).map_err(|error| SetupFailure::from_io("host uid", &error))
    }

    /// Creates the file system of one sandbox, to be filled before [`SandboxHost::start`].
    pub fn create_fs(&self, limits: &Limits, host_id: &HostId) -> Result<SandboxFs, SetupFailure> {
        SandboxFs::create(&self.layout, limits, host_id.id())
    }

    /// The controls of every sandbox on this host.
    pub fn enforced(&self) -> Enforced {
        let support = self.cgroups.support();
        let version =
            |control: &cgroup::ControlSupport| control.by.map(cgroup::CgroupVersion::word);
        Enforced {
            namespaces: vec!["pid", "mount", "ipc", "uts", "net", "cgroup"],
            seccomp: Some(self.profile.name.clone()),
            memory: version(&support.memory),
            processes: Some(match version(&support.processes) {
                Some("cgroup2") => "cgroup2+rlimit",
                Some(_) => "cgroup1+rlimit",
                None => "rlimit",
            }),
            disk: Some("tmpfs"),
            cpu: version(&support.cpu),
        }
    }

    /// Whether a user namespace gives programs uid 10001. Otherwise they see their host uid.
    pub fn maps_users(&self) -> bool {
        self.user_namespace
    }

    /// What this host does not enforce, with the reasons.
    pub fn not_enforced(&self) -> &[String] {
        &self.not_enforced
    }

    /// Gives every sandbox a writable layer above each of these directories of its root. Returns the
    /// directories that cannot have one, with the reasons.
    pub fn add_layers(&mut self, paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
        let mut refused = Vec::new();
        for path in paths {
            if let Err(reason) = self.add_layer(path) {
                refused.push((path.clone(), reason));
            }
        }
        refused
    }

    fn add_layer(&mut self, path: &Path) -> Result<(), String> {
        if self.unprivileged {
            return Err("an overlay takes privileges".to_owned());
        }
        let directory = self.layers.open(&self.root, &self.layout, path)?;
        let tenant = self.host_id().map_err(|failure| failure.to_string())?;
        let copy = self.instance.directory().join(format!("layer{}", self.layers.len()));
        let directory = mappable_or_copy(directory, &self.idmaps, tenant.id(), &copy)
            .map_err(|error| error.to_string())?;
        let layout = self.layout.clone();
        self.layers.push(directory, path, &mut self.layout);
        self.try_workspace(WorkspaceFill::Own).map_err(|failure| {
            self.layers.pop();
            self.layout = layout;
            failure.to_string()
        })
    }

    /// Locates the file that `path`, absolute, leads to in a sandbox without binds: a regular file
    /// with an execute bit. Returns `None` if sandboxes do not show it.
    pub fn locate_program(&self, path: &Path) -> Result<Option<LocatedProgram>, SetupFailure> {
        programs::locate_program(&self.root, &self.masked, path)
    }

    /// The bytes that `program` takes of its sandbox's file system: more than 0 if it has lost its
    /// name, and so is copied.
    pub fn copied_bytes(&self, program: &ProgramFile) -> Result<u64, SetupFailure> {
        programs::copied_bytes(program)
    }

    /// Copies at most `bytes_max` of `program` into `fs`, unless that is 0; returns what to execute.
    pub fn keep_program(
        &self,
        program: ProgramFile,
        bytes_max: u64,
        fs: &SandboxFs,
    ) -> Result<ProgramFile, SetupFailure> {
        programs::keep_program(program, bytes_max, fs)
    }

    /// The current figures.
    pub fn figures(&self) -> SandboxMetrics {
        SandboxMetrics {
            kill_failures: self.kill_failures.count(),
            undying: self.cleanup.undying().count(),
            undying_max: UNDYING_MAX,
            cleanup_backlog: self.cleanup.backlog(),
            cleanup_backlog_max: BACKLOG_MAX,
            swept: self.swept,
            controls: controls(self.not_enforced()),
        }
    }

    /// Lowers `limits` to what can be set; returns the controls that are missing.
    pub(crate) fn clamp(&self, limits: &mut Limits) -> Vec<String> {
        let mut not_enforced = self.not_enforced.clone();
        self.hard_limits.clamp(limits, &mut not_enforced);
        not_enforced
    }

    /// The masked paths of a sandbox without binds, as of now.
    pub(crate) fn masked_without_binds(&self) -> Result<Vec<MaskedPath>, SetupFailure> {
        self.masked.for_run(&[])
    }
}

impl Drop for SandboxHost {
    fn drop(&mut self) {
        // One deadline for all of the cleanup.
        let deadline = Deadline::after(SWEEP_WAIT);
        std::mem::take(&mut self.cleanup).close(deadline);
        // Groups that remain stay registered, and the next start sweeps them.
        let closed = self.cgroups.close(deadline).map_err(|error| error.to_string());
        let closed =
            closed.and_then(|()| self.instance.unregister().map_err(|error| error.to_string()));
        if let Err(error) = closed {
            log::error!("close sandbox {}: {error}", self.instance.id());
        }
    }
}
