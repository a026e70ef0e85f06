//! One step of making a box, as data, with its name.

use std::ffi::CString;

use crate::plan::PlannedLayer;

/// A register of the plan: the result of one call, used by a later one.
pub type Register = u8;

/// The register that holds the box's writable view of `/proc`.
pub const PROC_REGISTER: Register = 0;
/// The register for results that only the next call of the same step uses.
pub const SCRATCH_REGISTER: Register = 1;
/// The register that holds the box's Landlock rules.
pub const RULES_REGISTER: Register = 2;
/// The first register for the trees that binds are made of.
pub const TREES_REGISTER: Register = 3;

/// What a bound tree may not be used for, beside set-uid and devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing may be written.
    ReadOnly,
    /// Whoever may write on the host may write here.
    ReadWrite,
    /// A device node: usable as one.
    Device,
}

/// A process limit by its POSIX name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rlimit {
    /// `RLIMIT_CPU`, seconds.
    Cpu,
    /// `RLIMIT_NOFILE`.
    OpenFiles,
    /// `RLIMIT_NPROC`.
    Processes,
    /// `RLIMIT_CORE`, bytes.
    Core,
    /// `RLIMIT_FSIZE`, bytes.
    FileSize,
    /// `RLIMIT_NICE`: how far below 20 a nice value may be brought.
    Nice,
    /// `RLIMIT_RTPRIO`.
    RealtimePriority,
    /// `RLIMIT_RTTIME`, microseconds.
    RealtimeTime,
    /// `RLIMIT_MEMLOCK`, bytes.
    LockedMemory,
    /// `RLIMIT_MSGQUEUE`, bytes.
    MessageQueues,
    /// `RLIMIT_SIGPENDING`, signals and timers.
    PendingSignals,
}

/// One step. Paths without a leading slash are below the box's new root, which
/// is the working directory from [`Step::EnterRoot`] on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The ordinary class, nice 0 and no I/O priority, whatever the server has; short time slices
    /// if those are what it has.
    ResetScheduling { short_slices: bool },
    /// Move this single-threaded process into the cgroup whose `tasks` file is at `fd`.
    JoinCgroup { fd: i32 },
    /// A cgroup namespace rooted where the process is now.
    UnshareCgroup,
    /// Nothing mounted here shows on the host, nor the other way round.
    MakeMountsPrivate,
    /// A copy of the mount at a host path, not yet attached anywhere; of those below it too where
    /// only all together can be had.
    /// Where it is `below` a descriptor's directory, `source` is a name there and never a link.
    OpenTree {
        source: CString,
        below: Option<i32>,
        access: Access,
        idmap_fd: Option<i32>,
        register: Register,
        with_mounts: bool,
    },
    /// Put the mounts at `fd`, of a root that was given, at `mountpoint`: they can only be copied
    /// from there.
    AttachRoot { fd: i32, mountpoint: CString },
    /// Put the box's own file system at `mountpoint` and stand in it.
    EnterRoot { fd: i32, mountpoint: CString },
    /// Put a view of it in its place in which nothing can be written.
    SealRoot { fd: i32, mountpoint: CString },
    /// Attach an opened tree.
    AttachTree { register: Register, target: CString },
    /// Put the file whose mount is at `fd` over `target`, read-only: the program itself.
    AttachProgram { fd: i32, target: CString },
    /// A tmpfs of its own at `target`.
    MountTmpfs { target: CString, bytes_max: u64, inodes_max: u64, uid: u32, gid: u32 },
    /// `/workspace` from the template below and the box's file system above.
    MountOverlay,
    /// A directory of the root with the box's layer `index` above it.
    MountLayer { index: usize, layer: PlannedLayer },
    /// `/proc` of this PID namespace, read-only, with a writable view kept in a register.
    MountProc,
    /// Cover a path that the tenant has no business with; a missing one is fine.
    /// So is one that cannot be entered, where it `may_be_closed` to root as to a tenant.
    Mask { with: &'static str, target: CString, may_be_closed: bool },
    /// Join the network namespace at `fd`, in which `lo` is up.
    JoinNetwork { fd: i32 },
    /// Bring `lo` up.
    RaiseLoopback,
    /// The host name inside.
    SetHostname { name: CString },
    /// SkeletonKind the box the root and let go of the host's.
    PivotRoot,
    /// Do nothing more: somebody wants this process for its namespaces.
    WaitForKill,
    /// A session without a controlling terminal.
    NewSession,
    /// The box's own null device as standard input.
    OpenNullStdin,
    /// Default dispositions and an empty mask for every signal.
    ResetSignals,
    /// The mode bits new files never get.
    SetUmask { mask: u32 },
    /// A process limit, soft and hard alike.
    SetLimit { limit: Rlimit, value: u64 },
    /// No supplementary groups.
    DropGroups,
    /// Real, effective and saved gid.
    SetGid { gid: u32 },
    /// Real, effective and saved uid.
    SetUid { uid: u32 },
    /// Allow this process to write its own id maps after the uid change.
    MakeDumpable,
    /// A user namespace, the last one.
    UnshareUser,
    /// Write to a file below `/proc`.
    WriteProc { file: CString, text: CString },
    /// Remove every capability from the bounding set.
    DropBoundingSet { last_capability: u32 },
    /// Empty the ambient set.
    ClearAmbientSet,
    /// Empty the permitted, effective and inheritable sets.
    ClearCapabilities,
    /// The working directory.
    EnterDirectory { path: CString },
    /// Close every descriptor from `first` on.
    CloseFrom { first: u32 },
    /// Close `first..=last`.
    CloseRange { first: u32, last: u32 },
    /// Let exec close `first..=last`.
    CloseOnExec { first: u32, last: u32 },
    /// Longer time slices than others have.
    SetLongSlice,
    /// Exec never gives privileges again.
    NoNewPrivileges,
    /// The message queues of this IPC namespace, where a rule can name them.
    MountQueues,
    /// Landlock rules that give nothing back yet.
    CreateRules { handled: u64, scoped: u64 },
    /// The rights `allowed` at and below `path`, for which `fd` is opened anew: it
    /// is open, and so is every descriptor below it.
    AllowBelow { path: CString, allowed: u64, fd: i32 },
    /// Be held to the rules, as everything started from here on.
    ObeyRules { flags: u32 },
    /// Try at `path` what only the rules refuse; fail unless they do.
    ProveRules { path: CString },
    /// Other processes of this uid may not look into this one.
    MakeUndumpable,
    /// Install a system-call filter.
    InstallFilter { name: String, program: Vec<u8> },
    /// Install a filter that reports lock calls, and send its listener to the supervisor.
    WatchLocks { name: String, program: Vec<u8> },
    /// Lock the plan's file, whose content is mapped: a lock is this process's
    /// alone, and gone when it closes the file.
    HoldProgram,
    /// Wait until the init has closed the plan's file.
    AwaitGuard,
    /// Close the plan's file.
    ReleaseProgram,
    /// Tell the supervisor that all is made that can be made ahead.
    ReportPrepared,
    /// Wait to be let go, and take on the CPU seconds that come with it: the one limit that is
    /// known no sooner. Nobody being left to say so, the box ends.
    AwaitRelease,
    /// Tell the supervisor that only exec is left.
    ReportReady,
    /// Become the program if it can be executed; otherwise go on.
    TryExec(ExecCommand),
    /// Become the program.
    Exec(ExecCommand),
}

/// What a box is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecCommand {
    /// The descriptor that holds its file. One that has to be found by a path, as a script is by
    /// its interpreter, cannot be executed so.
    pub fd: Option<i32>,
    /// Where it may be otherwise: the first of them that can be executed.
    pub paths: Vec<CString>,
    /// Its arguments, its name the first.
    pub argv: Vec<CString>,
    /// Its environment.
    pub env: Vec<CString>,
}

impl Step {
    /// The step's name in an error: what was being done, to what.
    pub fn name(&self) -> String {
        let path = |path: &CString| path.to_string_lossy().into_owned();
        // The root's own targets are relative, those a run asks for absolute.
        let inside = |target: &CString| format!("/{}", path(target).trim_start_matches('/'));
        match self {
            Self::ResetScheduling { .. } => "scheduling".into(),
            Self::JoinCgroup { .. } => "join cgroup".into(),
            Self::UnshareCgroup => "cgroup namespace".into(),
            Self::MakeMountsPrivate => "private mounts".into(),
            Self::OpenTree { source, below: None, .. } => format!("bind {}", path(source)),
            Self::OpenTree { source, .. } => format!("bind {} of the root", inside(source)),
            Self::AttachRoot { .. } => "attach root".into(),
            Self::EnterRoot { .. } => "mount root".into(),
            Self::SealRoot { .. } => "seal root".into(),
            Self::AttachTree { target, .. } => format!("attach {}", inside(target)),
            Self::AttachProgram { target, .. } => format!("attach program {}", inside(target)),
            Self::MountTmpfs { target, .. } => format!("mount tmpfs {}", inside(target)),
            Self::MountOverlay => "mount overlay /workspace".into(),
            Self::MountLayer { layer, .. } => format!("mount overlay {}", inside(&layer.target)),
            Self::MountProc => "mount /proc".into(),
            Self::Mask { target, .. } => format!("mask {}", inside(target)),
            Self::JoinNetwork { .. } => "net namespace".into(),
            Self::RaiseLoopback => "raise lo".into(),
            Self::SetHostname { .. } => "set hostname".into(),
            Self::PivotRoot => "pivot_root".into(),
            Self::WaitForKill => "wait".into(),
            Self::NewSession => "setsid".into(),
            Self::OpenNullStdin => "stdin".into(),
            Self::ResetSignals => "reset signals".into(),
            Self::SetUmask { .. } => "umask".into(),
            Self::SetLimit { limit, .. } => format!("rlimit {limit:?}").to_lowercase(),
            Self::DropGroups => "setgroups".into(),
            Self::SetGid { .. } => "setresgid".into(),
            Self::SetUid { .. } => "setresuid".into(),
            Self::MakeDumpable | Self::MakeUndumpable => "set dumpable".into(),
            Self::UnshareUser => "user namespace".into(),
            Self::WriteProc { file, .. } => format!("write /proc/{}", path(file)),
            Self::DropBoundingSet { .. } => "drop bounding set".into(),
            Self::ClearAmbientSet => "clear ambient set".into(),
            Self::ClearCapabilities => "capset".into(),
            Self::EnterDirectory { path: dir } => format!("workdir {}", path(dir)),
            Self::CloseFrom { .. } | Self::CloseRange { .. } | Self::CloseOnExec { .. } => {
                "close descriptors".into()
            }
            Self::SetLongSlice => "time slice".into(),
            Self::NoNewPrivileges => "no_new_privs".into(),
            Self::MountQueues => "landlock queues".into(),
            Self::CreateRules { .. } => "landlock rules".into(),
            Self::AllowBelow { path: below, .. } => format!("landlock rule {}", inside(below)),
            Self::ObeyRules { .. } => "landlock".into(),
            Self::ProveRules { .. } => "landlock proof".into(),
            Self::InstallFilter { name, .. } | Self::WatchLocks { name, .. } => {
                format!("seccomp {name}")
            }
            Self::HoldProgram => "hold program".into(),
            Self::AwaitGuard => "await init".into(),
            Self::ReleaseProgram => "release program".into(),
            Self::ReportPrepared => "report standing".into(),
            Self::AwaitRelease => "await release".into(),
            Self::ReportReady => "report".into(),
            Self::TryExec(_) => "exec without a shell".into(),
            Self::Exec(_) => "exec".into(),
        }
    }
}
