//! A sandbox on this host: what is looked up once, and boxes made from it.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::running::Running;
use super::unprivileged;
use crate::cgroup;
use crate::cgroup::CgroupTree;
use crate::files::box_fs::BoxFs;
use crate::files::layers::Layer;
use crate::files::masked_paths::Covers;
use crate::files::root_directory::RootDirectory;
use crate::files::unowned::Finding;
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
use crate::plan::identity::HostId;
use crate::plan::rootfs::{Covered, RootLayout};
use crate::pool::idmap::IdMaps;
use crate::pool::net_namespaces::NetNamespaces;
use crate::supervise::cleanup::Cleanup;
use crate::supervise::kill_count::KillFailures;
use crate::sys;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    Enforced, Limits, ProgramFile, RunSpec, SetupFailure, StdinSource, SweepCounts, WorkspaceFill,
};
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::profile::Profile;

/// What a sandbox is made from.
#[derive(Debug)]
pub struct SandboxConfig {
    /// The profile of every box.
    pub profile: Profile,
    /// The root of every box.
    pub root: RootSource,
    /// Host paths of the service itself, never shown.
    pub private: Vec<PathBuf>,
    /// Refuse a host that lacks any control, instead of saying which it lacks.
    pub strict: bool,
}

/// What is made for the first box while the host is still being looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    Nothing,
    NetNamespace,
}

/// Makes boxes on this host. Everything that does not depend on a run was
/// looked up when it was opened.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) cleanup: Cleanup,
    pub(crate) kill_failures: KillFailures,
    pub(crate) swept: SweepCounts,
    pub(crate) net_namespaces: Arc<NetNamespaces>,
    pub(crate) profile: Profile,
    pub(crate) locks: LockFilter,
    pub(crate) init_filter: Filter,
    pub(crate) layout: RootLayout,
    pub(crate) covers: Covers,
    /// The user namespace that shown trees are mounted with, where they can be.
    pub(crate) unowned: Option<Arc<OwnedFd>>,
    pub(crate) root: RootDirectory,
    pub(crate) root_is_given: bool,
    pub(crate) layers: Vec<Layer>,
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
    pub(crate) boxes_started: AtomicU64,
    pub(crate) not_enforced: Vec<String>,
    pub(crate) strict: bool,
}

impl Sandbox {
    /// Clears away what dead servers left, looks at the host, and tries a
    /// whole box. A host that cannot make one is refused here, with the step;
    /// one that lacks a user namespace is made do without.
    pub fn open(config: SandboxConfig) -> Result<Self, SetupFailure> {
        let mut sandbox = Self::open_untried(config, Ahead::Nothing)?;
        if let Err(with) = sandbox.try_fill(WorkspaceFill::Own) {
            if sandbox.unprivileged {
                // A program would be the root of the namespace that its walls are made in.
                return Err(with);
            }
            sandbox.user_namespace = false;
            // Where that was not the reason, the first failure is the one to tell.
            sandbox.try_fill(WorkspaceFill::Own).map_err(|_| with.clone())?;
            sandbox
                .not_enforced
                .push(format!("uid: no user namespace ({with}); programs see their host uid"));
            sandbox.refuse_if_strict()?;
        }
        Ok(sandbox)
    }

    /// As [`Sandbox::open`] for whoever makes one box, which is then the trial.
    /// Only a host that may not let user namespaces be made is tried before.
    pub fn open_for_one(config: SandboxConfig) -> Result<Self, SetupFailure> {
        if user_namespaces_are_doubtful() {
            Self::open(config)
        } else {
            Self::open_untried(config, Ahead::NetNamespace)
        }
    }

    fn open_untried(config: SandboxConfig, ahead: Ahead) -> Result<Self, SetupFailure> {
        let failed =
            |step: &'static str| move |error: std::io::Error| SetupFailure::from_io(step, &error);
        let unprivileged = unprivileged::is_settled()?;
        let state = StateDirectory::open().map_err(failed("state directory"))?;
        let swept = sweep_abandoned(&state).map_err(failed("sweep"))?;
        let instance = state.register().map_err(failed("state directory"))?;
        let mut private = config.private;
        private.push(state.path().to_owned());
        let root = RootDirectory::open(config.root.path()).map_err(failed("read root"))?;
        let (mut layout, mut covers) = layout_of(&config.root, &root, &config.profile, &private)
            .map_err(failed("read root"))?;
        let net_namespaces = Arc::new(NetNamespaces::open().map_err(failed("net namespace"))?);
        let (trees, mount_points) = covers.trees().map_err(failed("read mounts"))?;
        let finding = match unprivileged {
            true => Finding::impossible(trees.len()),
            false => {
                let promise = (ahead == Ahead::NetNamespace).then(|| net_namespaces.promise_one());
                Finding::begin(trees, mount_points, promise).map_err(failed("thread"))?
            }
        };
        let cgroups = CgroupTree::open(instance.id())?;
        instance.record_cgroups(&cgroups.directories()).map_err(failed("state directory"))?;
        let unowned = finding.finish();
        layout.show_unowned(&unowned.trees);
        covers.trust_unowned(&unowned.trees);
        let mut sandbox = Self {
            cleanup: Cleanup::default(),
            kill_failures: KillFailures::default(),
            swept,
            net_namespaces,
            layout,
            covers,
            unowned: unowned.namespace,
            root,
            root_is_given: config.root != RootSource::Host,
            layers: Vec::new(),
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
            boxes_started: AtomicU64::new(0),
            not_enforced: Vec::new(),
            strict: config.strict,
        };
        if unprivileged {
            sandbox.not_enforced.push(unprivileged::NOT_ENFORCED.to_owned());
        }
        sandbox.note_missing_controllers();
        match Landlock::from_answer(sys::landlock_abi()) {
            Ok(landlock) => sandbox.landlock = Some(landlock),
            Err(reason) => sandbox.not_enforced.push(format!("landlock: {reason}")),
        }
        sandbox.refuse_if_strict()?;
        Ok(sandbox)
    }

    fn note_missing_controllers(&mut self) {
        let support = self.cgroups.support();
        for (name, control) in
            [("memory", &support.memory), ("processes", &support.processes), ("cpu", &support.cpu)]
        {
            if control.by.is_none() {
                let reason = control.reason.as_deref().unwrap_or("no cgroup controller");
                self.not_enforced.push(format!("{name}: {reason}"));
            }
        }
    }

    fn refuse_if_strict(&self) -> Result<(), SetupFailure> {
        if self.strict && !self.not_enforced.is_empty() {
            return Err(SetupFailure::from_words("strict isolation", self.not_enforced.join("; ")));
        }
        Ok(())
    }

    /// Makes a whole box whose workspace is filled so, up to the point where a
    /// program would be executed.
    pub fn try_fill(&self, workspace: WorkspaceFill) -> Result<(), SetupFailure> {
        let limits = Limits::default();
        let host_id = Arc::new(self.host_id()?);
        let fs = self.box_fs(&limits, &host_id)?;
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
        running.let_go()?;
        running.try_out()
    }

    /// Has what dead boxes leave cleared away behind their reports from now on.
    pub fn dispose_behind(&self) -> Result<(), SetupFailure> {
        self.cleanup.start(&self.net_namespaces)
    }

    /// Has network namespaces for so many boxes ready from now on.
    pub fn keep_net_namespaces(&self, boxes: usize) -> Result<(), SetupFailure> {
        if self.unprivileged { Ok(()) } else { self.net_namespaces.keep(boxes) }
    }

    /// A host uid for one box at a time.
    pub fn host_id(&self) -> Result<HostId, SetupFailure> {
        if self.unprivileged {
            return Ok(HostId::shared());
        }
        HostId::acquire(&self.state).map_err(|error| SetupFailure::from_io("host uid", &error))
    }

    /// A box's file system, to be filled before [`Sandbox::start`].
    pub fn box_fs(&self, limits: &Limits, host_id: &HostId) -> Result<BoxFs, SetupFailure> {
        BoxFs::create(&self.layout, limits, host_id.id())
    }

    /// The controls every box of this sandbox has.
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

    /// Whether a user namespace gives programs uid 10001; otherwise they see
    /// the host id they have.
    pub fn maps_users(&self) -> bool {
        self.user_namespace
    }

    /// What this host does not enforce, with the reasons.
    pub fn not_enforced(&self) -> &[String] {
        &self.not_enforced
    }

    /// Makes the box around `fs` and starts the program in it, as the host id
    /// `fs` was made for. The box dies with the thread that calls this, and keeps what is
    /// `retained`, the host id among it, until it is dead.
    pub fn start(
        &self,
        spec: RunSpec,
        fs: BoxFs,
        retained: Retained,
        began: Instant,
    ) -> Result<Running, SetupFailure> {
        if spec.argv.is_empty() {
            return Err(SetupFailure::from_words("exec", "no program given"));
        }
        let (mut running, _) = self.launch(spec, fs, retained, began)?;
        running.let_go()?;
        Ok(running)
    }

    /// Brings `limits` down to what can be set; says what is not enforced.
    pub(crate) fn clamp(&self, limits: &mut Limits) -> Vec<String> {
        let mut not_enforced = self.not_enforced.clone();
        self.hard_limits.clamp(limits, &mut not_enforced);
        not_enforced
    }

    /// What of the host a box covers now that shows no more than every box.
    pub(crate) fn covered_without_binds(&self) -> Result<Vec<Covered>, SetupFailure> {
        self.covers.of_a_run(&[])
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // One for all of it.
        let deadline = Deadline::after(SWEEP_WAIT);
        std::mem::take(&mut self.cleanup).close(deadline);
        // Whatever does not go now stays registered, for the next start to sweep.
        let forgotten = self.cgroups.close(deadline).map_err(|error| error.to_string());
        let forgotten =
            forgotten.and_then(|()| self.instance.unregister().map_err(|error| error.to_string()));
        if let Err(error) = forgotten {
            log::error!("close sandbox {}: {error}", self.instance.id());
        }
    }
}
