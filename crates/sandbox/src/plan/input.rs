//! What a plan is built from.

use std::ffi::{CStr, CString};

use crate::init::wire::FIRST_FREE_FD;
use crate::landlock::Landlock;
use crate::locks::LockFilter;
use crate::plan::mounted::PlannedWorkspace;
use crate::plan::rootfs::{MaskedPath, RootLayout};
use crate::plan::steps::mount::{Access, PlannedLayer};
use crate::plan::steps::process::Rlimit;
use cofferdam_core::Limits;
use cofferdam_seccomp::filter::Filter;

/// The descriptor of the sandbox's own file system, in the order of `launch`.
pub const ROOT_FD: i32 = FIRST_FREE_FD;
/// The first descriptor of the `tasks` files, the init's before the program's;
/// id-mapping namespaces follow them.
pub const TASKS_FD: i32 = FIRST_FREE_FD + 1;
/// `$PATH` of a sandbox, also if its environment has none.
pub const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The uid and gid that a program sees.
pub const INSIDE_ID: u32 = 10_001;

/// Everything that a plan depends on. The plan looks up nothing later.
#[derive(Debug)]
pub struct PlanInput<'a> {
    /// The filter of the program.
    pub filter: &'a Filter,
    /// The filter of its calls for file locks.
    pub locks: &'a LockFilter,
    /// The filter of the init once the program runs.
    pub init_filter: &'a Filter,
    /// The root's layout.
    pub root: &'a RootLayout,
    /// The masked paths of this sandbox, besides those of the layout.
    pub masked: &'a [MaskedPath],
    /// The program and its arguments.
    pub argv: &'a [CString],
    /// Where the program's file is.
    pub program: ProgramSource<'a>,
    /// The argv to execute instead, without a shell, if that succeeds.
    pub without_shell: Option<&'a [CString]>,
    /// The whole environment.
    pub env: &'a [CString],
    /// The working directory inside.
    pub workdir: &'a CStr,
    /// The limits of the run.
    pub limits: &'a Limits,
    /// The limit of processes that the kernel counts by uid, over all sandboxes with the same one.
    pub uid_processes_max: u64,
    /// The process limits that are the same for every run.
    pub fixed_limits: &'a [(Rlimit, u64)],
    /// The host uid and gid of the tenant.
    pub host_id: u32,
    /// Whether a user namespace maps 10001 to it. Otherwise the program sees the host id.
    pub user_namespace: bool,
    /// Whether it is the service's own, because the service has no privileges.
    pub unprivileged: bool,
    /// Landlock, if the kernel has it.
    pub landlock: Option<Landlock>,
    /// Whether the kernel has POSIX message queues.
    pub message_queues: bool,
    /// How many `tasks` files the init joins.
    pub task_files: i32,
    /// How many more the program's process joins.
    pub program_task_files: i32,
    /// The descriptor of the sandbox's network namespace.
    pub net_fd: Option<i32>,
    /// The descriptor of the mounts of a given root; `None` for the host's.
    pub root_fd: Option<i32>,
    /// The descriptor of the user namespace that unowned trees are mounted with.
    pub unowned_fd: Option<i32>,
    /// The descriptor of the file system of terminals, if standard input, output and error are one.
    pub terminal_fd: Option<i32>,
    /// Whether standard input is the null device.
    pub null_stdin: bool,
    /// Where the sandbox's root is mounted before it becomes the root.
    pub mountpoint: &'a CStr,
    /// The kernel's last capability.
    pub last_capability: u32,
    /// Whether the steps run with a short scheduler slice, and the program with a long one.
    pub short_slices: bool,
    /// Templates and binds, in the order they are attached.
    pub trees: &'a [PlannedTree],
    /// Extra private file systems.
    pub tmpfs: &'a [PlannedTmpfs],
    /// Directories of the root with a writable layer above them.
    pub layers: &'a [PlannedLayer],
    /// Whether `/workspace` is an overlay; the template is then the first tree.
    pub overlay: bool,
    /// The mounts of a workspace that has a file system of its own.
    pub workspace: Option<&'a PlannedWorkspace>,
}

/// The file that a sandbox executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramSource<'a> {
    /// The first argument, looked up along the environment's PATH.
    Named,
    /// The file at this absolute path inside.
    At(&'a CStr),
    /// The file whose mount is at the descriptor `fd`, mounted `at` this absolute path inside.
    Mounted { fd: i32, at: &'a CStr },
    /// What is sent when the sandbox is resumed, with its arguments, variables and working directory.
    Sent,
}

/// A host path to show; its mount point exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTree {
    /// Absolute, on the host.
    pub source: CString,
    /// Absolute, inside.
    pub target: CString,
    /// How it may be used.
    pub access: Access,
    /// Whether it is a directory.
    pub directory: bool,
    /// The descriptor of the user namespace that maps its owner to the tenant.
    pub idmap_fd: Option<i32>,
}

/// An extra tmpfs; its mount point exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTmpfs {
    /// Absolute, inside.
    pub target: CString,
    /// Its size in bytes.
    pub bytes_max: u64,
}
