//! The steps of the program's process, from its groups to exec.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use crate::init::wire::{PLAN_FD, RELEASE_FD, STATUS_FD};
use crate::plan::input::{INSIDE_ID, PATH_DEFAULT, PlanInput, ProgramSource, TASKS_FD};
use crate::plan::restrictions::{filter_steps, restrict_self_steps};
use crate::plan::rootfs::c_string;
use crate::plan::steps::Step;
use crate::plan::steps::identity::IdentityStep;
use crate::plan::steps::process::{ProcessStep, Rlimit};
use crate::plan::steps::start::{ExecCommand, StartStep};
use cofferdam_seccomp::interpret::lets_through;

/// The inotify instances of one sandbox: each that watches a file makes every access to it dearer
/// for all who share it. Node, the JVM and bundlers have one for each event loop or watcher,
/// watchdog and .NET one for each directory tree watched.
const INOTIFY_INSTANCES_MAX: u32 = 8;
/// The inotify watches of one sandbox, one for each file or directory watched: the kernel's own
/// default before Linux 5.11, enough for a tree of source files.
const INOTIFY_WATCHES_MAX: u32 = 8192;

pub fn program_steps(input: &PlanInput<'_>) -> Vec<Step> {
    let first = TASKS_FD + input.task_files;
    let mut steps: Vec<Step> = (first..first + input.program_task_files)
        .map(|fd| Step::Process(ProcessStep::JoinCgroup { fd }))
        .collect();
    // After joining, so that the box's own groups are the roots it sees.
    steps.extend([
        Step::Process(ProcessStep::UnshareCgroup),
        Step::Process(ProcessStep::NewSession),
        Step::Process(ProcessStep::ResetSignals),
    ]);
    // What the supervisor opened is the host's node, by a mount that can be written: a tenant could
    // set its times.
    let null = input.root.devices.iter().find(|node| node.target.as_c_str() == c"dev/null");
    steps.extend(
        null.filter(|_| input.null_stdin).map(|_| Step::Process(ProcessStep::OpenNullStdin)),
    );
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
    let drop_bounding_set =
        Step::Identity(IdentityStep::DropBoundingSet { last_capability: input.last_capability });
    if !input.user_namespace {
        steps.push(drop_bounding_set.clone());
    }
    if !input.unprivileged {
        steps.extend([
            Step::Identity(IdentityStep::DropGroups),
            Step::Identity(IdentityStep::SetGid { gid: input.host_id }),
            Step::Identity(IdentityStep::SetUid { uid: input.host_id }),
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
    let long_turns = input.short_slices.then_some(Step::Process(ProcessStep::SetLongSlice));
    steps.extend([
        Step::Identity(IdentityStep::ClearAmbientSet),
        Step::Identity(IdentityStep::ClearCapabilities),
        Step::Process(ProcessStep::EnterDirectory { path: input.workdir.to_owned() }),
        Step::Identity(IdentityStep::NoNewPrivileges),
    ]);
    if let Some(landlock) = input.landlock {
        steps.extend(restrict_self_steps(landlock, c"/tmp/.refused"));
    }
    steps.push(Step::Start(StartStep::AwaitGuard));
    // Here, not behind the wait: of what is closed some is a mount, for which the kernel waits.
    steps.extend(close_steps(input.program));
    steps.extend([
        Step::Process(ProcessStep::CloseRange {
            first: PLAN_FD.unsigned_abs(),
            last: PLAN_FD.unsigned_abs(),
        }),
        Step::Process(ProcessStep::CloseOnExec {
            first: STATUS_FD.unsigned_abs(),
            last: RELEASE_FD.unsigned_abs(),
        }),
    ]);
    // Behind the wait for the guard, which is a lock itself.
    let (ahead, last) = filter_steps(input.filter, input.locks);
    steps.extend(ahead);
    steps.extend([
        // Not before: the steps above open files, however few the tenant may.
        Step::Process(ProcessStep::SetLimit {
            limit: Rlimit::OpenFiles,
            value: input.limits.open_files_max,
        }),
        Step::Start(StartStep::ReportPrepared),
        Step::Start(StartStep::AwaitRelease),
    ]);
    steps.extend(long_turns);
    steps.extend(last);
    steps.push(Step::Start(StartStep::ReportReady));
    let program = |place, argv| exec_command(place, argv, input);
    let named = |argv| program(ProgramSource::Named, argv);
    steps.extend(input.without_shell.map(|argv| Step::Start(StartStep::TryExec(named(argv)))));
    steps.push(Step::Start(StartStep::Exec(program(input.program, input.argv))));
    steps
}

/// Close all that came with the box but what the program itself is executed from, which exec closes.
fn close_steps(program: ProgramSource<'_>) -> Vec<Step> {
    let first = RELEASE_FD.unsigned_abs() + 1;
    let ProgramSource::Mounted { fd, .. } = program else {
        return vec![Step::Process(ProcessStep::CloseFrom { first })];
    };
    let fd = fd.unsigned_abs();
    vec![
        Step::Process(ProcessStep::CloseRange { first, last: fd - 1 }),
        Step::Process(ProcessStep::CloseFrom { first: fd + 1 }),
        Step::Process(ProcessStep::CloseOnExec { first: fd, last: fd }),
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
    limits.map(|&(limit, value)| Step::Process(ProcessStep::SetLimit { limit, value })).collect()
}

/// The last namespace, made by the tenant's own host uid: the kernel then
/// counts its processes apart from every other box's, and the one-line maps
/// need no privilege and no hand-shake.
pub fn user_namespace_steps(host_id: u32) -> Vec<Step> {
    let map = format!("{INSIDE_ID} {host_id} 1\n");
    vec![
        // The uid change took it away, and with it the right to write the maps.
        Step::Identity(IdentityStep::MakeDumpable),
        Step::Identity(IdentityStep::UnshareUser),
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
    Step::Identity(IdentityStep::WriteProc {
        file: file.to_owned(),
        text: c_string(OsStr::new(text)),
    })
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
