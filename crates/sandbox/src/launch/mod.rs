//! From a plan to a running init: pipes, plan file, descriptors, clone.

#[allow(unsafe_code, reason = "system calls")]
pub(crate) mod child;
#[allow(unsafe_code, reason = "system calls")]
pub(crate) mod clone;
pub(crate) mod controls;
pub(crate) mod handshake;
#[cfg(any(test, fuzzing))]
pub mod handshake_property;
pub(crate) mod plan_context;
pub(crate) mod prestart;
pub(crate) mod process;
pub(crate) mod running;
pub(crate) mod sandbox_host;
pub(crate) mod shared;
pub(crate) mod stdio;
pub(crate) mod unprivileged;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::cgroup::SandboxGroup;
use super::plan::ChildPlan;
use super::{init, sys};
use crate::files::sandbox_fs::SandboxFs;
use crate::launch::child::{ChildStart, DESCRIPTORS_MAX};
use crate::launch::clone::clone_vfork;
use crate::launch::handshake::StatusPipe;
use crate::launch::running::RunningSandbox;
use crate::launch::stdio::{SandboxStdio, Terminal};
use crate::plan::encode::EncodedPlan;
use crate::pool::net_namespaces::NetNamespace;
use crate::supervise::cleanup;
use crate::supervise::cleanup::live_sandbox::LiveSandbox;
use crate::supervise::cleanup::queue::SandboxResources;
use crate::supervise::io::output_capture::OutputBound;
use crate::supervise::io::pipe::pipe_from_sandbox;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{Enforced, ExcessOutput, Limits, SetupFailure, StdinSource};

/// The namespaces that the init is cloned into. With privileges its network namespace is created
/// ahead, since the creating thread can return to its own. The program adds the cgroup and the user
/// namespace.
pub fn namespaces(unprivileged: bool) -> i32 {
    let pid = if weakened::lacks(Wall::Pid) { 0 } else { libc::CLONE_NEWPID };
    let net = if unprivileged { libc::CLONE_NEWNET } else { 0 };
    libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | pid | net
}

/// Everything that a clone needs.
#[derive(Debug)]
pub struct Launch {
    /// The steps.
    pub plan: ChildPlan,
    /// The clone flags.
    pub namespaces: i32,
    /// The sandbox's file system, if it has one.
    pub fs: Option<SandboxFs>,
    /// The sandbox's cgroup.
    pub group: Option<SandboxGroup>,
    /// The sandbox's network namespace, which the plan joins.
    pub net: Option<NetNamespace>,
    /// Further descriptors the plan refers to, after the `tasks` files.
    pub extra: Vec<RawFd>,
    /// Standard input.
    pub stdin: StdinSource,
    /// The controlling terminal, if the program has one.
    pub terminal: Option<Terminal>,
    /// The bounds.
    pub limits: Limits,
    /// What becomes of output beyond its limit.
    pub excess_output: ExcessOutput,
    /// When preparation began.
    pub prepare_began: Instant,
    /// What the sandbox keeps until it is dead.
    pub retained: Retained,
    /// Cleans up the sandbox when it is dead.
    pub cleanup: cleanup::CleanupHandle,
}

impl Launch {
    /// A clone for `plan` without a file system, a cgroup, descriptors or input of its own, which
    /// begins now.
    pub fn of(plan: ChildPlan, namespaces: i32) -> Self {
        Self {
            plan,
            namespaces,
            fs: None,
            group: None,
            net: None,
            extra: Vec::new(),
            stdin: StdinSource::Null,
            terminal: None,
            limits: Limits::default(),
            excess_output: ExcessOutput::default(),
            prepare_began: Instant::now(),
            retained: Retained::default(),
            cleanup: cleanup::CleanupHandle::default(),
        }
    }

    /// Clones the init and gives it its plan. It dies with the calling thread, and the program waits
    /// for [`RunningSandbox::resume`].
    pub fn spawn_init(self) -> Result<RunningSandbox, SetupFailure> {
        let failed =
            |step: &'static str| move |error: io::Error| SetupFailure::from_io(step, &error);
        let (status, status_end) = pipe_from_sandbox().map_err(failed("status pipe"))?;
        let kind = if self.plan.serves() { SockType::SeqPacket } else { SockType::Stream };
        let (release_end, release) = socket_pair(kind).map_err(failed("release socket"))?;
        let bounds = OutputBound::of(&self.limits, self.excess_output);
        let master = self.terminal.as_ref().map(|terminal| Arc::clone(&terminal.master));
        let stdio = match self.terminal {
            Some(terminal) => SandboxStdio::terminal(terminal, self.stdin, bounds)?,
            None => {
                let tenant = self.fs.as_ref().map(SandboxFs::tenant);
                SandboxStdio::pipes(self.stdin, bounds, tenant)?
            }
        };
        let plan_file = write_plan(&self.plan)?;
        // In the order of the init's descriptors: 0 to 5 are fixed, then those the plan refers to.
        let mut descriptors = stdio.descriptors().to_vec();
        descriptors.extend([&status_end, &plan_file, &release_end].map(AsRawFd::as_raw_fd));
        descriptors.extend(self.fs.as_ref().map(|fs| fs.as_fd().as_raw_fd()));
        descriptors
            .extend(self.group.iter().flat_map(SandboxGroup::task_files).map(AsRawFd::as_raw_fd));
        descriptors.extend(
            self.group.iter().flat_map(SandboxGroup::program_task_files).map(AsRawFd::as_raw_fd),
        );
        descriptors.extend(self.extra);
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(SetupFailure::from_words("descriptors", "too many for one sandbox"));
        }
        let init = init::program().map_err(failed("init program"))?;
        let start = ChildStart { descriptors: &descriptors, init: init.as_raw_fd(), join: None };
        let into = self.group.as_ref().and_then(SandboxGroup::clone_into);
        let process = clone_vfork(self.namespaces, into, &start).map_err(failed("clone"))?;
        let mut group = self.group;
        group.iter_mut().for_each(SandboxGroup::close_task_files);
        let mounts = self.fs.as_ref().and_then(|_| mount_namespace(process.pid));
        let live = LiveSandbox {
            process: Arc::new(process),
            resources: SandboxResources {
                fs: self.fs,
                group,
                net: self.net,
                workspace: None,
                mounts,
            },
            retained: self.retained,
            cleanup: self.cleanup,
        };
        Ok(RunningSandbox {
            live,
            plan: self.plan,
            status: StatusPipe::new(status),
            release,
            streams: stdio.streams,
            terminal: master,
            egress: None,
            limits: self.limits,
            released: None,
            locks: None,
            prepare_began: self.prepare_began,
            enforced: Enforced::default(),
            not_enforced: Vec::new(),
        })
    }
}

/// The mount namespace of a process just cloned. Without `/proc` it cannot be opened, and the init
/// unmounts everything itself when it dies.
fn mount_namespace(pid: i32) -> Option<OwnedFd> {
    File::open(format!("/proc/{pid}/ns/mnt")).ok().map(OwnedFd::from)
}

/// The socket that resumes the program, or that carries the requests for programs. The listener for
/// file locks comes back on it.
pub(crate) fn socket_pair(kind: SockType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?)
}

/// The plan as a memory file, which the init maps.
pub(crate) fn write_plan(plan: &ChildPlan) -> Result<OwnedFd, SetupFailure> {
    let encoded =
        plan.encode().map_err(|error| SetupFailure::from_words("plan", error.to_string()))?;
    let write = || -> io::Result<OwnedFd> {
        let file = File::from(sys::memory_file(c"cofferdam-plan", false)?);
        file.write_all_at(&encoded.calls, 0)?;
        file.write_all_at(&encoded.data, EncodedPlan::DATA_OFFSET)?;
        Ok(file.into())
    };
    write().map_err(|error| SetupFailure::from_io("plan", &error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use seccompiler::{SeccompAction, SeccompFilter};

    use super::*;
    use crate::cgroup::CgroupTree;
    use crate::plan::steps::Step;
    use crate::plan::steps::start::StartStep;
    use cofferdam_core::values::deadline::Deadline;

    /// Makes `clone3` fail with `ENOSYS` in this thread, as in many containers.
    fn refuse_clone3() {
        let filter = SeccompFilter::new(
            BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
    }

    #[test]
    fn a_sandbox_starts_in_its_group_even_if_clone3_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
            assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
            eprintln!("SKIP: not root");
            return;
        }
        refuse_clone3();
        let mut tree = CgroupTree::open(&format!("clone-{}", std::process::id())).unwrap();
        let group = tree.create("box", &Limits::default()).unwrap();
        assert!(group.clone_into().is_some(), "this host has no version 2 at all");
        let plan = ChildPlan {
            setup: vec![Step::Start(StartStep::WaitForKill)],
            program: Vec::new(),
            guard: Vec::new(),
        };
        let launch = Launch { group: Some(group), ..Launch::of(plan, libc::CLONE_NEWPID) };
        // The clone returns when the child executes the init, which then waits.
        let running = launch.spawn_init().unwrap();
        let inside = running.live.resources.group.as_ref().unwrap().processes().unwrap();
        assert_eq!(inside, [running.live.process.pid]);
        drop(running);
        tree.close(Deadline::after(Duration::from_secs(20))).unwrap();
    }
}
