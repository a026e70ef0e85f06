//! The sandbox of the tests, and checks of what the host supports.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Instant;

use cofferdam::executor::{Executor, SandboxExecutor};
use cofferdam_core::{MountedWorkspace, NotStarted, OutputSink, RunReport};
use cofferdam_sandbox::engine::builtin_profile;
use cofferdam_sandbox::engine::{HostId, RootSource, SandboxConfig, SandboxHost};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::live::Live;
use crate::program::Program;
use crate::workspace::MountedFiles;

/// Tests that measure time run alone, all others concurrently.
static TURNS: RwLock<()> = RwLock::new(());
/// One sandbox backend for all running tests. A plain static would never be dropped and leave its
/// cgroups behind.
static SHARED: Mutex<Weak<SandboxExecutor>> = Mutex::new(Weak::new());

/// A sandbox backend for the duration of one test.
#[derive(Debug)]
pub struct Host {
    backend: Arc<SandboxExecutor>,
    _turn: Turn,
}

/// Held until it is dropped.
#[derive(Debug)]
enum Turn {
    Shared {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
    /// Another turn of this thread, which is dropped later.
    Nested,
}

thread_local! {
    /// Whether this thread has a turn. A second wait could be for a test that waits for the first turn to end.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

impl Turn {
    fn shared() -> Self {
        if HAS_TURN.replace(true) {
            return Self::Nested;
        }
        Self::Shared { _guard: TURNS.read().unwrap_or_else(PoisonError::into_inner) }
    }

    fn alone() -> Self {
        assert!(!HAS_TURN.replace(true), "this thread has a turn, and would wait for itself");
        Self::Alone { _guard: TURNS.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !matches!(self, Self::Nested) {
            HAS_TURN.set(false);
        }
    }
}

/// Whether the host has `feature`. If not, prints that the test is skipped, or panics under
/// `REQUIRE_PRIVILEGED=1`.
#[track_caller]
pub fn has(feature: &str, there: bool) -> bool {
    if !there {
        let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        assert!(!required, "host lacks {feature}, and REQUIRE_PRIVILEGED=1");
        eprintln!("SKIP: host lacks {feature}");
    }
    there
}

/// The default sandbox backend, or `None` on a host that does not support it.
#[track_caller]
pub fn host() -> Option<Host> {
    let turn = Turn::shared();
    Some(Host { backend: shared()?, _turn: turn })
}

/// The default sandbox backend, while no other test of this binary runs.
#[track_caller]
pub fn quiet_host() -> Option<Host> {
    let turn = Turn::alone();
    Some(Host { backend: shared()?, _turn: turn })
}

/// A separate backend with a changed configuration.
#[track_caller]
pub fn host_with(change: impl FnOnce(&mut SandboxConfig)) -> Option<Host> {
    let turn = Turn::shared();
    let mut config = config();
    change(&mut config);
    Some(Host { backend: Arc::new(SandboxExecutor::new(open(config)?)), _turn: turn })
}

/// The opcode of `return` and its operand to allow, from `linux/filter.h` and `linux/seccomp.h`.
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;

/// A backend whose sandboxes have every control except the seccomp filter.
#[track_caller]
pub fn host_without_filter() -> Option<Host> {
    host_with(|config| {
        let profile = &mut config.profile;
        for filter in [&mut profile.filter, &mut profile.writable_binds_filter] {
            let program = &mut filter.program;
            program.retain(|instruction| (instruction.code, instruction.k) == (RETURN, ALLOW));
            program.truncate(1);
            assert_eq!(program.len(), 1);
        }
    })
}

/// The configuration of the default backend.
pub fn config() -> SandboxConfig {
    SandboxConfig {
        profile: builtin_profile("default").unwrap(),
        root: RootSource::Host,
        private: Vec::new(),
        strict: false,
    }
}

#[track_caller]
fn shared() -> Option<Arc<SandboxExecutor>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(backend) = shared.upgrade() {
        return Some(backend);
    }
    let backend = Arc::new(SandboxExecutor::new(open(config())?));
    *shared = Arc::downgrade(&backend);
    Some(backend)
}

#[track_caller]
fn open(config: SandboxConfig) -> Option<SandboxHost> {
    let able = has("root", nix::unistd::geteuid().is_root())
        && has("namespaces and mounts for root", can_divide());
    able.then(|| {
        SandboxHost::open(config).expect("a host with namespaces and mounts has sandboxes")
    })
}

/// Whether this process may create namespaces and mounts, tried on a temporary thread. On such a
/// host, a backend that does not open is a failure and not a reason to skip.
fn can_divide() -> bool {
    let flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWNET;
    let attempt = move || {
        let none: Option<&str> = None;
        unshare(flags)?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some("tmpfs"), "/tmp", Some("tmpfs"), MsFlags::empty(), none)
    };
    std::thread::spawn(attempt).join().unwrap().is_ok()
}

impl Host {
    /// The sandbox supervisor itself.
    pub fn sandbox(&self) -> &SandboxHost {
        self.backend.sandbox()
    }

    /// The backend itself.
    pub fn backend(&self) -> Arc<SandboxExecutor> {
        Arc::clone(&self.backend)
    }

    /// The executor that runs tasks in it.
    pub fn executor(&self) -> &dyn Executor {
        &*self.backend
    }

    /// A host id that no other run has.
    pub fn host_id(&self) -> HostId {
        self.sandbox().host_id().unwrap()
    }

    /// Runs `program` to its end. It must start.
    #[track_caller]
    pub fn run(&self, program: Program) -> RunReport {
        self.try_run(program).unwrap()
    }

    /// Runs `program` to its end.
    pub fn try_run(&self, program: Program) -> Result<RunReport, NotStarted> {
        self.try_run_as(&self.host_id(), program)
    }

    /// Runs `program` to its end as `host_id`.
    pub fn try_run_as(&self, host_id: &HostId, program: Program) -> Result<RunReport, NotStarted> {
        program.run_on(&self.backend, host_id, None)
    }

    /// Runs `program` to its end over `files`.
    pub fn try_run_over(
        &self,
        files: &MountedFiles,
        program: Program,
    ) -> Result<RunReport, NotStarted> {
        program.run_over(&self.backend, files.host_id(), files.mounts(), None)
    }

    /// Runs `program` to its end over these mounts.
    pub fn try_run_mounts(
        &self,
        host_id: &HostId,
        mounts: MountedWorkspace,
        program: Program,
    ) -> Result<RunReport, NotStarted> {
        program.run_over(&self.backend, host_id, mounts, None)
    }

    /// Runs `program` to its end over `files`. It must start.
    #[track_caller]
    pub fn run_over(&self, files: &MountedFiles, program: Program) -> RunReport {
        self.try_run_over(files, program).unwrap()
    }

    /// Runs `program` and measures the time after `prepare`: from the exec of the program to the
    /// answer.
    pub fn timed(&self, program: Program) -> (RunReport, std::time::Duration) {
        let host_id = self.host_id();
        let began = Instant::now();
        let report = self.try_run_as(&host_id, program).unwrap();
        let waited = began.elapsed().saturating_sub(report.timings.prepare);
        (report, waited)
    }

    /// Runs `program` to its end and passes its output to `sink`.
    pub fn run_into(&self, program: Program, sink: Box<dyn OutputSink>) -> RunReport {
        program.run_on(&self.backend, &self.host_id(), Some(sink)).unwrap()
    }

    /// Starts `program` on a new thread.
    pub fn start(&self, program: Program) -> Live {
        Live::start(Arc::clone(&self.backend), program)
    }

    /// As [`Host::start`], with the standard input that the program has.
    pub fn start_with_own_stdin(&self, program: Program) -> Live {
        Live::start_with_own_stdin(Arc::clone(&self.backend), program)
    }

    /// As [`Host::start_with_own_stdin`], over `files`.
    pub fn start_over(&self, files: &MountedFiles, program: Program) -> Live {
        Live::start_over(Arc::clone(&self.backend), files, program)
    }

    /// Whether sandboxes have a memory limit.
    #[track_caller]
    pub fn bounds_memory(&self) -> bool {
        has("a memory controller", self.sandbox().enforced().memory.is_some())
    }

    /// Whether the CPU time of sandboxes is counted.
    #[track_caller]
    pub fn counts_cpu(&self) -> bool {
        has("CPU accounting by cgroup", self.sandbox().enforced().cpu.is_some())
    }

    /// Whether sandboxes have user namespaces.
    #[track_caller]
    pub fn maps_users(&self) -> bool {
        has("user namespaces", self.sandbox().maps_users())
    }
}
