//! Creates sandboxes on a host, and holds what they share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::controls::{controls, enforced, missing_controls};
use super::plan_context::{PlanContext, PlannedSandbox, ProgramTime};
use super::running::{PreparedSandbox, RunningSandbox};
use super::unprivileged;
use crate::cgroup;
use crate::cgroup::{CgroupTree, SandboxGroup};
use crate::files::layers::mappable_or_copy;
use crate::files::programs;
use crate::files::programs::LocatedProgram;
use crate::files::sandbox_fs::SandboxFs;
use crate::files::unowned::UnownedProbe;
use crate::files::watched_disk::WatchedDisk;
use crate::host::abandoned::{SWEEP_WAIT, sweep_abandoned};
use crate::host::open_hosts::{InFlightGuard, count_open};
use crate::host::root_source::{RootSource, SandboxRoot, user_namespaces_are_doubtful};
use crate::host::state::{Instance, StateDirectory};
use crate::landlock::Landlock;
use crate::launch;
use crate::launch::Launch;
use crate::plan::mounted::mounted_layout;
use crate::plan::rootfs::MaskedPath;
use crate::plan::sent_program::SentProgram;
use crate::pool::host_id::HostId;
use crate::pool::net_namespaces::NetNamespaces;
use crate::supervise::SETUP_WAIT;
use crate::supervise::cleanup::Cleanup;
use crate::supervise::cleanup::queue::BACKLOG_MAX;
use crate::supervise::cleanup::undying::UNDYING_MAX;
use crate::supervise::kill_count::KillFailures;
use crate::sys;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{
    EgressService, Enforced, Limits, MountedWorkspace, ProgramFile, RunSpec, SandboxMetrics,
    SetupFailure, SweepCounts, WorkspaceFill,
};
use cofferdam_seccomp::profile::Profile;

pub(super) const CROWDED: &str = "too many killed sandboxes are still alive";

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

/// For one sandbox, its network namespace is created while the host is still being examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Service,
    OneSandbox,
    OnlySandbox,
}

/// Creates sandboxes on this host. Everything that does not depend on a run is looked up once, when
/// it is opened.
#[derive(Debug)]
pub struct SandboxHost {
    pub(super) plans: PlanContext,
    pub(super) cleanup: Cleanup,
    pub(super) kill_failures: KillFailures,
    swept: SweepCounts,
    pub(super) net_namespaces: Arc<NetNamespaces>,
    state: StateDirectory,
    instance: Instance,
    pub(super) cgroups: CgroupTree,
    pub(super) started: AtomicU64,
    not_enforced: Vec<String>,
    strict: bool,
    is_only: bool,
    _open: InFlightGuard,
}

impl SandboxHost {
    /// Removes what dead servers left, examines the host, and tries a whole sandbox. A host that
    /// cannot create one is refused here, with the step that failed. On a host without user
    /// namespaces, sandboxes do without.
    pub fn open(config: SandboxConfig) -> Result<Self, SetupFailure> {
        let mut sandbox = Self::open_untried(config, Purpose::Service)?;
        if let Err(with) = sandbox.try_workspace(WorkspaceFill::Own) {
            if sandbox.plans.unprivileged {
                // Without it, a program would be root in the user namespace that owns its mounts.
                return Err(with);
            }
            sandbox.plans.user_namespace = false;
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
    /// host that may refuse user namespaces is tried before. With `is_only` that sandbox shows no file of
    /// the service (no layers, no certificates), and a second one fails.
    pub fn open_for_one(config: SandboxConfig, is_only: bool) -> Result<Self, SetupFailure> {
        if user_namespaces_are_doubtful() {
            return Self::open(config);
        }
        Self::open_untried(config, if is_only { Purpose::OnlySandbox } else { Purpose::OneSandbox })
    }

    fn open_untried(config: SandboxConfig, purpose: Purpose) -> Result<Self, SetupFailure> {
        let failed =
            |step: &'static str| move |error: std::io::Error| SetupFailure::from_io(step, &error);
        let unprivileged = unprivileged::is_active()?;
        let state = StateDirectory::open().map_err(failed("state directory"))?;
        let swept = sweep_abandoned(&state).map_err(failed("sweep"))?;
        let is_only = purpose == Purpose::OnlySandbox;
        let instance = if is_only { state.register_alone() } else { state.register() };
        let instance = instance.map_err(failed("state directory"))?;
        let mut private = config.private;
        private.push(state.path().to_owned());
        let root = SandboxRoot::open(&config.root, &config.profile, &private)
            .map_err(failed("read root"))?;
        let net_namespaces = Arc::new(NetNamespaces::open().map_err(failed("net namespace"))?);
        let (trees, mount_points) = root.masked.trees().map_err(failed("read mounts"))?;
        let probe = if unprivileged {
            UnownedProbe::impossible(trees.len())
        } else {
            let wanted = purpose != Purpose::Service;
            let then = wanted.then(|| net_namespaces.prefetch_one());
            UnownedProbe::begin(trees, mount_points, then).map_err(failed("thread"))?
        };
        let cgroups = CgroupTree::open(instance.id())?;
        instance.record_cgroups(&cgroups.directories()).map_err(failed("state directory"))?;
        let mut plans = PlanContext::new(config.profile, root, probe.finish(), unprivileged)?;
        plans.groups_bound_processes = cgroups.support().processes.by.is_some();
        plans.directory = instance.directory().to_owned();
        let mut sandbox = Self {
            plans,
            cleanup: Cleanup::default(),
            kill_failures: KillFailures::default(),
            swept,
            net_namespaces,
            state,
            instance,
            cgroups,
            started: AtomicU64::new(0),
            not_enforced: Vec::new(),
            strict: config.strict,
            is_only,
            _open: count_open(),
        };
        sandbox.note_missing_controls();
        sandbox.refuse_if_strict()?;
        Ok(sandbox)
    }

    fn note_missing_controls(&mut self) {
        if self.plans.unprivileged {
            self.not_enforced.push(unprivileged::NOT_ENFORCED.to_owned());
        }
        self.not_enforced.extend(missing_controls(self.cgroups.support()));
        match Landlock::from_answer(sys::landlock_abi()) {
            Ok(landlock) => self.plans.landlock = Some(landlock),
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
        let spec =
            RunSpec { workdir: "/workspace".into(), limits, workspace, ..RunSpec::default() };
        let spec = (spec, ProgramTime::Now);
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
        if self.plans.unprivileged { Ok(()) } else { self.net_namespaces.keep(count) }
    }

    /// A host uid, for one sandbox at a time.
    pub fn host_id(&self) -> Result<HostId, SetupFailure> {
        if self.plans.unprivileged {
            return Ok(HostId::shared());
        }
        acquire_host_id(&self.state)
    }

    /// Creates the file system of one sandbox, to be filled before [`SandboxHost::start`].
    pub fn create_fs(&self, limits: &Limits, host_id: &HostId) -> Result<SandboxFs, SetupFailure> {
        SandboxFs::create(&self.plans.root.layout, limits, host_id.id())
    }

    /// Whether so many killed sandboxes are still alive that no new one is created.
    pub fn is_crowded(&self) -> bool {
        self.cleanup.undying().is_full()
    }

    /// Creates the sandbox around `fs` and starts its program, as the host id that `fs` was created
    /// for. The sandbox dies with the calling thread, and keeps `retained`, which holds the host id,
    /// until it is dead.
    pub fn start(
        &self,
        spec: RunSpec,
        fs: SandboxFs,
        retained: Retained,
        began: Instant,
    ) -> Result<RunningSandbox, SetupFailure> {
        if spec.argv.is_empty() {
            return Err(SetupFailure::from_words("exec", "no program given"));
        }
        let (mut running, _) = self.launch((spec, ProgramTime::Now), fs, retained, began)?;
        running.resume()?;
        Ok(running)
    }

    /// Creates the sandbox around `fs` up to the point where its program would begin. Of the limits,
    /// the wall-clock time and the CPU seconds may still change. The sandbox dies with the calling
    /// thread, and keeps `retained` until it is dead.
    pub fn prepare(
        &self,
        spec: RunSpec,
        fs: SandboxFs,
        retained: Retained,
    ) -> Result<PreparedSandbox, SetupFailure> {
        self.prepare_at((spec, ProgramTime::Now), fs, retained)
    }

    /// As [`SandboxHost::prepare`], for a program that is sent by [`SandboxHost::resume`]. Nothing of
    /// `spec` that a [`SentProgram`] has is used.
    pub fn prepare_without_program(
        &self,
        spec: RunSpec,
        fs: SandboxFs,
        retained: Retained,
    ) -> Result<PreparedSandbox, SetupFailure> {
        self.prepare_at((spec, ProgramTime::AtResume), fs, retained)
    }

    fn prepare_at(
        &self,
        (spec, time): (RunSpec, ProgramTime),
        fs: SandboxFs,
        retained: Retained,
    ) -> Result<PreparedSandbox, SetupFailure> {
        let place = match &spec.workspace {
            WorkspaceFill::Mounted(mounted) => Some(mounted.path.clone()),
            WorkspaceFill::Own | WorkspaceFill::Overlay { .. } => None,
        };
        let (mut running, masked) = self.launch((spec, time), fs, retained, Instant::now())?;
        running.await_prepared(Deadline::after(SETUP_WAIT))?;
        Ok(PreparedSandbox { running, masked, place })
    }

    /// Resumes the program of `prepared`, or sends `program` to one that was prepared without, with the
    /// times of `limits` and what `egress` lets it reach; its report counts the preparation from
    /// `began`. The sandbox keeps `retained` too.
    pub fn resume(
        &self,
        prepared: PreparedSandbox,
        program: Option<SentProgram>,
        mut limits: Limits,
        retained: Retained,
        began: Instant,
        egress: Option<&dyn EgressService>,
    ) -> Result<RunningSandbox, SetupFailure> {
        let not_enforced = self.clamp(&mut limits);
        let PreparedSandbox { mut running, .. } = prepared;
        running.live.retained.extend(retained);
        running.limits = limits;
        running.prepare_began = began;
        running.open_egress(egress)?;
        match program {
            Some(program) => running.resume_with(program)?,
            None => running.resume()?,
        }
        Ok(running.enforcing(self.enforced(), not_enforced))
    }

    /// Whether `prepared` is alive, and masks what a sandbox created now would mask.
    pub fn is_usable(&self, prepared: &PreparedSandbox) -> Result<bool, SetupFailure> {
        let alive = !prepared.running.is_dead();
        let place = prepared.place.as_ref();
        Ok(alive && self.plans.masked_without_binds(place)? == prepared.masked)
    }

    /// Creates a sandbox whose program waits to be resumed, and returns its masked paths. Without a
    /// program it ends where the program would begin.
    fn launch(
        &self,
        (mut spec, time): (RunSpec, ProgramTime),
        fs: SandboxFs,
        retained: Retained,
        began: Instant,
    ) -> Result<(RunningSandbox, Vec<MaskedPath>), SetupFailure> {
        if self.is_crowded() {
            return Err(SetupFailure::from_words("start", CROWDED));
        }
        let not_enforced = self.clamp(&mut spec.limits);
        let group = self.create_group(&spec.limits)?;
        let net = match weakened::lacks(Wall::Net) || self.plans.unprivileged {
            true => None,
            false => Some(self.net_namespaces.take()?),
        };
        let PlannedSandbox { plan, masked, extra, terminal } =
            self.plans.plan((&spec, time), &fs, &group, net.as_ref())?;
        let mut running = Launch {
            plan,
            namespaces: launch::namespaces(self.plans.unprivileged),
            fs: Some(fs),
            group: Some(group),
            net,
            extra: extra.raw(),
            stdin: spec.stdin,
            terminal,
            limits: spec.limits,
            excess_output: spec.excess_output,
            prepare_began: began,
            retained,
            cleanup: self.cleanup.handle(),
        }
        .spawn_init()?;
        if let WorkspaceFill::Mounted(MountedWorkspace { workspace, .. }) = spec.workspace {
            running.live.resources.workspace = Some(WatchedDisk::new(workspace));
        }
        let mut running = running.counting_kills(&self.kill_failures);
        running.open_egress(spec.egress.as_deref())?;
        Ok((running.enforcing(self.enforced(), not_enforced), masked))
    }

    /// Creates a cgroup under a name never used before: one that could not be removed must not
    /// block the next.
    fn create_group(&self, limits: &Limits) -> Result<SandboxGroup, SetupFailure> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{number}", cgroup::SANDBOX_PREFIX);
        if self.is_only {
            return self.cgroups.create_only(&name, limits);
        }
        self.cgroups.create(&name, limits)
    }

    /// Creates the file system of one sandbox around a mounted workspace: for what is neither in the
    /// workspace nor in `/tmp`, within bounds of its own. A terminal needs mount points there.
    pub fn create_fs_around(
        &self,
        workspace: &MountedWorkspace,
        has_terminal: bool,
        host_id: &HostId,
    ) -> Result<SandboxFs, SetupFailure> {
        let limits = Limits {
            disk_bytes_max: workspace.own_bytes_max,
            disk_inodes_max: workspace.own_inodes_max,
            ..Limits::default()
        };
        let layout = mounted_layout(
            &self.plans.root.layout,
            &workspace.path,
            &workspace.others,
            has_terminal,
        );
        SandboxFs::create(&layout, &limits, host_id.id())
    }

    /// The controls of every sandbox on this host.
    pub fn enforced(&self) -> Enforced {
        enforced(&self.plans.profile, self.cgroups.support())
    }

    /// Whether a user namespace gives programs uid 10001. Otherwise they see their host uid.
    pub fn maps_users(&self) -> bool {
        self.plans.user_namespace
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
        if self.plans.unprivileged {
            return Err("an overlay takes privileges".to_owned());
        }
        let PlanContext { root, idmaps, .. } = &mut self.plans;
        let directory = root.layers.open(&root.directory, &root.layout, path)?;
        let tenant = acquire_host_id(&self.state).map_err(|failure| failure.to_string())?;
        let copy = self.instance.directory().join(format!("layer{}", root.layers.len()));
        let directory = mappable_or_copy(directory, idmaps, tenant.id(), &copy)
            .map_err(|error| error.to_string())?;
        let layout = root.layout.clone();
        root.layers.push(directory, path, &mut root.layout);
        self.try_workspace(WorkspaceFill::Own).map_err(|failure| {
            let root = &mut self.plans.root;
            root.layers.pop();
            root.layout = layout;
            failure.to_string()
        })
    }

    /// Locates the file that `path`, absolute, leads to in a sandbox without binds: a regular file
    /// with an execute bit. Returns `None` if sandboxes do not show it.
    pub fn locate_program(&self, path: &Path) -> Result<Option<LocatedProgram>, SetupFailure> {
        programs::locate_program(&self.plans.root.directory, &self.plans.root.masked, path)
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

    /// The current metrics.
    pub fn metrics(&self) -> SandboxMetrics {
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
    pub(super) fn clamp(&self, limits: &mut Limits) -> Vec<String> {
        let mut not_enforced = self.not_enforced.clone();
        self.plans.hard_limits.clamp(limits, &mut not_enforced);
        not_enforced
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

fn acquire_host_id(state: &StateDirectory) -> Result<HostId, SetupFailure> {
    HostId::acquire(state).map_err(|error| SetupFailure::from_io("host uid", &error))
}
