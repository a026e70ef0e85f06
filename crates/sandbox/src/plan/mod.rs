//! What to run and where, turned into the ordered steps that make the box.

pub(crate) mod calls;
pub(crate) mod encode;
pub(crate) mod filter_steps;
pub(crate) mod mount_calls;
pub mod rootfs;
pub(crate) mod scheduler_slice;
pub(crate) mod step;

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use super::init::wire::{FIRST_FREE_FD, PLAN_FD, REGISTERS, RELEASE_FD, STATUS_FD};
use super::landlock::Landlock;
use super::landlock::steps::{restrict_self_steps, rule_steps};
use super::locks::LockFilter;
use crate::launch::unprivileged::seal_steps;
use crate::plan::encode::{EncodedPlan, Encoder, PlanTooLarge};
use crate::plan::filter_steps::{filter_steps, install};
use crate::plan::rootfs::{MaskedPath, RootLayout, VAR_TMP, c_string};
use crate::plan::step::{Access, ExecCommand, Register, Rlimit, Step, TREES_REGISTER};
use crate::pool::host_id::INSIDE_ID;
use cofferdam_core::{Limits, SetupFailure};
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::interpret::lets_through;

/// The descriptor of the box's own file system, in the order `launch` has them.
pub const ROOT_FD: i32 = FIRST_FREE_FD;
/// The first descriptor of the `tasks` files, the init's before the program's;
/// id-mapping namespaces follow them.
pub const TASKS_FD: i32 = FIRST_FREE_FD + 1;
/// `$PATH` of a box, also where the environment has none.
pub const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The inotify instances of one sandbox: each that watches a file makes every access to it dearer
/// for all who share it. Node, the JVM and bundlers have one for each event loop or watcher,
/// watchdog and .NET one for each directory tree watched.
const INOTIFY_INSTANCES_MAX: u32 = 8;
/// The inotify watches of one sandbox, one for each file or directory watched: the kernel's own
/// default before Linux 5.11, enough for a tree of source files.
const INOTIFY_WATCHES_MAX: u32 = 8192;
/// The host name every box has.
pub(super) const HOSTNAME: &CStr = c"sandbox";

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

/// A directory of the root with a layer above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLayer {
    /// The descriptor of a mount of it.
    pub fd: i32,
    /// That of the user namespace that maps its owner to the tenant.
    pub idmap_fd: Option<i32>,
    /// Where it is inside, relative to the root.
    pub target: CString,
}

/// The steps of one box, in order, for its three stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildPlan {
    /// PID 1, before the program's process exists.
    pub setup: Vec<Step>,
    /// The program's process, ending in exec.
    pub program: Vec<Step>,
    /// PID 1, once the program's process exists.
    pub guard: Vec<Step>,
}

impl ChildPlan {
    /// Step `index`, counted through the three stages.
    pub fn step(&self, index: u32) -> Option<&Step> {
        let mut steps = self.setup.iter().chain(&self.program).chain(&self.guard);
        steps.nth(usize::try_from(index).ok()?)
    }

    /// The name of step `index`; what comes before the plan has one too.
    pub fn step_name(&self, index: u32) -> String {
        self.step(index).map_or_else(|| "start init".to_owned(), Step::name)
    }

    /// Whether the supervisor is asked for every file lock.
    pub fn watches_locks(&self) -> bool {
        self.program.iter().any(|step| matches!(step, Step::WatchLocks { .. }))
    }

    /// The plan as the init reads it.
    pub fn encode(&self) -> Result<EncodedPlan, PlanTooLarge> {
        let mut out = Encoder::default();
        let mut index = 0;
        for stage in [&self.setup, &self.program, &self.guard] {
            for step in stage {
                out.begin_step(index);
                step.encode(&mut out);
                index += 1;
            }
            out.end_list();
        }
        out.finish()
    }
}

/// The steps for `input`.
pub fn build(input: &PlanInput<'_>) -> Result<ChildPlan, SetupFailure> {
    Ok(ChildPlan {
        setup: setup_steps(input)?,
        program: program_steps(input),
        guard: guard_steps(input.init_filter),
    })
}

fn setup_steps(input: &PlanInput<'_>) -> Result<Vec<Step>, SetupFailure> {
    // First: a CPU group may have no room for a real-time process.
    let mut steps = vec![Step::ResetScheduling { short_slices: input.short_slices }];
    steps.extend((0..input.task_files).map(|file| Step::JoinCgroup { fd: TASKS_FD + file }));
    steps.extend(input.net_fd.map(|fd| Step::JoinNetwork { fd }));
    if input.unprivileged {
        // One that was cloned with the box: none made elsewhere could be left again.
        steps.push(Step::RaiseLoopback);
    }
    steps.push(Step::MakeMountsPrivate);
    let (open, mut attach) = tree_steps(input)?;
    // Sources are opened while the host's paths are what they are, and attached
    // once the box is the root: no link inside either can redirect the other.
    steps.extend(open);
    steps.push(Step::EnterRoot { fd: ROOT_FD, mountpoint: input.mountpoint.to_owned() });
    if input.unprivileged {
        let taken = Register::try_from(attach.len()).unwrap_or(Register::MAX);
        let (seal, open_again) = seal_steps(input, TREES_REGISTER.saturating_add(taken));
        steps.extend(seal);
        attach.splice(0..0, open_again);
    }
    // While the old root's is still there: in a user namespace no `/proc` may show more than it.
    steps.push(Step::MountProc);
    steps.push(Step::PivotRoot);
    steps.extend(attach);
    if input.overlay {
        steps.push(Step::MountOverlay);
    }
    let layers = input.layers.iter().cloned().enumerate();
    steps.extend(layers.map(|(index, layer)| Step::MountLayer { index, layer }));
    steps.extend(input.tmpfs.iter().map(|tmpfs| Step::MountTmpfs {
        target: tmpfs.target.clone(),
        bytes_max: tmpfs.bytes_max,
        inodes_max: input.limits.disk_inodes_max,
        uid: input.host_id,
        gid: input.host_id,
    }));
    steps.extend(input.root.masks.iter().chain(input.masked).map(|masked| Step::Mask {
        with: input.root.mask_for(masked),
        may_be_closed: input.root.is_below_unowned(&masked.target),
        target: masked.target.clone(),
    }));
    if input.root.masks_var_tmp {
        steps.push(Step::Mask {
            with: VAR_TMP,
            target: c"var/tmp".to_owned(),
            may_be_closed: false,
        });
    }
    // After what is masked: a program below that is not there, and not shown by this.
    if let ProgramSource::Mounted { fd, at } = input.program {
        steps.push(Step::AttachProgram { fd, target: at.to_owned() });
    }
    if let Some(landlock) = input.landlock {
        steps.extend(rule_steps(landlock, input));
    }
    steps.push(Step::SetHostname { name: HOSTNAME.to_owned() });
    steps.push(Step::SetUmask { mask: 0o022 });
    // Last: the program's process, which comes next, waits for it to be let go of.
    steps.push(Step::HoldProgram);
    Ok(steps)
}

/// The steps that open every tree and those that attach them.
fn tree_steps(input: &PlanInput<'_>) -> Result<(Vec<Step>, Vec<Step>), SetupFailure> {
    let shown = |access| {
        move |shown: &rootfs::ShownPath| PlannedTree {
            source: shown.source.clone(),
            target: shown.target.clone(),
            access,
            directory: access == Access::ReadOnly,
            idmap_fd: input.unowned_fd.filter(|_| shown.unowned),
        }
    };
    // In a namespace of less privilege a directory is only to be had with what masked parts of it.
    let with_mounts = input.unprivileged;
    let of_root = input.root.shown.len();
    let root = input.root.shown.iter().map(shown(Access::ReadOnly));
    let devices = input.root.devices.iter().map(shown(Access::Device));
    let trees: Vec<PlannedTree> = root.chain(devices).chain(input.trees.iter().cloned()).collect();
    let sealed = if input.unprivileged { input.root.writable.len() } else { 0 };
    if trees.len() + sealed > REGISTERS - usize::from(TREES_REGISTER) {
        return Err(SetupFailure::from_words("bind", "too many paths to show"));
    }
    let mut open = Vec::with_capacity(trees.len());
    let mut attach = Vec::with_capacity(trees.len());
    for (register, tree) in (TREES_REGISTER..Register::MAX).zip(trees) {
        let PlannedTree { source, target, access, idmap_fd, .. } = tree;
        let below = input.root_fd.filter(|_| usize::from(register - TREES_REGISTER) < of_root);
        // What is right below a root that was given is named as it is inside.
        let source = if below.is_some() { target.clone() } else { source };
        open.push(Step::OpenTree { source, below, access, idmap_fd, register, with_mounts });
        attach.push(Step::AttachTree { register, target });
    }
    if let Some(fd) = input.root_fd {
        // Where it is attached it may hide what others are opened by, so its own come last.
        open.rotate_left(of_root);
        let attached = Step::AttachRoot { fd, mountpoint: input.mountpoint.to_owned() };
        open.insert(open.len() - of_root, attached);
    }
    Ok((open, attach))
}

fn program_steps(input: &PlanInput<'_>) -> Vec<Step> {
    let first = TASKS_FD + input.task_files;
    let mut steps: Vec<Step> =
        (first..first + input.program_task_files).map(|fd| Step::JoinCgroup { fd }).collect();
    // After joining, so that the box's own groups are the roots it sees.
    steps.extend([Step::UnshareCgroup, Step::NewSession, Step::ResetSignals]);
    // What the supervisor opened is the host's node, by a mount that can be written: a tenant could
    // set its times.
    let null = input.root.devices.iter().find(|node| node.target.as_c_str() == c"dev/null");
    steps.extend(null.filter(|_| input.null_stdin).map(|_| Step::OpenNullStdin));
    if !input.unprivileged {
        steps.extend(limit_steps(input));
    }
    steps.extend([
        // Where memory runs out, boxes go before anything of the host's. Still as root: after the
        // uid change these files are no longer the process's own.
        write_proc(c"self/oom_score_adj", "1000"),
    ]);
    // A user namespace would bring the set back, so there it is dropped in it; without one the
    // uid change takes the right to drop it.
    let drop_bounding_set = Step::DropBoundingSet { last_capability: input.last_capability };
    if !input.user_namespace {
        steps.push(drop_bounding_set.clone());
    }
    if !input.unprivileged {
        steps.extend([
            Step::DropGroups,
            Step::SetGid { gid: input.host_id },
            Step::SetUid { uid: input.host_id },
        ]);
    }
    if input.user_namespace {
        steps.extend(user_namespace_steps(input.host_id));
        steps.push(drop_bounding_set);
    }
    if input.unprivileged {
        // What is set before is also the most that all below may have: of every box, whose uid is
        // the same. From here on each is counted apart.
        steps.extend(limit_steps(input));
    }
    // What makes a box need not wait for the end of a turn; the tenant's are what it waits for.
    let long_turns = input.short_slices.then_some(Step::SetLongSlice);
    steps.extend([
        Step::ClearAmbientSet,
        Step::ClearCapabilities,
        Step::EnterDirectory { path: input.workdir.to_owned() },
        Step::NoNewPrivileges,
    ]);
    if let Some(landlock) = input.landlock {
        steps.extend(restrict_self_steps(landlock, c"/tmp/.refused"));
    }
    steps.push(Step::AwaitGuard);
    // Here, not behind the wait: of what is closed some is a mount, for which the kernel waits.
    steps.extend(close_steps(input.program));
    steps.extend([
        Step::CloseRange { first: PLAN_FD.unsigned_abs(), last: PLAN_FD.unsigned_abs() },
        Step::CloseOnExec { first: STATUS_FD.unsigned_abs(), last: RELEASE_FD.unsigned_abs() },
    ]);
    // Behind the wait for the guard, which is a lock itself.
    let (ahead, last) = filter_steps(input.filter, input.locks);
    steps.extend(ahead);
    steps.extend([
        // Not before: the steps above open files, however few the tenant may.
        Step::SetLimit { limit: Rlimit::OpenFiles, value: input.limits.open_files_max },
        Step::ReportPrepared,
        Step::AwaitRelease,
    ]);
    steps.extend(long_turns);
    steps.extend(last);
    steps.push(Step::ReportReady);
    let program = |place, argv| exec_command(place, argv, input);
    let named = |argv| program(ProgramSource::Named, argv);
    steps.extend(input.without_shell.map(|argv| Step::TryExec(named(argv))));
    steps.push(Step::Exec(program(input.program, input.argv)));
    steps
}

/// Close all that came with the box but what the program itself is executed from, which exec closes.
fn close_steps(program: ProgramSource<'_>) -> Vec<Step> {
    let first = RELEASE_FD.unsigned_abs() + 1;
    let ProgramSource::Mounted { fd, .. } = program else { return vec![Step::CloseFrom { first }] };
    let fd = fd.unsigned_abs();
    vec![
        Step::CloseRange { first, last: fd - 1 },
        Step::CloseFrom { first: fd + 1 },
        Step::CloseOnExec { first: fd, last: fd },
    ]
}

fn exec_command(place: ProgramSource<'_>, argv: &[CString], input: &PlanInput<'_>) -> ExecCommand {
    let (fd, paths) = match place {
        ProgramSource::Named => (None, executable_paths(argv, input.env)),
        ProgramSource::At(path) => (None, vec![path.to_owned()]),
        // By its descriptor where the filter leaves that: no directory on the way to a path can
        // then be exchanged for another one.
        ProgramSource::Mounted { fd, at } => {
            let fd = lets_through(input.filter, &[libc::SYS_execveat]).then_some(fd);
            (fd, vec![at.to_owned()])
        }
    };
    ExecCommand { fd, paths, argv: argv.to_vec(), env: input.env.to_vec() }
}

fn limit_steps(input: &PlanInput<'_>) -> Vec<Step> {
    let of_the_run = [
        (Rlimit::Processes, input.limits.processes_max),
        (Rlimit::Core, 0),
        (Rlimit::FileSize, input.limits.file_bytes_max),
    ];
    let limits = of_the_run.iter().chain(input.fixed_limits);
    limits.map(|&(limit, value)| Step::SetLimit { limit, value }).collect()
}

/// The last namespace, made by the tenant's own host uid: the kernel then
/// counts its processes apart from every other box's, and the one-line maps
/// need no privilege and no hand-shake.
pub(super) fn user_namespace_steps(host_id: u32) -> Vec<Step> {
    let map = format!("{INSIDE_ID} {host_id} 1\n");
    vec![
        // The uid change took it away, and with it the right to write the maps.
        Step::MakeDumpable,
        Step::UnshareUser,
        write_proc(c"self/setgroups", "deny"),
        write_proc(c"self/gid_map", &map),
        write_proc(c"self/uid_map", &map),
        // Counted by user namespace since Linux 4.11. A kernel without inotify has neither file, and
        // makes no sandbox.
        write_proc(c"sys/user/max_inotify_instances", &INOTIFY_INSTANCES_MAX.to_string()),
        write_proc(c"sys/user/max_inotify_watches", &INOTIFY_WATCHES_MAX.to_string()),
        // Should the filter ever let the calls through: without a user namespace below this one
        // there is no capability to make any other with. Whoever made it may lower the count,
        // until it gives its capabilities up.
        write_proc(c"sys/user/max_user_namespaces", "0"),
    ]
}

fn write_proc(file: &CStr, text: &str) -> Step {
    Step::WriteProc { file: file.to_owned(), text: c_string(OsStr::new(text)) }
}

/// The init keeps its status pipe and the few calls of its own profile, and only
/// then lets the program's process go on.
fn guard_steps(filter: &Filter) -> Vec<Step> {
    vec![
        Step::CloseRange { first: 0, last: STATUS_FD.unsigned_abs() - 1 },
        Step::CloseFrom { first: PLAN_FD.unsigned_abs() + 1 },
        Step::MakeUndumpable,
        Step::ClearCapabilities,
        Step::NoNewPrivileges,
        install(filter),
        Step::ReleaseProgram,
    ]
}

/// Where the program may be, in the order a shell would look.
fn executable_paths(argv: &[CString], env: &[CString]) -> Vec<CString> {
    let Some(program) = argv.first() else { return Vec::new() };
    let program = program.as_bytes();
    // No directory has a file without a name: "not found", not the directory itself.
    if program.is_empty() || program.contains(&b'/') {
        return vec![c_string(OsStr::from_bytes(program))];
    }
    let path = env.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
    path.unwrap_or(PATH_DEFAULT.as_bytes())
        .split(|byte| *byte == b':')
        .map(|directory| {
            // An empty entry means the working directory.
            let directory = if directory.is_empty() { b"." } else { directory };
            c_string(OsStr::from_bytes(&[directory, b"/", program].concat()))
        })
        .collect()
}
