//! The order of the steps that create a sandbox. Needs no privilege, because a plan is data.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_core::Limits;
use cofferdam_sandbox::engine::builtin_profile;
use cofferdam_sandbox::landlock::Landlock;
use cofferdam_sandbox::locks::{LockCalls, LockFilter};
use cofferdam_sandbox::plan::rootfs;
use cofferdam_sandbox::plan::rootfs::{MaskedPath, PathKind, RootLayout};
use cofferdam_sandbox::plan::{ChildPlan, PlanInput, PlannedTmpfs, ProgramSource, build};
use cofferdam_seccomp::profile::Profile;

fn layout(profile: &Profile) -> RootLayout {
    let entries = ["etc", "usr"].map(|name| (name.to_owned(), PathKind::Directory));
    rootfs::layout(Path::new("/"), &entries, &profile.root, &[], &|_| None)
}

fn plan(user_namespace: bool) -> ChildPlan {
    plan_where(user_namespace, true)
}

fn plan_where(user_namespace: bool, landlock: bool) -> ChildPlan {
    plan_of("default", user_namespace, landlock, false)
}

fn unprivileged_plan() -> ChildPlan {
    plan_of("default", true, true, true)
}

/// A plan whose program is a file to be attached over another.
fn plan_of_a_file(profile: &Profile) -> ChildPlan {
    let program = ProgramSource::Mounted { fd: 12, at: c"/usr/bin/make" };
    plan_with(profile, program, true, true, false)
}

fn plan_of(profile: &str, user_namespace: bool, landlock: bool, unprivileged: bool) -> ChildPlan {
    let profile = builtin_profile(profile).unwrap();
    plan_with(&profile, ProgramSource::Named, user_namespace, landlock, unprivileged)
}

fn plan_with(
    profile: &Profile,
    program: ProgramSource<'_>,
    user_namespace: bool,
    landlock: bool,
    unprivileged: bool,
) -> ChildPlan {
    let root = layout(profile);
    build(&PlanInput {
        filter: &profile.filter,
        locks: &LockFilter::new(LockCalls::Watched),
        init_filter: &builtin_profile("init").unwrap().filter,
        root: &root,
        masked: &[MaskedPath { target: c"etc/ssh".to_owned(), directory: true }],
        argv: &[c"make".to_owned(), c"test".to_owned()],
        program,
        without_shell: Some(&[c"true".to_owned()]),
        env: &[c"PATH=/usr/bin:/bin".to_owned()],
        workdir: c"/workspace",
        limits: &Limits::default(),
        uid_processes_max: 64,
        fixed_limits: &[],
        host_id: 56_000,
        user_namespace,
        unprivileged,
        landlock: landlock.then(|| Landlock::from_answer(Ok(7)).unwrap()),
        message_queues: true,
        task_files: 2,
        program_task_files: 1,
        net_fd: (!unprivileged).then_some(9),
        root_fd: None,
        unowned_fd: None,
        terminal_fd: None,
        null_stdin: true,
        short_slices: true,
        mountpoint: c"/tmp",
        last_capability: 40,
        trees: &[],
        layers: &[],
        tmpfs: &[PlannedTmpfs { target: c"/scratch".to_owned(), bytes_max: 1 << 20 }],
        overlay: !unprivileged,
        workspace: None,
    })
    .unwrap()
}

/// The names of the steps of all three stages.
fn names(plan: &ChildPlan) -> Vec<String> {
    let stages = [&plan.setup, &plan.program, &plan.guard];
    let count = stages.iter().map(|stage| stage.len()).sum::<usize>();
    (0..u32::try_from(count).unwrap()).map(|index| plan.step_name(index)).collect()
}

#[test]
fn the_first_stage_joins_groups_then_unshares_then_mounts() {
    let plan = plan(true);
    let names = &names(&plan)[..plan.setup.len()];
    let without_masks: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !name.starts_with("mask /proc")).collect();
    assert_eq!(
        without_masks,
        [
            "scheduling",
            "join cgroup",
            "join cgroup",
            "net namespace",
            "private mounts",
            "bind /etc",
            "bind /usr",
            "bind /dev/null",
            "bind /dev/zero",
            "bind /dev/full",
            "bind /dev/random",
            "bind /dev/urandom",
            "mount root",
            "mount /proc",
            "pivot_root",
            "attach /etc",
            "attach /usr",
            "attach /dev/null",
            "attach /dev/zero",
            "attach /dev/full",
            "attach /dev/random",
            "attach /dev/urandom",
            "mount overlay /workspace",
            "mount tmpfs /scratch",
            "mask /etc/ssh",
            "landlock rules",
            "landlock rule /",
            "landlock rule /dev/null",
            "landlock rule /dev/zero",
            "landlock rule /dev/full",
            "landlock rule /dev/random",
            "landlock rule /dev/urandom",
            "landlock rule /workspace",
            "landlock rule /tmp",
            "landlock rule /run",
            "landlock rule /dev/shm",
            "landlock rule /var/tmp",
            "landlock rule /scratch",
            "landlock queues",
            "landlock rule /.overlay/queues",
            "set hostname",
            "umask",
            "hold program",
        ]
    );
    assert!(names.iter().any(|name| name == "mask /proc/kcore"), "{names:?}");
}

#[test]
fn the_programs_stage_drops_privileges_in_order() {
    let plan = plan(true);
    let names = &names(&plan)[plan.setup.len()..plan.setup.len() + plan.program.len()];
    assert_eq!(
        names,
        [
            "join cgroup",
            "cgroup namespace",
            "setsid",
            "reset signals",
            "stdin",
            "rlimit processes",
            "rlimit core",
            "rlimit filesize",
            "write /proc/self/oom_score_adj",
            "setgroups",
            "setresgid",
            "setresuid",
            "set dumpable",
            "user namespace",
            "write /proc/self/setgroups",
            "write /proc/self/gid_map",
            "write /proc/self/uid_map",
            "write /proc/sys/user/max_inotify_instances",
            "write /proc/sys/user/max_inotify_watches",
            "write /proc/sys/user/max_user_namespaces",
            "drop bounding set",
            "clear ambient set",
            "capset",
            "workdir /workspace",
            "no_new_privs",
            "landlock",
            "landlock proof",
            "await init",
            "close descriptors",
            "close descriptors",
            "close descriptors",
            "seccomp default and locks",
            "rlimit openfiles",
            "report standing",
            "await release",
            "time slice",
            "report",
            "exec without a shell",
            "exec",
        ]
    );
}

#[test]
fn the_init_stage_closes_descriptors_before_it_drops_privileges() {
    let plan = plan(true);
    let names = names(&plan).split_off(plan.setup.len() + plan.program.len());
    assert_eq!(
        names,
        [
            "close descriptors",
            "close descriptors",
            "set dumpable",
            "capset",
            "no_new_privs",
            "seccomp init",
            "release program",
        ]
    );
}

#[test]
fn each_step_comes_after_what_it_needs() {
    // The dependencies that determine the order.
    let needs = [
        ("scheduling", "join cgroup"),
        ("join cgroup", "cgroup namespace"),
        ("cgroup namespace", "setresuid"),
        ("private mounts", "mount root"),
        // In a user namespace the kernel compares it with the old root's.
        ("mount /proc", "pivot_root"),
        ("bind /etc", "pivot_root"),
        ("pivot_root", "attach /etc"),
        ("write /proc/self/oom_score_adj", "setresuid"),
        ("mount /proc", "write /proc/self/uid_map"),
        ("user namespace", "write /proc/sys/user/max_user_namespaces"),
        ("user namespace", "write /proc/sys/user/max_inotify_instances"),
        ("rlimit processes", "setresuid"),
        ("setgroups", "setresgid"),
        ("setresgid", "setresuid"),
        ("setresuid", "user namespace"),
        ("user namespace", "drop bounding set"),
        ("drop bounding set", "capset"),
        ("capset", "workdir /workspace"),
        ("capset", "no_new_privs"),
        // Init waits on a lock, for which no listener answers yet.
        ("await init", "seccomp default and locks"),
        // The listener gets the lowest free number, which is below any limit.
        ("close descriptors", "seccomp default and locks"),
        ("seccomp default and locks", "rlimit openfiles"),
        ("seccomp default and locks", "report standing"),
        ("await release", "time slice"),
        ("no_new_privs", "seccomp default and locks"),
        ("mount tmpfs /scratch", "landlock rule /scratch"),
        ("mount overlay /workspace", "landlock rule /workspace"),
        ("write /proc/sys/user/max_user_namespaces", "capset"),
        ("write /proc/sys/user/max_inotify_watches", "capset"),
        ("no_new_privs", "landlock"),
        ("landlock", "landlock proof"),
        ("landlock proof", "seccomp default and locks"),
        ("seccomp default and locks", "exec"),
    ];
    let names = names(&plan(true));
    let position = |wanted: &str| names.iter().position(|name| name == wanted);
    for (first, then) in needs {
        let (Some(at), Some(then_at)) = (position(first), position(then)) else {
            panic!("{first} or {then} is not in {names:?}");
        };
        assert!(at < then_at, "{first} comes after {then}");
    }
    let last = names.iter().position(|name| name == "exec").unwrap();
    assert_eq!(names[last - 2..=last], ["report", "exec without a shell", "exec"]);
}

#[test]
fn without_user_namespaces_only_their_steps_are_missing() {
    let with = names(&plan(true));
    let without = names(&plan(false));
    let theirs: Vec<&String> = with.iter().filter(|name| !without.contains(name)).collect();
    assert!(without.iter().all(|name| with.contains(name)));
    assert!(theirs.iter().any(|name| *name == "user namespace"), "{theirs:?}");
    assert!(
        without.iter().any(|name| name == "write /proc/self/oom_score_adj"),
        "boxes go first when memory runs out, mapped or not"
    );
}

#[test]
fn without_landlock_only_its_steps_are_missing() {
    let with = names(&plan(true));
    let without = names(&plan_where(true, false));
    let rest: Vec<&String> = with.iter().filter(|name| !name.starts_with("landlock")).collect();
    assert!(rest.len() < with.len());
    assert_eq!(rest, without.iter().collect::<Vec<_>>());
}

#[test]
fn a_rootless_plan_seals_the_root_and_sets_limits_after_the_user_namespace() {
    let plan = unprivileged_plan();
    let names = names(&plan);
    for ids in ["setgroups", "setresgid", "setresuid", "net namespace", "mount overlay /workspace"]
    {
        assert!(!names.iter().any(|name| name == ids), "{ids} needs privileges");
    }
    let needs = [
        ("bind /etc", "mount root"),
        ("mount root", "bind workspace"),
        ("bind dev/shm", "seal root"),
        // The kernel compares it with the old root's.
        ("seal root", "mount /proc"),
        ("mount /proc", "pivot_root"),
        ("pivot_root", "attach /workspace"),
        ("attach /workspace", "attach /etc"),
        ("attach /workspace", "mask /etc/ssh"),
        ("user namespace", "rlimit processes"),
        ("rlimit processes", "await init"),
        ("user namespace", "drop bounding set"),
        ("seccomp default and locks", "exec"),
    ];
    let position = |wanted: &str| names.iter().position(|name| name == wanted);
    for (first, then) in needs {
        let (Some(at), Some(then_at)) = (position(first), position(then)) else {
            panic!("{first} or {then} is not in {names:?}");
        };
        assert!(at < then_at, "{first} comes after {then}");
    }
}

#[test]
fn every_step_has_a_unique_name() {
    // Several calls with the same purpose. Which of them failed does not matter.
    let repeated = ["join cgroup", "close descriptors", "set dumpable", "capset", "no_new_privs"];
    let mut counts = BTreeMap::<String, usize>::new();
    names(&plan(true)).into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
    for (name, count) in counts {
        assert!(
            count == 1 || repeated.contains(&name.as_str()),
            "{count} steps are called {name:?}"
        );
    }
}

#[test]
fn a_program_is_searched_in_the_path_of_its_environment() {
    let exec = format!("{:?}", plan(true).program.last().unwrap());
    assert!(exec.contains(r#"paths: ["/usr/bin/make", "/bin/make"]"#), "{exec}");
}

#[test]
fn a_program_given_by_path_is_not_searched() {
    let profile = builtin_profile("default").unwrap();
    let plan = plan_with(&profile, ProgramSource::At(c"/opt/x"), true, true, false);
    let exec = format!("{:?}", plan.program.last().unwrap());
    assert!(exec.contains(r#"fd: None, paths: ["/opt/x"], argv: ["make", "test"]"#), "{exec}");
    assert_eq!(names(&plan), names(&self::plan(true)));
}

#[test]
fn a_program_file_is_attached_after_masking_and_kept_open_until_exec() {
    let profile = builtin_profile("default").unwrap();
    let (with, without) = (plan_of_a_file(&profile), plan(true));
    let attach = "attach program /usr/bin/make";
    let setup = &names(&with)[..with.setup.len()];
    let at = setup.iter().position(|name| name == attach).unwrap();
    assert_eq!(setup[at - 1..=at + 1], ["mask /etc/ssh", attach, "landlock rules"]);
    let others = setup.iter().filter(|name| *name != attach).cloned().collect::<Vec<_>>();
    assert_eq!(others, names(&without)[..without.setup.len()]);
    assert_eq!(with.guard, without.guard);

    let closes: Vec<String> = with
        .program
        .iter()
        .filter(|step| step.name() == "close descriptors")
        .map(|step| format!("{step:?}"))
        .collect();
    assert_eq!(
        closes,
        [
            "Process(CloseRange { first: 6, last: 11 })",
            "Process(CloseFrom { first: 13 })",
            "Process(CloseOnExec { first: 12, last: 12 })",
            "Process(CloseRange { first: 4, last: 4 })",
            "Process(CloseOnExec { first: 3, last: 5 })",
        ]
    );
    let exec = format!("{:?}", with.program.last().unwrap());
    assert!(exec.contains(r#"fd: Some(12), paths: ["/usr/bin/make"]"#), "{exec}");
    // The step that is tried first still looks the file up by path.
    let tried = format!("{:?}", with.program[with.program.len() - 2]);
    assert!(tried.contains(r#"fd: None, paths: ["/usr/bin/true", "/bin/true"]"#), "{tried}");
}

#[test]
fn a_filter_without_execveat_executes_the_file_by_path() {
    let mut profile = builtin_profile("default").unwrap();
    // Reduces the filter to one verdict, which does not allow.
    let verdict = |code, k| code == 0x06 && k != 0x7fff_0000;
    profile.filter.program.retain(|instruction| verdict(instruction.code, instruction.k));
    profile.filter.program.truncate(1);
    let exec = format!("{:?}", plan_of_a_file(&profile).program.last().unwrap());
    assert!(exec.contains(r#"fd: None, paths: ["/usr/bin/make"]"#), "{exec}");
}

#[test]
fn a_filter_that_refuses_the_remaining_steps_is_installed_after_them() {
    let plan = plan_of("strict-native", true, true, false);
    let names = names(&plan);
    let last = names.iter().position(|name| name == "exec").unwrap();
    let end = ["await release", "time slice", "seccomp strict-native", "report"];
    assert_eq!(names[last - 5..last - 1], end);
}

#[test]
fn a_filter_that_refuses_to_send_the_listener_is_installed_after_it() {
    let text = r#"
        name = "mute"
        description = "Sends nothing."
        extends = "default"
        [[seccomp.layer]]
        name = "mute"
        [[seccomp.layer.entry]]
        syscalls = ["sendmsg"]
        action = { errno = "EPERM" }
        reason = "A sample."
    "#;
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/sandbox-profiles/default.toml");
    let profile = Profile::parse(text, |_| std::fs::read_to_string(shipped).ok()).unwrap();
    let names = names(&plan_with(&profile, ProgramSource::Named, true, true, false));
    let first = names.iter().position(|name| name == "seccomp locks").unwrap();
    let ahead = ["seccomp locks", "seccomp mute", "rlimit openfiles", "report standing"];
    assert_eq!(names[first..first + ahead.len()], ahead);
}
