//! The CPU share of a sandbox, on the host that runs the tests.

use std::fs;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::cgroup::SandboxGroup;
use crate::cgroup::control::CgroupVersion;
use crate::cgroup::limit_files::CpuClass;
use crate::cgroup::tests::host::{close, soon, spawn_in, trees};
use cofferdam_core::Limits;

#[test]
fn a_share_of_the_cpus_throttles() {
    for tree in trees("cpu") {
        let limits = Limits { cpus_milli_max: Some(200), ..Limits::default() };
        let made = tree.create("b", &limits).unwrap();
        let started = Instant::now();
        let mut child = spawn_in(&made, "timeout 1 sh -c 'while :; do :; done'");
        child.wait().unwrap();
        let wall = started.elapsed();
        let used = made.cpu_time().unwrap();
        assert!(used > wall / 20, "{used:?} of {wall:?}: the loop never ran");
        assert!(used < wall * 2 / 5, "{used:?} of {wall:?}: not throttled to a fifth");
        // The kernel may still count the end of what has died: each read is at least the one before.
        let told = made.usage(true).cpu.unwrap();
        assert!(used <= told && told <= made.cpu_time().unwrap(), "{used:?}, then {told:?}");
        close(tree, made);
    }
}

#[test]
fn sandboxes_of_one_class_weigh_the_same_and_long_runs_less() {
    for tree in trees("weight") {
        let (file, young, old) = match tree.support().cpu.by {
            Some(CgroupVersion::V2) => ("cpu.weight", "100", "25"),
            _ => ("cpu.shares", "1024", "256"),
        };
        let weight_of = |name: &str| {
            let mut groups = tree.directories().into_iter().map(|top| top.join(name).join(file));
            fs::read_to_string(groups.find(|file| file.exists()).unwrap()).unwrap()
        };
        let made = tree.create("b", &Limits::default()).unwrap();
        let quota = Limits { cpus_milli_max: Some(500), ..Limits::default() };
        let bounded = tree.create("c", &quota).unwrap();
        assert_eq!(weight_of("b"), weight_of("c"));
        made.set_cpu_class(CpuClass::Short);
        bounded.set_cpu_class(CpuClass::Short);
        assert_eq!((weight_of("b").trim(), weight_of("c").trim()), (young, young));
        bounded.set_cpu_class(CpuClass::Long);
        assert_eq!((weight_of("b").trim(), weight_of("c").trim()), (young, old));
        drop(bounded);
        close(tree, made);
    }
}

/// The CPU time of two sandboxes that kept one CPU busy, measured until both together have used
/// some: the first with one process, the second with `processes`.
fn shares_of_one_cpu(first: &SandboxGroup, second: &SandboxGroup, processes: u32) -> (f64, f64) {
    let spin = |count: u32| format!("{}wait", "(while :; do :; done) & ".repeat(count as usize));
    let mut children = std::thread::scope(|scope| {
        let pinned = scope.spawn(|| {
            let this = Pid::from_raw(0);
            let ours = sched_getaffinity(this).unwrap();
            let cpu = (0..CpuSet::count()).find(|cpu| ours.is_set(*cpu).unwrap()).unwrap();
            let mut one = CpuSet::new();
            one.set(cpu).unwrap();
            // For this thread alone; its children inherit it.
            sched_setaffinity(this, &one).unwrap();
            [spawn_in(first, &spin(1)), spawn_in(second, &spin(processes))]
        });
        pinned.join().unwrap()
    });
    let used = || [first, second].map(|made| made.cpu_time().unwrap().as_secs_f64());
    // The start takes time that no weight divides.
    std::thread::sleep(Duration::from_millis(300));
    let [before_first, before_second] = used();
    let deadline = soon();
    let shares = loop {
        let [now_first, now_second] = used();
        let shares = (now_first - before_first, now_second - before_second);
        if shares.0 + shares.1 > 1.5 || deadline.passed() {
            break shares;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    for (made, child) in [first, second].into_iter().zip(&mut children) {
        assert!(made.kill().unwrap());
        child.wait().unwrap();
    }
    shares
}

#[test]
fn a_busy_cpu_is_divided_by_weight_and_not_by_the_number_of_processes() {
    for tree in trees("divide") {
        for (age, least, most) in [(CpuClass::Short, 0.6, 1.7), (CpuClass::Long, 2.5, 6.0)] {
            let old = tree.create("b", &Limits::default()).unwrap();
            let young = tree.create("c", &Limits::default()).unwrap();
            old.set_cpu_class(age);
            young.set_cpu_class(CpuClass::Short);
            let (of_old, of_young) = shares_of_one_cpu(&old, &young, 4);
            let times = of_young / of_old;
            assert!((least..most).contains(&times), "{age:?}: {of_young} s and {of_old} s");
            for mut made in [old, young] {
                made.remove(soon()).unwrap();
            }
        }
        close(tree, SandboxGroup::default());
    }
}

#[test]
fn a_kill_lifts_the_cpu_quota_and_raises_the_weight() {
    for tree in trees("lift") {
        let limits = Limits { cpus_milli_max: Some(20), ..Limits::default() };
        let made = tree.create("b", &limits).unwrap();
        made.set_cpu_class(CpuClass::Long);
        assert!(made.kill().unwrap());
        let (file, unbounded) = match tree.support().cpu.by {
            Some(CgroupVersion::V2) => ("cpu.max", "max 100000"),
            _ => ("cpu.cfs_quota_us", "-1"),
        };
        let mut boxes = tree.directories().into_iter().map(|top| top.join("b").join(file));
        let share = boxes.find(|file| file.exists()).unwrap();
        assert_eq!(fs::read_to_string(&share).unwrap().trim(), unbounded);
        // It does not wait for running sandboxes either.
        let (file, most) = match tree.support().cpu.by {
            Some(CgroupVersion::V2) => ("cpu.weight", "1000"),
            _ => ("cpu.shares", "10240"),
        };
        assert_eq!(fs::read_to_string(share.with_file_name(file)).unwrap().trim(), most);
        close(tree, made);
    }
}
