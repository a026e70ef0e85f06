//! Creates one sandbox: its group, its trees, its plan, its init.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::running::{PreparedSandbox, RunningSandbox};
use super::sandbox_host::SandboxHost;
use crate::cgroup;
use crate::cgroup::SandboxGroup;
use crate::files::sandbox_fs::SandboxFs;
use crate::host::weakened;
use crate::host::weakened::Wall;
use crate::launch;
use crate::launch::Launch;
use crate::plan;
use crate::plan::input::TASKS_FD;
use crate::plan::rootfs::{MaskedPath, c_string};
use crate::plan::scheduler_slice;
use crate::plan::steps::mount::Access;
use crate::plan::{ChildPlan, PlanInput, PlannedTmpfs, PlannedTree, ProgramSource};
use crate::pool::idmap::ExtraDescriptors;
use crate::supervise::SETUP_WAIT;
use crate::sys;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    Bind, Limits, ProgramFile, RunSpec, SetupFailure, StdinSource, Tmpfs, WorkspaceFill,
};

const CROWDED: &str = "too many killed sandboxes are still alive";

impl SandboxHost {
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
        let (mut running, _) = self.launch(spec, fs, retained, began)?;
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
        let (mut running, masked) = self.launch(spec, fs, retained, Instant::now())?;
        running.await_prepared(Deadline::after(SETUP_WAIT))?;
        Ok(PreparedSandbox { running, masked })
    }

    /// Resumes the program of `prepared`, with the times of `limits`; its report counts the
    /// preparation from `began`. The sandbox keeps `retained` too.
    pub fn resume(
        &self,
        prepared: PreparedSandbox,
        mut limits: Limits,
        retained: Retained,
        began: Instant,
    ) -> Result<RunningSandbox, SetupFailure> {
        let not_enforced = self.clamp(&mut limits);
        let PreparedSandbox { mut running, .. } = prepared;
        running.live.retained.extend(retained);
        running.limits = limits;
        running.prepare_began = began;
        running.resume()?;
        Ok(running.enforcing(self.enforced(), not_enforced))
    }

    /// Whether `prepared` is alive, and masks what a sandbox created now would mask.
    pub fn is_usable(&self, prepared: &PreparedSandbox) -> Result<bool, SetupFailure> {
        let alive = !prepared.running.is_dead();
        Ok(alive && self.masked_without_binds()? == prepared.masked)
    }

    /// Creates a sandbox whose program waits to be resumed, and returns its masked paths. Without a
    /// program it ends where the program would begin.
    pub(super) fn launch(
        &self,
        mut spec: RunSpec,
        fs: SandboxFs,
        retained: Retained,
        began: Instant,
    ) -> Result<(RunningSandbox, Vec<MaskedPath>), SetupFailure> {
        if self.is_crowded() {
            return Err(SetupFailure::from_words("start", CROWDED));
        }
        let not_enforced = self.clamp(&mut spec.limits);
        let group = self.create_group(&spec.limits)?;
        let tasks = TaskFiles {
            of_init: count(group.task_files().len()),
            of_program: count(group.program_task_files().len()),
        };
        let mut extra = ExtraDescriptors::starting_at(TASKS_FD + tasks.of_init + tasks.of_program);
        let net = match weakened::lacks(Wall::Net) || self.unprivileged {
            true => None,
            false => Some(self.net_namespaces.take()?),
        };
        let net_fd = net.as_ref().map(|net| extra.add_held(net.as_raw_fd()));
        let of_host = HostDescriptors {
            net: net_fd,
            root: self.given_root()?.map(|root| extra.add(root)),
            unowned: self.unowned.as_ref().map(|namespace| extra.add_held(namespace.as_raw_fd())),
        };
        let (plan, masked) = self.plan(&spec, &fs, tasks, of_host, &mut extra)?;
        let running = Launch {
            plan,
            namespaces: launch::namespaces(self.unprivileged),
            fs: Some(fs),
            group: Some(group),
            net,
            extra: extra.raw(),
            stdin: spec.stdin,
            limits: &spec.limits,
            prepare_began: began,
            retained,
            cleanup: self.cleanup.handle(),
        }
        .spawn_init()?;
        let running = running.counting_kills(&self.kill_failures);
        Ok((running.enforcing(self.enforced(), not_enforced), masked))
    }

    /// Creates a cgroup under a name never used before: one that could not be removed must not
    /// block the next.
    fn create_group(&self, limits: &Limits) -> Result<SandboxGroup, SetupFailure> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        self.cgroups.create(&format!("{}{number}", cgroup::SANDBOX_PREFIX), limits)
    }

    /// The template's tree, if there is one, then the binds. Creates their mount points.
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
        for bind in &spec.binds {
            trees.push(self.bind(bind, fs, extra)?);
        }
        Ok(trees)
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

    /// A copy of the mounts of a given root, for one sandbox to attach.
    fn given_root(&self) -> Result<Option<Arc<OwnedFd>>, SetupFailure> {
        if !self.root_is_given {
            return Ok(None);
        }
        let root = self.root.detached();
        Ok(Some(Arc::new(root.map_err(|error| SetupFailure::from_io("open root", &error))?)))
    }

    /// Without privileges there are no ID-mapped mounts.
    fn idmap(&self, path: &Path, fs: &SandboxFs) -> Result<Option<Arc<OwnedFd>>, SetupFailure> {
        if self.unprivileged { Ok(None) } else { self.idmaps.for_owner_of(path, fs.tenant()) }
    }

    fn plan(
        &self,
        spec: &RunSpec,
        fs: &SandboxFs,
        tasks: TaskFiles,
        of_host: HostDescriptors,
        extra: &mut ExtraDescriptors,
    ) -> Result<(ChildPlan, Vec<MaskedPath>), SetupFailure> {
        let trees = self.trees(spec, fs, extra)?;
        // Not the template: an overlay does not show what is mounted in its lower directory.
        let binds = &trees[trees.len() - spec.binds.len()..];
        let masked = self.masked.for_run(binds)?;
        let program = program_source(&spec.program, extra)?;
        let plan = plan::build(&PlanInput {
            filter: self.profile.filter_for(spec.binds.iter().any(|bind| !bind.read_only)),
            locks: &self.locks,
            init_filter: &self.init_filter,
            root: &self.layout,
            masked: &masked,
            argv: &spec.argv,
            program,
            without_shell: spec.without_shell.as_deref(),
            env: &spec.env,
            workdir: &c_string(spec.workdir.as_os_str()),
            limits: &spec.limits,
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
            null_stdin: matches!(spec.stdin, StdinSource::Null),
            mountpoint: &self.mountpoint,
            last_capability: self.last_capability,
            short_slices: scheduler_slice::has_short_slice(),
            trees: &trees,
            tmpfs: &planned_tmpfs(spec, fs)?,
            layers: &self.layers.planned(&self.idmaps, fs.tenant(), extra)?,
            overlay: matches!(spec.workspace, WorkspaceFill::Overlay { .. }),
        })?;
        Ok((plan, masked))
    }
}

/// How many `tasks` files each process of a new sandbox joins.
#[derive(Debug, Clone, Copy)]
struct TaskFiles {
    of_init: i32,
    of_program: i32,
}

/// Descriptors in the sandbox that the steps before exec may refer to.
#[derive(Debug, Clone, Copy)]
struct HostDescriptors {
    net: Option<i32>,
    root: Option<i32>,
    unowned: Option<i32>,
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

fn planned_tmpfs(spec: &RunSpec, fs: &SandboxFs) -> Result<Vec<PlannedTmpfs>, SetupFailure> {
    let plan = |tmpfs: &Tmpfs| {
        let bytes_max = tmpfs.bytes_max.unwrap_or(spec.limits.disk_bytes_max);
        Ok(PlannedTmpfs { target: fs.mount_point(&tmpfs.target, true)?, bytes_max })
    };
    spec.tmpfs.iter().map(plan).collect()
}

fn count(files: usize) -> i32 {
    i32::try_from(files).unwrap_or(i32::MAX)
}
