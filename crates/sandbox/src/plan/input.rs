//! What a plan is built from.

use std::ffi::{CStr, CString};

use crate::init::wire::FIRST_FREE_FD;
use crate::landlock::Landlock;
use crate::locks::LockFilter;
use crate::plan::rootfs::{MaskedPath, RootLayout};
use crate::plan::steps::mount::{Access, PlannedLayer};
use crate::plan::steps::process::Rlimit;
use cofferdam_core::Limits;
use cofferdam_seccomp::filter::Filter;

/// The descriptor of the box's own file system, in the order `launch` has them.
pub const ROOT_FD: i32 = FIRST_FREE_FD;
/// The first descriptor of the `tasks` files, the init's before the program's;
/// id-mapping namespaces follow them.
pub const TASKS_FD: i32 = FIRST_FREE_FD + 1;
/// `$PATH` of a box, also where the environment has none.
pub const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The uid and gid a program sees.
pub const INSIDE_ID: u32 = 10_001;

/// Everything a plan depends on. Nothing here is looked up later.
#[derive(Debug)]
pub struct PlanInput<'a> {
    /// What the program may call.
    pub filter: &'a Filter,
    /// What happens to its calls for file locks.
    pub locks: &'a LockFilter,
    /// What the init may still call once the program runs.
    pub init_filter: &'a Filter,
    /// The root's layout.
    pub root: &'a RootLayout,
    /// What to cover in this box, beside what the layout says.
    pub masked: &'a [MaskedPath],
    /// The program and its arguments.
    pub argv: &'a [CString],
    /// Which file that is.
    pub program: ProgramSource<'a>,
    /// The program that is executed in its place if it can be.
    pub without_shell: Option<&'a [CString]>,
    /// The whole environment.
    pub env: &'a [CString],
    /// The working directory inside.
    pub workdir: &'a CStr,
    /// The bounds that are process limits.
    pub limits: &'a Limits,
    /// The process limits that are the same for every run.
    pub fixed_limits: &'a [(Rlimit, u64)],
    /// The host uid and gid the tenant really has.
    pub host_id: u32,
    /// Whether 10001 is mapped to it by a user namespace, or is simply not shown.
    pub user_namespace: bool,
    /// Whether it is the service's own, which has no privileges.
    pub unprivileged: bool,
    /// The rules under the mounts, where the kernel has them.
    pub landlock: Option<Landlock>,
    /// Whether the kernel has POSIX message queues.
    pub message_queues: bool,
    /// How many `tasks` files the init joins.
    pub task_files: i32,
    /// How many more the program's process joins.
    pub program_task_files: i32,
    /// The descriptor of the box's network namespace.
    pub net_fd: Option<i32>,
    /// The descriptor of the mounts of a root that was given; none where it is the host's.
    pub root_fd: Option<i32>,
    /// The descriptor of the user namespace that unowned trees are mounted with.
    pub unowned_fd: Option<i32>,
    /// Whether standard input is the null device.
    pub null_stdin: bool,
    /// Where the box's root is put before it becomes the root.
    pub mountpoint: &'a CStr,
    /// The kernel's last capability.
    pub last_capability: u32,
    /// Whether what makes a box has short turns on a CPU, and the program long ones.
    pub short_slices: bool,
    /// Templates and binds, in the order they are attached.
    pub trees: &'a [PlannedTree],
    /// Extra private file systems.
    pub tmpfs: &'a [PlannedTmpfs],
    /// Directories of the root that the box writes to in layers of its own.
    pub layers: &'a [PlannedLayer],
    /// Whether `/workspace` is an overlay; the template is then the first tree.
    pub overlay: bool,
}

/// Which file a box executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramSource<'a> {
    /// What the first argument names, looked up along the environment's PATH.
    Named,
    /// What is at this absolute path inside.
    At(&'a CStr),
    /// The file whose mount is at the descriptor `fd`, and which is put over what is `at` that
    /// absolute path inside.
    Mounted { fd: i32, at: &'a CStr },
}

/// A host path to show, its mount point made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTree {
    /// Absolute, on the host.
    pub source: CString,
    /// Absolute, inside.
    pub target: CString,
    /// What may be done with it.
    pub access: Access,
    /// Whether it is a directory.
    pub directory: bool,
    /// The descriptor of the user namespace that maps its owner to the tenant.
    pub idmap_fd: Option<i32>,
}

/// An extra tmpfs, its mount point made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTmpfs {
    /// Absolute, inside.
    pub target: CString,
    /// Its size in bytes.
    pub bytes_max: u64,
}
