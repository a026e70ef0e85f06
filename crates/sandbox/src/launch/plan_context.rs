//! What the plans of all sandboxes on a host have in common, and the plan of one sandbox.

use std::borrow::Cow;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cgroup::SandboxGroup;
use crate::files::sandbox_fs::SandboxFs;
use crate::files::unowned::UnownedTrees;
use crate::host::hard_limits::HardLimits;
use crate::host::root_source::{
    SandboxRoot, has_message_queues, init_filter, last_capability, mountpoint,
};
use crate::landlock::Landlock;
use crate::launch::stdio::Terminal;
use crate::locks::LockFilter;
use crate::plan;
use crate::plan::input::TASKS_FD;
use crate::plan::mounted::{
    PlannedWorkspace, lies_in_host_tree, masked_beside, masked_outside, mounted_layout,
};
use crate::plan::rootfs::{MaskedPath, RootLayout, c_string};
use crate::plan::scheduler_slice;
use crate::plan::steps::mount::Access;
use crate::plan::{ChildPlan, PlanInput, PlannedTmpfs, PlannedTree, ProgramSource};
use crate::pool::idmap::{ExtraDescriptors, IdMaps};
use crate::pool::net_namespaces::NetNamespace;
use crate::sys;
use cofferdam_core::sync::run_control::TerminalSize;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{
    Bind, MountedDirectory, MountedWorkspace, ProgramFile, RootFile, RunSpec, SetupFailure,
    StdinSource, Tmpfs, WorkspaceFill, WorkspacePath,
};
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::profile::Profile;

/// What every plan on this host depends on, looked up once.
#[derive(Debug)]
pub(super) struct PlanContext {
    pub(super) profile: Profile,
    locks: LockFilter,
    init_filter: Filter,
    pub(super) root: SandboxRoot,
    /// The user namespace that shown trees are mounted with, if the host has ID-mapped mounts.
    unowned: Option<Arc<OwnedFd>>,
    mountpoint: CString,
    last_capability: u32,
    pub(super) user_namespace: bool,
    pub(super) unprivileged: bool,
    pub(super) landlock: Option<Landlock>,
    message_queues: bool,
    pub(super) hard_limits: HardLimits,
    /// Whether the cgroup of a sandbox bounds its processes.
    pub(super) groups_bound_processes: bool,
    pub(super) idmaps: IdMaps,
    /// Where files are made that sandboxes show.
    pub(super) directory: PathBuf,
}

/// The plan of one sandbox.
#[derive(Debug)]
pub(super) struct PlannedSandbox {
    pub(super) plan: ChildPlan,
    /// What it masks of the host.
    pub(super) masked: Vec<MaskedPath>,
    /// The descriptors that the plan refers to, to be kept open until the init has them.
    pub(super) extra: ExtraDescriptors,
    /// Its controlling terminal.
    pub(super) terminal: Option<Terminal>,
}

/// How many `tasks` files each process of a new sandbox joins.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskFiles {
    pub(super) of_init: i32,
    pub(super) of_program: i32,
}

/// The plan of a sandbox, what it masks of the host, and the descriptors that it refers to.
pub(super) type PlanParts = (ChildPlan, Vec<MaskedPath>, ExtraDescriptors);
/// Plans the steps for an input.
pub(super) type BuildPlan = fn(&PlanInput<'_>) -> Result<ChildPlan, SetupFailure>;

/// When the program of a new sandbox is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramTime {
    /// It is part of the plan.
    Now,
    /// It is sent when the sandbox is resumed.
    AtResume,
}

/// Descriptors in the sandbox that the steps before exec may refer to.
#[derive(Debug, Clone, Copy)]
struct HostDescriptors {
    net: Option<i32>,
    root: Option<i32>,
    unowned: Option<i32>,
    terminal: Option<i32>,
}

impl PlanContext {
    /// Reads what plans depend on besides the root: filters, limits and features of the kernel.
    pub(super) fn new(
        profile: Profile,
        mut root: SandboxRoot,
        unowned: UnownedTrees,
        unprivileged: bool,
    ) -> Result<Self, SetupFailure> {
        let failed =
            |step: &'static str| move |error: std::io::Error| SetupFailure::from_io(step, &error);
        root.show_unowned(&unowned.trees);
        Ok(Self {
            profile,
            locks: LockFilter::for_this_host(),
            init_filter: init_filter()?,
            root,
            unowned: unowned.namespace,
            mountpoint: mountpoint().map_err(failed("mount point"))?,
            last_capability: last_capability().map_err(failed("read cap_last_cap"))?,
            user_namespace: unprivileged || !weakened::lacks(Wall::User),
            unprivileged,
            landlock: None,
            message_queues: has_message_queues(),
            hard_limits: HardLimits::read().map_err(failed("read limits"))?,
            groups_bound_processes: false,
            idmaps: IdMaps::default(),
            directory: PathBuf::new(),
        })
    }

    /// The plan of a sandbox for `spec` around `fs`, in `group` and `net`.
    pub(super) fn plan(
        &self,
        (spec, time): (&RunSpec, ProgramTime),
        fs: &SandboxFs,
        group: &SandboxGroup,
        net: Option<&NetNamespace>,
    ) -> Result<PlannedSandbox, SetupFailure> {
        let tasks = TaskFiles {
            of_init: count(group.task_files().len()),
            of_program: count(group.program_task_files().len()),
        };
        let terminal = spec.terminal.map(|size| new_terminal(spec, size, fs)).transpose()?;
        let terminals = terminal.as_ref().map(|terminal| Arc::clone(&terminal.mount));
        let (plan, masked, extra) =
            self.plan_as((plan::build, time), spec, fs, tasks, net, terminals)?;
        Ok(PlannedSandbox { plan, masked, extra, terminal })
    }

    /// The plan that `build` makes of a sandbox for `spec` around `fs`, in `net`, with the file system
    /// `terminals` if it has terminals.
    pub(super) fn plan_as(
        &self,
        (build, time): (BuildPlan, ProgramTime),
        spec: &RunSpec,
        fs: &SandboxFs,
        tasks: TaskFiles,
        net: Option<&NetNamespace>,
        terminals: Option<Arc<OwnedFd>>,
    ) -> Result<PlanParts, SetupFailure> {
        let mut extra = ExtraDescriptors::starting_at(TASKS_FD + tasks.of_init + tasks.of_program);
        let has_terminals = terminals.is_some();
        let of_host = HostDescriptors {
            net: net.map(|net| extra.add_held(net.as_raw_fd())),
            root: self.root.detached_mount()?.map(|root| extra.add(Arc::new(root))),
            unowned: self.unowned.as_ref().map(|namespace| extra.add_held(namespace.as_raw_fd())),
            terminal: terminals.map(|mount| extra.add(mount)),
        };
        let trees = self.trees(spec, fs, &mut extra)?;
        // Not the template: an overlay does not show what is mounted in its lower directory.
        let templates = usize::from(matches!(spec.workspace, WorkspaceFill::Overlay { .. }));
        let binds = &trees[templates..];
        let masked = self.masked_for(spec, binds)?;
        let program = match time {
            ProgramTime::Now => program_source(&spec.program, &mut extra)?,
            ProgramTime::AtResume => ProgramSource::Sent,
        };
        let workspace = planned_workspace(&spec.workspace, &mut extra);
        let plan = build(&PlanInput {
            filter: self.profile.filter_for(spec.binds.iter().any(|bind| !bind.read_only)),
            locks: &self.locks,
            init_filter: &self.init_filter,
            root: &self.layout_for(spec, has_terminals),
            masked: &masked,
            argv: &spec.argv,
            program,
            without_shell: spec.without_shell.as_deref(),
            env: &spec.env,
            workdir: &c_string(spec.workdir.as_os_str()),
            limits: &spec.limits,
            uid_processes_max: self.uid_processes_max(spec),
            fixed_limits: self.hard_limits.fixed(),
            host_id: fs.tenant(),
            user_namespace: self.user_namespace,
            unprivileged: self.unprivileged,
            landlock: self.landlock,
            message_queues: self.message_queues,
            task_files: tasks.of_init,
            program_task_files: tasks.of_program,
            net_fd: of_host.net,
            root_fd: of_host.root,
            unowned_fd: of_host.unowned,
            null_stdin: matches!(spec.stdin, StdinSource::Null) && spec.terminal.is_none(),
            terminal_fd: of_host.terminal,
            mountpoint: &self.mountpoint,
            last_capability: self.last_capability,
            short_slices: scheduler_slice::has_short_slice(),
            trees: &trees,
            tmpfs: &planned_tmpfs(spec, fs)?,
            layers: &self.root.layers.planned(&self.idmaps, fs.tenant(), &mut extra)?,
            overlay: matches!(spec.workspace, WorkspaceFill::Overlay { .. }),
            workspace: workspace.as_ref(),
        })?;
        Ok((plan, masked, extra))
    }

    /// What of the host is masked for `spec`, which shows `binds`.
    fn masked_for(
        &self,
        spec: &RunSpec,
        binds: &[PlannedTree],
    ) -> Result<Vec<MaskedPath>, SetupFailure> {
        let masked = self.root.masked.for_run(binds)?;
        let WorkspaceFill::Mounted(mounted) = &spec.workspace else { return Ok(masked) };
        let masked = masked_outside(masked, mounted.path.as_path());
        Ok(mounted.others.iter().fold(masked, |masked, other| {
            let in_tree = lies_in_host_tree(&self.root.layout, &other.target);
            let shown = if in_tree { masked_beside } else { masked_outside };
            shown(masked, &other.target)
        }))
    }

    /// The layout of the root of a sandbox for `spec`.
    fn layout_for(&self, spec: &RunSpec, has_terminals: bool) -> Cow<'_, RootLayout> {
        let layout = &self.root.layout;
        match &spec.workspace {
            WorkspaceFill::Mounted(mounted) => {
                Cow::Owned(mounted_layout(layout, &mounted.path, &mounted.others, has_terminals))
            }
            WorkspaceFill::Own | WorkspaceFill::Overlay { .. } => Cow::Borrowed(layout),
        }
    }

    /// Sandboxes of one mounted workspace share a host uid. The kernel would count their processes
    /// together, so each is bounded by its cgroup, if the host has that control.
    pub(super) fn uid_processes_max(&self, spec: &RunSpec) -> u64 {
        let shares = matches!(spec.workspace, WorkspaceFill::Mounted(_));
        if shares && self.groups_bound_processes {
            self.hard_limits.processes()
        } else {
            spec.limits.processes_max
        }
    }

    /// The masked paths of a sandbox without binds that shows a mounted workspace at `place`, if any,
    /// as of now.
    pub(super) fn masked_without_binds(
        &self,
        place: Option<&WorkspacePath>,
    ) -> Result<Vec<MaskedPath>, SetupFailure> {
        let masked = self.root.masked.for_run(&[])?;
        Ok(match place {
            Some(place) => masked_outside(masked, place.as_path()),
            None => masked,
        })
    }

    /// The template's tree, if there is one, then the binds and what tells programs whom they trust. Creates
    /// their mount points.
    fn trees(
        &self,
        spec: &RunSpec,
        fs: &SandboxFs,
        extra: &mut ExtraDescriptors,
    ) -> Result<Vec<PlannedTree>, SetupFailure> {
        let mut trees = Vec::new();
        if let WorkspaceFill::Overlay { template } = &spec.workspace {
            let idmap = self.idmap(template, fs)?;
            let idmap = idmap.ok_or_else(|| {
                SetupFailure::from_words(
                    "mount overlay /workspace",
                    "the file system cannot map ids",
                )
            })?;
            trees.push(PlannedTree {
                source: c_string(template.as_os_str()),
                target: c".overlay/lower".to_owned(),
                access: Access::ReadOnly,
                directory: true,
                idmap_fd: Some(extra.add(idmap)),
            });
        }
        let shown = self.shown_files(spec)?;
        for bind in spec.binds.iter().chain(&shown) {
            trees.push(self.bind(bind, fs, extra)?);
        }
        Ok(trees)
    }

    fn shown_files(&self, spec: &RunSpec) -> Result<Vec<Bind>, SetupFailure> {
        let Some(egress) = &spec.egress else { return Ok(Vec::new()) };
        let shown = egress.shown_files(&self.directory, &|path| self.root.read(path));
        let shown = shown.map_err(|error| SetupFailure::from_io("certificates", &error))?;
        let bind = |RootFile { source, target }| {
            let target = self.root.file(target).unwrap_or_else(|| PathBuf::from(target));
            Bind { source, target, read_only: true }
        };
        Ok(shown.into_iter().map(bind).collect())
    }

    /// A writable bind shows its owner's files as the tenant's if the file system allows it.
    /// Otherwise the tenant has the rights of others there.
    fn bind(
        &self,
        bind: &Bind,
        fs: &SandboxFs,
        extra: &mut ExtraDescriptors,
    ) -> Result<PlannedTree, SetupFailure> {
        let Bind { source, target, read_only } = bind;
        let metadata = std::fs::metadata(source)
            .map_err(|error| SetupFailure::from_io(format!("bind {}", source.display()), &error))?;
        let idmap = if *read_only { None } else { self.idmap(source, fs)? };
        Ok(PlannedTree {
            source: c_string(source.as_os_str()),
            target: fs.mount_point(target, metadata.is_dir())?,
            access: if *read_only { Access::ReadOnly } else { Access::ReadWrite },
            directory: metadata.is_dir(),
            idmap_fd: idmap.map(|namespace| extra.add(namespace)),
        })
    }

    /// Without privileges there are no ID-mapped mounts.
    fn idmap(&self, path: &Path, fs: &SandboxFs) -> Result<Option<Arc<OwnedFd>>, SetupFailure> {
        if self.unprivileged { Ok(None) } else { self.idmaps.for_owner_of(path, fs.tenant()) }
    }
}

/// The source of the program, its mount added to the descriptors of the sandbox.
fn program_source<'a>(
    program: &'a ProgramFile,
    extra: &mut ExtraDescriptors,
) -> Result<ProgramSource<'a>, SetupFailure> {
    Ok(match program {
        ProgramFile::Named => ProgramSource::Named,
        ProgramFile::At(path) => ProgramSource::At(path),
        ProgramFile::Open { file, at } => {
            let mount = sys::detached_mount(file.as_fd());
            let mount = mount.map_err(|error| SetupFailure::from_io("open program", &error))?;
            ProgramSource::Mounted { fd: extra.add(Arc::new(mount)), at }
        }
    })
}

/// The mount points of a terminal are in the root of a mounted workspace alone.
fn new_terminal(
    spec: &RunSpec,
    size: TerminalSize,
    fs: &SandboxFs,
) -> Result<Terminal, SetupFailure> {
    match spec.workspace {
        WorkspaceFill::Mounted(_) => Terminal::new(fs.tenant(), size),
        WorkspaceFill::Own | WorkspaceFill::Overlay { .. } => {
            Err(SetupFailure::from_words("terminal", "the workspace is not a mounted one"))
        }
    }
}

fn planned_workspace(
    workspace: &WorkspaceFill,
    extra: &mut ExtraDescriptors,
) -> Option<PlannedWorkspace> {
    let WorkspaceFill::Mounted(mounted) = workspace else { return None };
    let MountedWorkspace { workspace, tmp, path, others, .. } = mounted;
    let [workspace, tmp] = [workspace, tmp].map(|mount| extra.add_held(mount.as_raw_fd()));
    let planned = PlannedWorkspace::new(workspace, tmp, path);
    Some(others.iter().fold(planned, |planned, MountedDirectory { mount, target }| {
        planned.and(extra.add_held(mount.as_raw_fd()), target)
    }))
}

fn planned_tmpfs(spec: &RunSpec, fs: &SandboxFs) -> Result<Vec<PlannedTmpfs>, SetupFailure> {
    let plan = |tmpfs: &Tmpfs| {
        let bytes_max = tmpfs.bytes_max.unwrap_or(spec.limits.disk_bytes_max);
        Ok(PlannedTmpfs { target: fs.mount_point(&tmpfs.target, true)?, bytes_max })
    };
    spec.tmpfs.iter().map(plan).collect()
}

pub(super) fn count(files: usize) -> i32 {
    i32::try_from(files).unwrap_or(i32::MAX)
}
