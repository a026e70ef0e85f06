//! Creates a sandbox that lasts.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::alarm::KeeperAlarm;
use super::keeper::KeptSandbox;
use super::requests::RequestSocket;
use super::{SharedSandbox, SharedState};
use crate::cgroup;
use crate::cgroup::{CpuClass, SandboxGroup};
use crate::files::sandbox_fs::SandboxFs;
use crate::launch::plan_context::{ProgramTime, TaskFiles, count};
use crate::launch::running::RunningSandbox;
use crate::launch::sandbox_host::{CROWDED, SandboxHost};
use crate::launch::stdio::Terminal;
use crate::launch::{self, Launch};
use crate::locks::receive_listener;
use crate::plan::served::build_server;
use crate::pool::host_id::HostId;
use crate::supervise::SETUP_WAIT;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{
    EgressService, ExcessOutput, Limits, MountedWorkspace, RunSpec, SetupFailure, StdinSource,
    WorkspaceFill,
};

/// The group of PID 1, below that of its sandbox: nothing in there can run out.
const INIT_GROUP: &str = "init";
/// The group of all programs.
const PROGRAMS_GROUP: &str = "all";

impl SandboxHost {
    /// Whether this host can have sandboxes that last, else why not.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_shared(&self) -> Result<(), String> {
        self.cgroups.support().check_shared()
    }

    /// Creates a sandbox around `workspace` that lasts, as `host_id`, whose programs are bounded by
    /// `limits` together, and reach what `egress` lets them. It dies with the calling thread, which calls
    /// [`KeptSandbox::keep`], and keeps `retained` until it is dead.
    ///
    /// # Errors
    /// The step that failed.
    pub fn create_shared(
        &self,
        workspace: MountedWorkspace,
        limits: &Limits,
        host_id: &HostId,
        retained: Retained,
        egress: Option<&Arc<dyn EgressService>>,
    ) -> Result<KeptSandbox, SetupFailure> {
        let failed =
            |step: &'static str| move |error: std::io::Error| SetupFailure::from_io(step, &error);
        self.check_shared().map_err(|reason| SetupFailure::from_words("cgroup", reason))?;
        if self.is_crowded() {
            return Err(SetupFailure::from_words("start", CROWDED));
        }
        let mut limits = limits.clone();
        self.clamp(&mut limits);
        let terminals = Arc::new(Terminal::mount(host_id.id())?);
        let fs = self.create_fs_around(&workspace, true, host_id)?;
        let tenant = fs.tenant();
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{number}", cgroup::SANDBOX_PREFIX);
        let group = self.cgroups.create_unlimited(&name)?;
        let init_group = group.nested(INIT_GROUP)?;
        group.give_entry(tenant)?;
        let disk = workspace.workspace.try_clone().map_err(failed("workspace"))?;
        let mut running = self.launch_server(
            workspace,
            &limits,
            (fs, group),
            &init_group,
            &terminals,
            (retained, egress.cloned()),
        )?;
        running.open_egress(egress.map(AsRef::as_ref))?;
        let RunningSandbox { live, release: socket, egress, .. } = running;
        let listens = running.plan.watches_locks();
        let listener = listens.then(|| receive_listener(socket.as_fd()));
        let listener = listener.transpose().map_err(failed("file locks"))?;
        let group = live.resources.group.as_ref();
        let group = group.ok_or_else(|| SetupFailure::from_words("cgroup", "no group"))?;
        let all = programs_group(group, &init_group, &limits)?;
        let own = live.resources.fs.as_ref().map(|fs| fs.as_fd().try_clone_to_owned());
        let own = own.transpose().map_err(failed("file system"))?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event_failed = |errno: Errno| SetupFailure::from_errno("eventfd", errno as i32);
        let shared = SharedState {
            process: Arc::clone(&live.process),
            requests: RequestSocket::new(socket),
            all: Some(Arc::new(all)).into(),
            terminals,
            disks: own.into_iter().chain([disk]).collect(),
            tenant,
            programs: Mutex::default(),
            ended: Condvar::new(),
            begun: 0.into(),
            spare: Mutex::default(),
            arrived: Mutex::default(),
            alarm: KeeperAlarm::new().map_err(event_failed)?,
            shortage: EventFd::from_value_and_flags(0, flags).map_err(event_failed)?,
            joins_itself: false.into(),
            is_over: false.into(),
        };
        let dead = CancelToken::new().map_err(failed("eventfd"))?;
        let shared = SharedSandbox(Arc::new(shared));
        Ok(KeptSandbox { shared, live, init_group, listener, dead, egress })
    }

    /// Clones PID 1 and waits until it serves.
    fn launch_server(
        &self,
        workspace: MountedWorkspace,
        limits: &Limits,
        (fs, group): (SandboxFs, SandboxGroup),
        init_group: &SandboxGroup,
        terminals: &Arc<OwnedFd>,
        (retained, egress): (Retained, Option<Arc<dyn EgressService>>),
    ) -> Result<RunningSandbox, SetupFailure> {
        let net = match weakened::lacks(Wall::Net) || self.plans.unprivileged {
            true => None,
            false => Some(self.net_namespaces.take()?),
        };
        let workdir = workspace.path.as_path().to_owned();
        let workspace = WorkspaceFill::Mounted(workspace);
        let limits_of_all = limits.clone();
        let spec =
            RunSpec { workdir, limits: limits_of_all, workspace, egress, ..RunSpec::default() };
        let entries = init_group.entries()?;
        let tasks = TaskFiles {
            of_init: count(group.task_files().len() + group.program_task_files().len()),
            of_program: count(entries.len()),
        };
        let (plan, _masked, extra) = self.plans.plan_as(
            (build_server, ProgramTime::Now),
            &spec,
            &fs,
            tasks,
            net.as_ref(),
            Some(Arc::clone(terminals)),
        )?;
        let entries: Vec<RawFd> = entries.iter().map(AsRawFd::as_raw_fd).collect();
        let mut running = Launch {
            plan,
            namespaces: launch::namespaces(self.plans.unprivileged),
            fs: Some(fs),
            group: Some(group),
            net,
            extra: [entries, extra.raw()].concat(),
            stdin: StdinSource::Null,
            terminal: None,
            limits: limits.clone(),
            excess_output: ExcessOutput::default(),
            prepare_began: Instant::now(),
            retained,
            cleanup: self.cleanup.handle(),
        }
        .spawn_init()?
        .counting_kills(&self.kill_failures);
        // The mounts of the workspace are attached: ours are no longer needed.
        drop(spec);
        running.await_prepared(Deadline::after(SETUP_WAIT))?;
        Ok(running)
    }
}

/// Makes the group of all programs, in which the sandbox may make groups. PID 1 is in a group of its own by now, and
/// nothing is in `group` itself.
fn programs_group(
    group: &SandboxGroup,
    init_group: &SandboxGroup,
    limits: &Limits,
) -> Result<SandboxGroup, SetupFailure> {
    group.delegate()?;
    let mut all = group.nested(PROGRAMS_GROUP)?;
    all.set_limits(limits)?;
    all.delegate()?;
    // PID 1 does little, and programs wait for it.
    init_group.set_cpu_class(CpuClass::Setup);
    all.set_cpu_class(CpuClass::Short);
    Ok(all)
}
