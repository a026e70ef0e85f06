//! The steps of the program's process, from its groups to exec.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use crate::init::wire::{PLAN_FD, RELEASE_FD, STATUS_FD};
use crate::plan::input::{INSIDE_ID, PATH_DEFAULT, PlanInput, ProgramSource, TASKS_FD};
use crate::plan::restrictions::{filter_steps, restrict_self_steps};
use crate::plan::rootfs::c_string;
use crate::plan::sent_program::SentProgram;
use crate::plan::steps::Step;
use crate::plan::steps::identity::IdentityStep;
use crate::plan::steps::process::{ProcessStep, Rlimit};
use crate::plan::steps::start::{ExecTarget, StartStep};
use cofferdam_core::{ProgramFile, RunSpec};
use cofferdam_seccomp::interpret::lets_through;

/// The inotify instances of one sandbox. Each instance that watches a file slows down every access
/// to it, for all processes that share the file. Node, the JVM and bundlers have one for each event
/// loop or watcher, watchdog and .NET one for each directory tree watched.
const INOTIFY_INSTANCES_MAX: u32 = 8;
/// The inotify watches of one sandbox, one for each file or directory watched: the kernel's
/// default before Linux 5.11, enough for a tree of source files.
const INOTIFY_WATCHES_MAX: u32 = 8192;

/// The program of `spec`, to be sent to a sandbox that was prepared without one. None if it does not
/// fit, or its arguments do not name it.
pub fn program_to_send(spec: &RunSpec) -> Option<SentProgram> {
    let (ProgramFile::Named, None) = (&spec.program, &spec.without_shell) else { return None };
    let paths = executable_paths(&spec.argv, &spec.env);
    let workdir = c_string(spec.workdir.as_os_str());
    SentProgram::new(&paths, &spec.argv, &spec.env, &workdir)
}

/// The steps of the program's process.
pub fn program_steps(input: &PlanInput<'_>) -> Vec<Step> {
    let mut steps = session_steps(input);
    steps.extend(identity_steps(input));
    steps.extend([IdentityStep::ClearAmbientSet, IdentityStep::ClearCapabilities].map(Step::from));
    let is_sent = input.program == ProgramSource::Sent;
    if !is_sent {
        steps.push(ProcessStep::EnterDirectory { path: input.workdir.to_owned() }.into());
    }
    steps.push(IdentityStep::NoNewPrivileges.into());
    if let Some(landlock) = input.landlock {
        steps.extend(restrict_self_steps(landlock, c"/run/.refused"));
    }
    steps.push(StartStep::AwaitGuard.into());
    // Before the program waits to be resumed: some of these descriptors are mounts, and the kernel
    // takes its time to close a mount.
    steps.extend(close_steps(input.program).map(Step::from));
    // After the wait for the guard, which takes a file lock.
    let (before_wait, after_wait) = filter_steps(input.filter, input.locks, is_sent);
    steps.extend(before_wait);
    let open_files = input.limits.open_files_max;
    steps.extend([
        // Last of the limits: the steps above open files, however few the tenant may.
        ProcessStep::SetLimit { limit: Rlimit::OpenFiles, value: open_files }.into(),
        StartStep::ReportPrepared.into(),
    ]);
    if is_sent {
        steps.extend([StartStep::AwaitProgram, StartStep::EnterSentDirectory].map(Step::from));
    } else {
        steps.push(StartStep::AwaitRelease.into());
    }
    // The steps so far run with short slices, so that they need not wait for a busy CPU. The
    // tenant's program gets long ones.
    steps.extend(input.short_slices.then_some(ProcessStep::SetLongSlice.into()));
    steps.extend(after_wait);
    steps.push(StartStep::ReportReady.into());
    if is_sent {
        steps.push(StartStep::ExecSent.into());
        return steps;
    }
    let named = |argv| exec_command(ProgramSource::Named, argv, input);
    steps.extend(input.without_shell.map(|argv| StartStep::TryExec(named(argv)).into()));
    steps.push(StartStep::Exec(exec_command(input.program, input.argv, input)).into());
    steps
}

/// Groups, session, signals and standard input.
fn session_steps(input: &PlanInput<'_>) -> Vec<Step> {
    let first = TASKS_FD + input.task_files;
    let groups = first..first + input.program_task_files;
    let mut steps: Vec<ProcessStep> = groups.map(|fd| ProcessStep::JoinCgroup { fd }).collect();
    // After joining, so that the sandbox's own groups are the roots that the program sees.
    steps.extend([ProcessStep::UnshareCgroup, ProcessStep::NewSession]);
    steps.extend(input.terminal_fd.map(|_| ProcessStep::TakeTerminal));
    steps.push(ProcessStep::ResetSignals);
    // The supervisor opened the host's node, through a writable mount: a tenant could set its times.
    let has_null = input.root.devices.iter().any(|node| node.target.as_c_str() == c"dev/null");
    steps.extend((has_null && input.null_stdin).then_some(ProcessStep::OpenNullStdin));
    steps.into_iter().map(Step::from).collect()
}

/// The limits, the change to the tenant's ids, and the user namespace.
fn identity_steps(input: &PlanInput<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    if !input.unprivileged {
        steps.extend(limit_steps(input));
    }
    // When memory runs out, sandboxes go before the host's processes. Still as root: after the uid
    // change this file no longer belongs to the process.
    steps.push(write_proc(c"self/oom_score_adj", "1000"));
    let last_capability = input.last_capability;
    let drop_bounding_set = Step::from(IdentityStep::DropBoundingSet { last_capability });
    // A new user namespace restores the bounding set, so it is dropped inside the namespace.
    // Without one it is dropped before the uid change, which takes the right to do so.
    if !input.user_namespace {
        steps.push(drop_bounding_set.clone());
    }
    if !input.unprivileged {
        let (uid, gid) = (input.host_id, input.host_id);
        let ids =
            [IdentityStep::DropGroups, IdentityStep::SetGid { gid }, IdentityStep::SetUid { uid }];
        steps.extend(ids.map(Step::from));
    }
    if input.user_namespace {
        steps.extend(user_namespace_steps(input.host_id));
        steps.push(drop_bounding_set);
    }
    if input.unprivileged {
        // All sandboxes have the service's uid, and a limit set outside the user namespace bounds
        // all of them together. Inside, the kernel counts each sandbox on its own.
        steps.extend(limit_steps(input));
    }
    steps
}

/// Closes the sandbox's descriptors, except the one that the program is executed from, which exec
/// closes.
fn close_steps(program: ProgramSource<'_>) -> impl Iterator<Item = ProcessStep> {
    let first = RELEASE_FD.unsigned_abs() + 1;
    let mut steps = Vec::new();
    if let ProgramSource::Mounted { fd, .. } = program {
        let fd = fd.unsigned_abs();
        steps.push(ProcessStep::CloseRange { first, last: fd - 1 });
        steps.push(ProcessStep::CloseFrom { first: fd + 1 });
        steps.push(ProcessStep::CloseOnExec { first: fd, last: fd });
    } else {
        steps.push(ProcessStep::CloseFrom { first });
    }
    let (plan, status) = (PLAN_FD.unsigned_abs(), STATUS_FD.unsigned_abs());
    steps.push(ProcessStep::CloseRange { first: plan, last: plan });
    steps.push(ProcessStep::CloseOnExec { first: status, last: RELEASE_FD.unsigned_abs() });
    steps.into_iter()
}

fn exec_command(source: ProgramSource<'_>, argv: &[CString], input: &PlanInput<'_>) -> ExecTarget {
    let (fd, paths) = match source {
        ProgramSource::Named | ProgramSource::Sent => (None, executable_paths(argv, input.env)),
        ProgramSource::At(path) => (None, vec![path.to_owned()]),
        // By its descriptor if the filter allows it: then no process can exchange a directory on the
        // way to the path.
        ProgramSource::Mounted { fd, at } => {
            let fd = lets_through(input.filter, &[libc::SYS_execveat]).then_some(fd);
            (fd, vec![at.to_owned()])
        }
    };
    ExecTarget { fd, paths, argv: argv.to_vec(), env: input.env.to_vec() }
}

fn limit_steps(input: &PlanInput<'_>) -> impl Iterator<Item = Step> {
    let of_the_run = [
        (Rlimit::Processes, input.uid_processes_max),
        (Rlimit::Core, 0),
        (Rlimit::FileSize, input.limits.file_bytes_max),
    ];
    let limits = of_the_run.into_iter().chain(input.fixed_limits.iter().copied());
    limits.map(|(limit, value)| ProcessStep::SetLimit { limit, value }.into())
}

/// Enters the last namespace, created by the tenant's own host uid: the kernel then counts its
/// processes separately from every other sandbox's, and the one-line maps need neither a privilege
/// nor another process.
pub fn user_namespace_steps(host_id: u32) -> Vec<Step> {
    let map = format!("{INSIDE_ID} {host_id} 1\n");
    vec![
        // The uid change made the process undumpable, and so unable to write the maps.
        IdentityStep::MakeDumpable.into(),
        IdentityStep::UnshareUser.into(),
        write_proc(c"self/setgroups", "deny"),
        write_proc(c"self/gid_map", &map),
        write_proc(c"self/uid_map", &map),
        // Counted by user namespace since Linux 4.11. A kernel without inotify has neither file,
        // and creates no sandbox.
        write_proc(c"sys/user/max_inotify_instances", &INOTIFY_INSTANCES_MAX.to_string()),
        write_proc(c"sys/user/max_inotify_watches", &INOTIFY_WATCHES_MAX.to_string()),
        // In case the filter ever allows these calls: a process that cannot create a user
        // namespace gets no capability to create any other. The creator of a namespace may lower
        // the count until it gives up its capabilities.
        write_proc(c"sys/user/max_user_namespaces", "0"),
    ]
}

fn write_proc(file: &CStr, text: &str) -> Step {
    IdentityStep::WriteProc { file: file.to_owned(), text: c_string(OsStr::new(text)) }.into()
}

/// Where the program may be, in the order in which a shell looks.
fn executable_paths(argv: &[CString], env: &[CString]) -> Vec<CString> {
    let Some(program) = argv.first() else { return Vec::new() };
    let program = program.as_bytes();
    // An empty name is "not found", and not the directory it is looked for in.
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
