//! One box of a sandbox: its group, what it shows, its plan, its clone.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::running::Running;
use super::setup::Sandbox;
use crate::cgroup;
use crate::cgroup::SandboxGroup;
use crate::files::box_fs::BoxFs;
use crate::host::weakened;
use crate::host::weakened::Wall;
use crate::launch;
use crate::launch::Launch;
use crate::plan;
use crate::plan::rootfs::{Covered, c_string};
use crate::plan::scheduler_slice;
use crate::plan::step::Access;
use crate::plan::{ChildPlan, PlanInput, PlannedTmpfs, ProgramPlace, Tree};
use crate::pool::idmap::ExtraDescriptors;
use crate::sys;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{
    Bind, Limits, ProgramFile, RunSpec, SetupFailure, StdinSource, Tmpfs, WorkspaceFill,
};

const CROWDED: &str = "as many killed boxes are still alive as may be";

impl Sandbox {
    /// Whether so many killed boxes are still alive that no new one is made.
    pub fn is_crowded(&self) -> bool {
        self.cleanup.undying().is_full()
    }

    /// Makes a box whose program waits to be let go, and says what of the host
    /// it covers; without a program it ends where that would begin.
    pub(crate) fn launch(
        &self,
        mut spec: RunSpec,
        fs: BoxFs,
        retained: Retained,
        began: Instant,
    ) -> Result<(Running, Vec<Covered>), SetupFailure> {
        if self.is_crowded() {
            return Err(SetupFailure::from_words("start", CROWDED));
        }
        let not_enforced = self.clamp(&mut spec.limits);
        let group = self.create_group(&spec.limits)?;
        let tasks = TaskFiles {
            of_init: count(group.task_files().len()),
            of_program: count(group.program_task_files().len()),
        };
        let mut extra =
            ExtraDescriptors::starting_at(plan::TASKS_FD + tasks.of_init + tasks.of_program);
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
        let (plan, covered) = self.plan(&spec, &fs, tasks, of_host, &mut extra)?;
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
        .clone_box()?;
        let running = running.counting_kills(&self.kill_failures);
        Ok((running.enforcing(self.enforced(), not_enforced), covered))
    }

    /// A cgroup under a name never used before: one that would not go must not
    /// stand in the way of the next.
    fn create_group(&self, limits: &Limits) -> Result<SandboxGroup, SetupFailure> {
        let number = self.boxes_started.fetch_add(1, Ordering::Relaxed);
        self.cgroups.create(&format!("{}{number}", cgroup::SANDBOX_PREFIX), limits)
    }

    /// The template's tree, if there is one, then the binds, mount points made.
    fn trees(
        &self,
        spec: &RunSpec,
        fs: &BoxFs,
        extra: &mut ExtraDescriptors,
    ) -> Result<Vec<Tree>, SetupFailure> {
        let mut trees = Vec::new();
        if let WorkspaceFill::Overlay { template } = &spec.workspace {
            let idmap = self.idmap(template, fs)?;
            let idmap = idmap.ok_or_else(|| {
                SetupFailure::from_words("mount overlay /workspace", "no mapped ids here")
            })?;
            trees.push(Tree {
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

    /// A writable bind shows its owner's files as the tenant's where the file
    /// system allows it; elsewhere the tenant may do there what others may.
    fn bind(
        &self,
        bind: &Bind,
        fs: &BoxFs,
        extra: &mut ExtraDescriptors,
    ) -> Result<Tree, SetupFailure> {
        let Bind { source, target, read_only } = bind;
        let metadata = std::fs::metadata(source)
            .map_err(|error| SetupFailure::from_io(format!("bind {}", source.display()), &error))?;
        let idmap = if *read_only { None } else { self.idmap(source, fs)? };
        Ok(Tree {
            source: c_string(source.as_os_str()),
            target: fs.mount_point(target, metadata.is_dir())?,
            access: if *read_only { Access::ReadOnly } else { Access::ReadWrite },
            directory: metadata.is_dir(),
            idmap_fd: idmap.map(|namespace| extra.add(namespace)),
        })
    }

    /// The mounts of a root that was given, for one box to attach.
    fn given_root(&self) -> Result<Option<Arc<OwnedFd>>, SetupFailure> {
        if !self.root_is_given {
            return Ok(None);
        }
        let root = self.root.detached();
        Ok(Some(Arc::new(root.map_err(|error| SetupFailure::from_io("open root", &error))?)))
    }

    /// Without privileges nobody's files can be shown as another's.
    fn idmap(&self, path: &Path, fs: &BoxFs) -> Result<Option<Arc<OwnedFd>>, SetupFailure> {
        if self.unprivileged { Ok(None) } else { self.idmaps.for_owner_of(path, fs.tenant()) }
    }

    fn plan(
        &self,
        spec: &RunSpec,
        fs: &BoxFs,
        tasks: TaskFiles,
        of_host: HostDescriptors,
        extra: &mut ExtraDescriptors,
    ) -> Result<(ChildPlan, Vec<Covered>), SetupFailure> {
        let trees = self.trees(spec, fs, extra)?;
        // A template is what it is without what is mounted in it: an overlay never looks there.
        let binds = &trees[trees.len() - spec.binds.len()..];
        let covered = self.covers.of_a_run(binds)?;
        let program = program_place(&spec.program, extra)?;
        let plan = plan::build(&PlanInput {
            filter: self.profile.filter_for(spec.binds.iter().any(|bind| !bind.read_only)),
            locks: &self.locks,
            init_filter: &self.init_filter,
            root: &self.layout,
            covered: &covered,
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
            short_turns: scheduler_slice::are_short(),
            trees: &trees,
            tmpfs: &planned_tmpfs(spec, fs)?,
            layers: &self.planned_layers(fs, extra)?,
            overlay: matches!(spec.workspace, WorkspaceFill::Overlay { .. }),
        })?;
        Ok((plan, covered))
    }
}

/// How many `tasks` files each process of a new box joins.
#[derive(Debug, Clone, Copy)]
struct TaskFiles {
    of_init: i32,
    of_program: i32,
}

/// Descriptors in the box that every step before the program may refer to.
#[derive(Debug, Clone, Copy)]
struct HostDescriptors {
    net: Option<i32>,
    root: Option<i32>,
    unowned: Option<i32>,
}

/// Where the program is to be found, its mount among the descriptors of the box.
fn program_place<'a>(
    program: &'a ProgramFile,
    extra: &mut ExtraDescriptors,
) -> Result<ProgramPlace<'a>, SetupFailure> {
    Ok(match program {
        ProgramFile::Named => ProgramPlace::Named,
        ProgramFile::At(path) => ProgramPlace::At(path),
        ProgramFile::Open { file, at } => {
            let mount = sys::detached_mount(file.as_fd());
            let mount = mount.map_err(|error| SetupFailure::from_io("open program", &error))?;
            ProgramPlace::Mounted { fd: extra.add(Arc::new(mount)), at }
        }
    })
}

fn planned_tmpfs(spec: &RunSpec, fs: &BoxFs) -> Result<Vec<PlannedTmpfs>, SetupFailure> {
    let plan = |tmpfs: &Tmpfs| {
        let bytes_max = tmpfs.bytes_max.unwrap_or(spec.limits.disk_bytes_max);
        Ok(PlannedTmpfs { target: fs.mount_point(&tmpfs.target, true)?, bytes_max })
    };
    spec.tmpfs.iter().map(plan).collect()
}

fn count(files: usize) -> i32 {
    i32::try_from(files).unwrap_or(i32::MAX)
}
