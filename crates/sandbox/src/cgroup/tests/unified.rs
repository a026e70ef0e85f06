//! Version 2 with its controllers, on a fake kernel.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use super::fake_kernel::{FakeKernel, ourselves};
use crate::cgroup::control::{CgroupVersion, ControlSupport};
use crate::cgroup::directory::CgroupFs;
use crate::cgroup::layout::CgroupLayout;
use crate::cgroup::limit_files::CpuClass;
use crate::cgroup::sweep::sweep_with;
use crate::cgroup::tree::CgroupTree;
use crate::cgroup::usage::MemoryPeak;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{Limits, SetupFailure};

const ALL: &str = "cpuset cpu io memory hugetlb pids";

fn layout_at(own: &Path) -> CgroupLayout {
    CgroupLayout { v1: Vec::new(), v2: Ok(own.to_owned()) }
}

fn open(kernel: &Arc<FakeKernel>, own: &str) -> Result<CgroupTree, SetupFailure> {
    open_as(kernel, own, "t")
}

fn open_as(
    kernel: &Arc<FakeKernel>,
    own: &str,
    instance: &str,
) -> Result<CgroupTree, SetupFailure> {
    let calls: Arc<dyn CgroupFs> = Arc::clone(kernel) as Arc<dyn CgroupFs>;
    CgroupTree::open_on(&layout_at(&kernel.path(own)), false, &calls, instance)
}

fn now() -> Deadline {
    Deadline::after(Duration::ZERO)
}

fn is_by_v2(support: &ControlSupport) -> bool {
    *support == ControlSupport { by: Some(CgroupVersion::V2), reason: None }
}

/// A container: its own group, which holds this process, looks like the root.
fn container() -> Arc<FakeKernel> {
    let kernel = FakeKernel::new(ALL);
    kernel.foreign_group("v2/box", ALL);
    kernel.put("v2/box/cgroup.procs", &ourselves());
    kernel
}

#[test]
fn in_the_hierarchys_root_controllers_are_handed_down_without_a_move() {
    let kernel = FakeKernel::new(ALL);
    kernel.put("v2/cgroup.procs", &format!("1\n{}", ourselves()));
    let mut tree = open(&kernel, "v2").unwrap();
    let support = tree.support();
    for control in
        [&support.memory, &support.processes, &support.cpu, &support.cpu_time, &support.kill]
    {
        assert!(is_by_v2(control), "{control:?}");
    }
    assert_eq!(
        kernel.calls(),
        [
            "mkdir v2/cofferdam-t",
            "v2/cgroup.subtree_control=+memory",
            "v2/cgroup.subtree_control=+pids",
            "v2/cgroup.subtree_control=+cpu",
            "v2/cofferdam-t/cgroup.subtree_control=+memory",
            "v2/cofferdam-t/cgroup.subtree_control=+pids",
            "v2/cofferdam-t/cgroup.subtree_control=+cpu",
        ]
    );
    assert_eq!(tree.directories(), [kernel.path("v2/cofferdam-t")]);
    tree.close(now()).unwrap();
    assert_eq!(kernel.calls(), ["rmdir v2/cofferdam-t"]);
}

#[test]
fn an_enabled_controller_is_not_written_again() {
    let kernel = FakeKernel::new(ALL);
    kernel.put("v2/cgroup.subtree_control", "cpu memory pids\n");
    let tree = open(&kernel, "v2").unwrap();
    assert!(is_by_v2(&tree.support().memory));
    assert!(!kernel.calls().iter().any(|call| call.starts_with("v2/cgroup.subtree_control")));
}

#[test]
fn in_a_container_the_process_moves_to_a_leaf_first_and_back_at_the_end() {
    let kernel = container();
    let mut tree = open(&kernel, "v2/box").unwrap();
    assert!(is_by_v2(&tree.support().memory), "{:?}", tree.support());
    assert!(is_by_v2(&tree.support().cpu));
    assert_eq!(kernel.text("v2/box/cofferdam-t-supervisor/cgroup.procs"), ourselves());
    assert_eq!(kernel.text("v2/box/cgroup.procs"), "");
    assert_eq!(kernel.text("v2/box/cofferdam-t-supervisor/cpu.weight"), "10000");
    let calls = kernel.calls();
    let at = |call: &str| calls.iter().position(|c| c == call).unwrap();
    assert!(
        at("mkdir v2/box/cofferdam-t-supervisor")
            < at("v2/box/cofferdam-t-supervisor/cgroup.procs=0")
    );
    // The file exists only after the controller is enabled for the leaf.
    assert!(
        at("v2/box/cofferdam-t/cgroup.subtree_control=+cpu")
            < at("v2/box/cofferdam-t-supervisor/cpu.weight=10000")
    );
    assert!(!calls.iter().any(|call| call.starts_with("v2/cgroup.")), "a foreign group: {calls:?}");

    tree.close(now()).unwrap();
    assert_eq!(kernel.text("v2/box/cgroup.procs"), ourselves());
    assert_eq!(kernel.text("v2/box/cgroup.subtree_control").trim(), "");
    assert!(!kernel.path("v2/box/cofferdam-t").exists());
}

#[test]
fn other_processes_in_our_group_are_left_alone_and_named_as_the_reason() {
    let kernel = container();
    kernel.put("v2/box/cgroup.procs", &format!("1\n{}", ourselves()));
    let tree = open(&kernel, "v2/box").unwrap();
    let memory = tree.support().memory.clone();
    assert_eq!(memory.by, None);
    let reason = memory.reason.unwrap();
    assert!(reason.contains("v2/box/cgroup.procs: other processes live"), "{reason}");
    assert!(reason.contains("cgroup1: not mounted"), "{reason}");
    assert!(is_by_v2(&tree.support().kill));
    assert_eq!(kernel.text("v2/box/cgroup.procs"), format!("1\n{}", ourselves()));
    assert_eq!(kernel.calls(), ["mkdir v2/box/cofferdam-t"], "something was tried all the same");
    drop(tree);
    assert!(!kernel.path("v2/box/cofferdam-t").exists());
}

#[test]
fn a_controller_that_is_refused_is_named_with_file_and_errno_and_the_others_work() {
    let table = [
        ("v2/cgroup.subtree_control", Errno::EACCES, "v2/cgroup.subtree_control: EACCES"),
        (
            "v2/cofferdam-t/cgroup.subtree_control",
            Errno::EROFS,
            "v2/cofferdam-t/cgroup.subtree_control: EROFS",
        ),
        ("v2/cofferdam-t", Errno::EROFS, "v2/cofferdam-t: EROFS"),
        ("v2/cofferdam-t", Errno::EACCES, "v2/cofferdam-t: EACCES"),
    ];
    for (what, errno, said) in table {
        let kernel = FakeKernel::new(ALL);
        kernel.refuse(what, errno);
        let tree = open(&kernel, "v2").unwrap();
        let reason = tree.support().memory.reason.clone().unwrap();
        assert!(reason.contains(said), "{reason}");
        assert_eq!(is_by_v2(&tree.support().kill), what.ends_with("control"), "{what}");
    }
    let kernel = FakeKernel::new("cpu memory");
    let tree = open(&kernel, "v2").unwrap();
    assert!(is_by_v2(&tree.support().memory));
    let reason = tree.support().processes.reason.clone().unwrap();
    assert!(reason.contains("cgroup.controllers does not list it"), "{reason}");
}

#[test]
fn the_process_moves_even_if_only_threaded_controllers_are_offered() {
    let kernel = FakeKernel::new(ALL);
    kernel.foreign_group("v2/box", "pids");
    kernel.put("v2/box/cgroup.procs", &ourselves());
    let tree = open(&kernel, "v2/box").unwrap();
    assert!(is_by_v2(&tree.support().processes), "{:?}", tree.support());
    assert_eq!(kernel.text("v2/box/cofferdam-t/cgroup.type"), "domain\n");
    assert_eq!(kernel.text("v2/box/cofferdam-t-supervisor/cgroup.procs"), ourselves());
}

#[test]
fn below_a_threaded_group_no_control_is_reported() {
    let kernel = FakeKernel::new(ALL);
    kernel.foreign_group("v2/box", "");
    kernel.put("v2/box/cgroup.type", "domain threaded\n");
    let tree = open(&kernel, "v2/box").unwrap();
    let kill = tree.support().kill.clone();
    assert_eq!(kill.by, None);
    let reason = kill.reason.unwrap();
    assert!(reason.contains("cofferdam-t/cgroup.type: EOPNOTSUPP"), "{reason}");
    assert!(!kernel.path("v2/box/cofferdam-t").exists());
}

#[test]
fn a_move_without_effect_is_undone() {
    let kernel = container();
    kernel.refuse("v2/box/cgroup.subtree_control", Errno::EBUSY);
    let tree = open(&kernel, "v2/box").unwrap();
    let reason = tree.support().memory.reason.clone().unwrap();
    assert!(reason.contains("v2/box/cgroup.subtree_control: EBUSY"), "{reason}");
    assert!(is_by_v2(&tree.support().kill));
    assert_eq!(kernel.text("v2/box/cgroup.procs"), ourselves());
    assert!(!kernel.path("v2/box/cofferdam-t-supervisor").exists());
}

#[test]
fn a_group_that_is_busy_with_an_ending_thread_is_retried() {
    let kernel = container();
    kernel.refuse_times("v2/box/cgroup.subtree_control", Errno::EBUSY, 3);
    let tree = open(&kernel, "v2/box").unwrap();
    let support = tree.support();
    for control in [&support.memory, &support.processes, &support.cpu] {
        assert!(is_by_v2(control), "{control:?}");
    }
}

#[test]
fn the_process_stays_where_it_was_if_it_cannot_enter_the_leaf() {
    let kernel = container();
    kernel.refuse("v2/box/cofferdam-t-supervisor/cgroup.procs", Errno::EACCES);
    let tree = open(&kernel, "v2/box").unwrap();
    let reason = tree.support().memory.reason.clone().unwrap();
    assert!(reason.contains("supervisor/cgroup.procs: EACCES"), "{reason}");
    assert_eq!(kernel.text("v2/box/cgroup.procs"), ourselves());
    assert!(!kernel.path("v2/box/cofferdam-t-supervisor").exists());
}

#[test]
fn the_limits_of_a_sandbox_are_exactly_these_writes() {
    let kernel = FakeKernel::new(ALL);
    let tree = open(&kernel, "v2").unwrap();
    kernel.calls();
    let limits =
        Limits { memory_bytes_max: 1 << 26, cpus_milli_max: Some(500), ..Limits::default() };
    let mut made = tree.create("b1", &limits).unwrap();
    assert_eq!(
        kernel.calls(),
        [
            "mkdir v2/cofferdam-t/b1",
            "v2/cofferdam-t/b1/memory.max=67108864",
            "v2/cofferdam-t/b1/memory.swap.max=0",
            "v2/cofferdam-t/b1/pids.max=257",
            "v2/cofferdam-t/b1/cpu.weight=1000",
            "v2/cofferdam-t/b1/cpu.max=50000 100000",
        ]
    );
    assert!(made.clone_into().is_some());
    assert!(made.task_files().is_empty());
    let usage = made.usage(true);
    let peak = MemoryPeak { bytes: 1_048_576, source: CgroupVersion::V2 };
    assert_eq!(usage.memory_peak, Some(peak));
    assert_eq!(usage.cpu, Some(Duration::from_micros(1_500)));
    assert_eq!((usage.processes_peak, usage.processes_refused), (Some(7), 3));
    assert_eq!((usage.oom_kills, usage.memory_refused), (Some(1), 1));
    made.set_cpu_class(CpuClass::Long);
    assert!(made.kill().unwrap());
    made.remove(now()).unwrap();
    assert_eq!(
        kernel.calls(),
        [
            "v2/cofferdam-t/b1/cpu.weight=25",
            "v2/cofferdam-t/b1/cpu.max=max",
            "v2/cofferdam-t/b1/cpu.weight=1000",
            "v2/cofferdam-t/b1/cgroup.kill=1",
            "rmdir v2/cofferdam-t/b1",
        ]
    );
}

#[test]
fn a_cpu_quota_that_cannot_be_lifted_does_not_prevent_the_kill() {
    let kernel = FakeKernel::new(ALL);
    let tree = open(&kernel, "v2").unwrap();
    let limits = Limits { cpus_milli_max: Some(500), ..Limits::default() };
    let made = tree.create("b1", &limits).unwrap();
    kernel.refuse("v2/cofferdam-t/b1/cpu.max", Errno::EPERM);
    assert!(made.kill().unwrap());
    assert_eq!(kernel.text("v2/cofferdam-t/b1/cgroup.kill"), "1");
}

#[test]
fn a_refused_limit_fails_the_creation_with_its_step_and_leaves_nothing() {
    let table = [
        ("memory.max", "cgroup memory", Errno::EACCES),
        ("pids.max", "cgroup pids", Errno::EBUSY),
        ("cpu.max", "cgroup cpu", Errno::EINVAL),
        ("memory.swap.max", "cgroup memory", Errno::EPERM),
    ];
    let kernel = FakeKernel::new(ALL);
    let tree = open(&kernel, "v2").unwrap();
    for (sandbox_name, (file, step, errno)) in ["b1", "b2", "b3", "b4"].into_iter().zip(table) {
        kernel.refuse(&format!("v2/cofferdam-t/{sandbox_name}/{file}"), errno);
        let limits = Limits { cpus_milli_max: Some(1_000), ..Limits::default() };
        let failure = tree.create(sandbox_name, &limits).unwrap_err();
        assert_eq!(failure, SetupFailure::from_errno(step, errno as i32));
        assert!(!kernel.path(&format!("v2/cofferdam-t/{sandbox_name}")).exists());
    }
}

#[test]
fn unlimited_swap_is_reported_only_if_there_is_swap() {
    for swap_is_on in [false, true] {
        let kernel = FakeKernel::new(ALL);
        kernel.without("memory.swap.max");
        let layout = layout_at(&kernel.path("v2"));
        let calls: Arc<dyn CgroupFs> = Arc::clone(&kernel) as Arc<dyn CgroupFs>;
        let tree = CgroupTree::open_on(&layout, swap_is_on, &calls, "t").unwrap();
        let memory = &tree.support().memory;
        assert_eq!(memory.by, Some(CgroupVersion::V2));
        assert_eq!(memory.reason.is_some(), swap_is_on, "{memory:?}");
        tree.create("b1", &Limits::default()).unwrap();
    }
}

#[test]
fn without_cgroup_kill_the_group_is_frozen_killed_and_thawed() {
    let kernel = FakeKernel::new(ALL);
    kernel.without("cgroup.kill");
    let tree = open(&kernel, "v2").unwrap();
    assert!(is_by_v2(&tree.support().kill));
    let made = tree.create("b1", &Limits::default()).unwrap();
    let mut victim = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    kernel.put("v2/cofferdam-t/b1/cgroup.procs", &format!("0\n{}\n", victim.id()));
    kernel.calls();
    assert!(made.kill().unwrap());
    assert_eq!(
        kernel.calls(),
        [
            "v2/cofferdam-t/b1/cpu.weight=1000",
            "v2/cofferdam-t/b1/cgroup.kill=1",
            "v2/cofferdam-t/b1/cgroup.freeze=1",
            "v2/cofferdam-t/b1/cgroup.freeze=0"
        ]
    );
    let status = victim.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    kernel.put("v2/cofferdam-t/b1/cgroup.procs", "");
}

#[test]
fn a_name_in_use_or_out_of_bounds_is_refused() {
    let kernel = FakeKernel::new(ALL);
    let tree = open(&kernel, "v2").unwrap();
    assert_eq!(open(&kernel, "v2").unwrap_err().errno, Some(libc::EEXIST));
    let first = tree.create("b1", &Limits::default()).unwrap();
    let again = tree.create("b1", &Limits::default()).unwrap_err();
    assert_eq!(again, SetupFailure::from_errno("cgroup memory", libc::EEXIST));
    assert!(kernel.path("v2/cofferdam-t/b1").exists(), "the first box was removed");
    drop(first);
    let long = "x".repeat(65);
    for name in ["", ".", "..", "a/b", "memory.max", "tasks", "a\0b", &long] {
        assert!(tree.create(name, &Limits::default()).is_err(), "{name:?}");
    }
}

#[test]
fn a_busy_group_is_retried_until_the_deadline_and_then_named() {
    let kernel = FakeKernel::new(ALL);
    let tree = open(&kernel, "v2").unwrap();
    let mut made = tree.create("b1", &Limits::default()).unwrap();
    kernel.refuse("v2/cofferdam-t/b1", Errno::EBUSY);
    let error = made.remove(Deadline::after(Duration::from_millis(50))).unwrap_err();
    assert_eq!((error.path, error.errno), (kernel.path("v2/cofferdam-t/b1"), Errno::EBUSY));
    let tries = kernel.calls().iter().filter(|c| *c == "rmdir v2/cofferdam-t/b1").count();
    assert!(tries >= 2, "{tries}");
}

#[test]
fn controllers_stay_enabled_while_a_sandbox_lives() {
    let kernel = container();
    let mut tree = open(&kernel, "v2/box").unwrap();
    let mut made = tree.create("b1", &Limits::default()).unwrap();
    assert_eq!(tree.close(now()).unwrap_err().errno, Errno::EBUSY);
    assert!(kernel.text("v2/box/cofferdam-t/cgroup.subtree_control").contains("memory"));
    made.remove(now()).unwrap();
}

#[test]
fn a_sweep_takes_the_deepest_directory_first_and_nothing_that_is_not_ours() {
    let kernel = FakeKernel::new(ALL);
    let calls: Arc<dyn CgroupFs> = Arc::clone(&kernel) as Arc<dyn CgroupFs>;
    for group in ["v2/cofferdam-dead/b1", "v2/cofferdam-dead", "v2/other"] {
        kernel.foreign_group(group, "");
    }
    let swept = sweep_with(&calls, &kernel.path("v2/cofferdam-dead"), now()).unwrap();
    assert_eq!((swept.processes_killed, swept.directories_removed), (0, 2));
    assert_eq!(kernel.calls(), ["rmdir v2/cofferdam-dead/b1", "rmdir v2/cofferdam-dead"]);

    let gone = sweep_with(&calls, &kernel.path("v2/cofferdam-dead"), now()).unwrap();
    assert_eq!(gone.directories_removed, 0);

    kernel.foreign_group("elsewhere/cofferdam-x", "");
    kernel.foreign_group("v2/cofferdam-us", "");
    kernel.put("v2/cofferdam-us/cgroup.procs", &format!("{}\n", std::process::id()));
    let table = [
        ("v2/other", Errno::EINVAL),
        ("v2/cofferdam-us/..", Errno::EINVAL),
        ("elsewhere/cofferdam-x", Errno::EOPNOTSUPP),
        ("v2/cofferdam-us", Errno::EDEADLK),
    ];
    for (path, errno) in table {
        let error = sweep_with(&calls, &kernel.path(path), now()).unwrap_err();
        assert_eq!(error.errno, errno, "{path}");
        assert!(kernel.path(path).exists());
    }
    assert!(kernel.calls().is_empty());
}

#[test]
fn two_trees_of_one_process_are_beside_each_other_and_close_in_any_order() {
    for first_closed in [0, 1] {
        let kernel = container();
        let leaf = "v2/box/cofferdam-t-supervisor";
        let first = open(&kernel, "v2/box").unwrap();
        // A child of this process, such as the holder of a namespace, lives there too.
        kernel.put(&format!("{leaf}/cgroup.procs"), &format!("1\n{}", ourselves()));
        let second = open_as(&kernel, leaf, "u").unwrap();
        assert!(is_by_v2(&second.support().memory), "{:?}", second.support());
        assert_eq!(second.directories()[0], kernel.path("v2/box/cofferdam-u"));
        assert!(second.directories().contains(&kernel.path(leaf)));
        kernel.put(&format!("{leaf}/cgroup.procs"), &ourselves());

        let mut trees = [first, second];
        trees[first_closed].close(now()).unwrap();
        assert_eq!(kernel.text(&format!("{leaf}/cgroup.procs")), ourselves());
        trees[1 - first_closed].close(now()).unwrap();
        assert_eq!(kernel.text("v2/box/cgroup.procs"), ourselves());
        assert_eq!(kernel.text("v2/box/cgroup.subtree_control").trim(), "");
        for gone in [leaf, "v2/box/cofferdam-t", "v2/box/cofferdam-u"] {
            assert!(!kernel.path(gone).exists(), "{gone}");
        }
    }
}
