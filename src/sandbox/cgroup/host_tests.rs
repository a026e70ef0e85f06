//! The real thing, on the host that the tests run on, as root.
//!
//! Children enter their box as runs do: by writing `0` themselves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::control::CgroupVersion;
use super::directory::{Calls, Directory, Kernel};
use super::layout::Layout;
use super::limit_files::Age;
use super::waiting::wait_for_line;
use super::{BoxGroup, CgroupTree, sweep};
use crate::base::deadline::Deadline;
use crate::spec::Limits;

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// A tree of this test's own.
fn open(test: &str) -> CgroupTree {
    CgroupTree::open(&format!("{test}-{}", std::process::id())).unwrap()
}

/// This host as it is and, where it has version 1 at all, as one that has
/// nothing else.
fn trees(test: &str) -> Vec<CgroupTree> {
    let has_v1 = own_layout().v1_place("memory").is_ok();
    let v1_only = has_v1.then(|| open_v1_only(&format!("{test}-v1")));
    std::iter::once(open(test)).chain(v1_only).collect()
}

pub(super) fn open_v1_only(test: &str) -> CgroupTree {
    let layout = Layout { v2: Err("not mounted"), ..own_layout() };
    let kernel: Arc<dyn Calls> = Arc::new(Kernel);
    CgroupTree::open_on(&layout, false, &kernel, &format!("{test}-{}", std::process::id())).unwrap()
}

fn own_layout() -> Layout {
    let text = |path| fs::read_to_string(path).unwrap();
    Layout::parse(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"))
}

fn path_of(handle: BorrowedFd<'_>) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).unwrap()
}

/// A shell that enters the box, says so, and goes on with `script`.
pub(super) fn spawn_in(made: &BoxGroup, script: &str) -> Child {
    let files = made.task_files().iter().chain(made.program_task_files());
    let tasks = files.map(|file| path_of(file.as_fd()));
    let unified = made.clone_into().map(|directory| path_of(directory).join("cgroup.procs"));
    let enter: String = tasks
        .chain(unified)
        .map(|file| format!("echo 0 > {} || exit 99\n", file.display()))
        .collect();
    Command::new("sh")
        .args(["-c", &format!("{enter}{script}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Removes the box and its tree, and looks that nothing is left.
pub(super) fn close(mut tree: CgroupTree, mut made: BoxGroup) {
    let directories = tree.directories();
    made.remove(soon()).unwrap();
    drop(made);
    tree.close(soon()).unwrap();
    for directory in directories {
        assert!(!directory.exists(), "{}", directory.display());
    }
}

/// Waits for the first line of the child's output.
pub(super) fn wait_for_output(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "the child ended without a word");
}

#[test]
fn this_host_gives_every_control_and_says_who_does() {
    let tree = open("support");
    let support = tree.support();
    for control in
        [&support.memory, &support.processes, &support.cpu, &support.cpu_time, &support.kill]
    {
        assert!(control.by.is_some(), "{control:?}");
        assert_eq!(control.reason, None);
    }
    for directory in tree.directories() {
        assert!(directory.is_dir());
    }
    close(tree, BoxGroup::default());
}

#[test]
fn a_name_that_another_instance_has_is_refused() {
    let instance = format!("taken-{}", std::process::id());
    let taken = own_layout().v2.unwrap().join(format!("cofferdam-{instance}"));
    fs::create_dir(&taken).unwrap();
    assert_eq!(CgroupTree::open(&instance).unwrap_err().errno, Some(libc::EEXIST));
    fs::remove_dir(taken).unwrap();
}

#[test]
fn memory_over_the_limit_is_killed_and_counted() {
    for tree in trees("memory") {
        let limits = Limits { memory_bytes_max: 32 * MIB, ..Limits::default() };
        let made = tree.create("b", &limits).unwrap();
        let child = spawn_in(&made, "head -c 200000000 /dev/zero | tail | wc -c");
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "0");
        let usage = made.usage(true);
        assert!(usage.oom_kills >= 1, "{usage:?}");
        let peak = usage.memory_peak.unwrap();
        assert!((16 * MIB..=32 * MIB).contains(&peak.bytes), "{peak:?}");
        assert_eq!(Some(peak.source), tree.support().memory.by);
        close(tree, made);
    }
}

#[test]
fn processes_over_the_limit_are_refused_and_counted() {
    for tree in trees("pids") {
        let limits = Limits { processes_max: 4, ..Limits::default() };
        let made = tree.create("b", &limits).unwrap();
        // The shell stands where our init will: it is not one of the four.
        let mut child = spawn_in(&made, "while :; do sleep 600 & done");
        assert_eq!(child.wait().unwrap().code(), Some(2), "the shell could fork for ever");
        let usage = made.usage(true);
        assert_eq!(usage.processes_peak, Some(4), "{usage:?}");
        assert!(usage.processes_refused >= 1, "{usage:?}");
        assert_eq!(made.processes().unwrap().len(), 4);
        assert!(made.kill().unwrap());
        close(tree, made);
    }
}

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
        assert_eq!(made.usage(true).cpu, Some(made.cpu_time().unwrap()));
        close(tree, made);
    }
}

#[test]
fn boxes_of_one_age_weigh_the_same_and_old_ones_less() {
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
        made.weigh(Age::Young);
        bounded.weigh(Age::Young);
        assert_eq!((weight_of("b").trim(), weight_of("c").trim()), (young, young));
        bounded.weigh(Age::Old);
        assert_eq!((weight_of("b").trim(), weight_of("c").trim()), (young, old));
        drop(bounded);
        close(tree, made);
    }
}

/// How much CPU time two boxes got of one CPU they kept busy, once both
/// together had some: the first with one process, the second with `processes`.
fn shares_of_one_cpu(first: &BoxGroup, second: &BoxGroup, processes: u32) -> (f64, f64) {
    let spin = |count: u32| format!("{}wait", "(while :; do :; done) & ".repeat(count as usize));
    let mut children = std::thread::scope(|scope| {
        let pinned = scope.spawn(|| {
            let this = Pid::from_raw(0);
            let ours = sched_getaffinity(this).unwrap();
            let cpu = (0..CpuSet::count()).find(|cpu| ours.is_set(*cpu).unwrap()).unwrap();
            let mut one = CpuSet::new();
            one.set(cpu).unwrap();
            // Of this thread alone, and handed on to what it starts.
            sched_setaffinity(this, &one).unwrap();
            [spawn_in(first, &spin(1)), spawn_in(second, &spin(processes))]
        });
        pinned.join().unwrap()
    });
    let used = || [first, second].map(|made| made.cpu_time().unwrap().as_secs_f64());
    // Beginning costs time that no weight divides.
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
        for (age, least, most) in [(Age::Young, 0.6, 1.7), (Age::Old, 2.5, 6.0)] {
            let old = tree.create("b", &Limits::default()).unwrap();
            let young = tree.create("c", &Limits::default()).unwrap();
            old.weigh(age);
            young.weigh(Age::Young);
            let (of_old, of_young) = shares_of_one_cpu(&old, &young, 4);
            let times = of_young / of_old;
            assert!((least..most).contains(&times), "{age:?}: {of_young} s and {of_old} s");
            for mut made in [old, young] {
                made.remove(soon()).unwrap();
            }
        }
        close(tree, BoxGroup::default());
    }
}

#[test]
fn a_kill_ends_the_share_of_the_cpus_so_that_dying_is_not_throttled() {
    for tree in trees("lift") {
        let limits = Limits { cpus_milli_max: Some(20), ..Limits::default() };
        let made = tree.create("b", &limits).unwrap();
        assert!(made.kill().unwrap());
        let (file, unbounded) = match tree.support().cpu.by {
            Some(CgroupVersion::V2) => ("cpu.max", "max 100000"),
            _ => ("cpu.cfs_quota_us", "-1"),
        };
        let mut boxes = tree.directories().into_iter().map(|top| top.join("b").join(file));
        let share = fs::read_to_string(boxes.find(|file| file.exists()).unwrap()).unwrap();
        assert_eq!(share.trim(), unbounded);
        close(tree, made);
    }
}

#[test]
fn a_kill_reaches_what_has_left_its_session_and_what_keeps_forking() {
    for tree in trees("kill") {
        let limits = Limits { processes_max: 40, ..Limits::default() };
        let mut made = tree.create("b", &limits).unwrap();
        let forks = "trap '' TERM; echo in; while :; do setsid sh -c 'sleep 0.01' & done 2>&1";
        let mut child = spawn_in(&made, &format!("sleep 600 & {forks}"));
        wait_for_output(&mut child);
        assert!(made.processes().unwrap().len() >= 2);
        // The shell gives up when a fork is refused; either way all must go.
        assert!(made.kill().unwrap());
        let _ = child.wait().unwrap();
        made.remove(soon()).unwrap();
        close(tree, made);
    }
}

#[test]
fn a_process_in_the_box_dies_of_sigkill_even_when_stopped() {
    for tree in trees("stop") {
        let made = tree.create("b", &Limits::default()).unwrap();
        let mut child = spawn_in(&made, "echo in; kill -STOP $$; sleep 600");
        wait_for_output(&mut child);
        assert!(made.kill().unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        close(tree, made);
    }
}

#[test]
fn a_box_that_is_not_empty_stays_and_is_named() {
    let tree = open("busy");
    let mut made = tree.create("b", &Limits::default()).unwrap();
    let mut child = spawn_in(&made, "echo in; exec sleep 600");
    wait_for_output(&mut child);
    let error = made.remove(Deadline::after(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.errno, Errno::EBUSY);
    assert!(error.path.ends_with("b"), "{error}");
    assert!(made.kill().unwrap());
    child.wait().unwrap();
    close(tree, made);
}

#[test]
fn a_group_announces_that_it_got_empty() {
    let tree = open("empty");
    let made = tree.create("b", &Limits::default()).unwrap();
    let path = path_of(made.clone_into().unwrap());
    let directory = Directory::open(Arc::new(Kernel), &path).unwrap();
    let mut child = spawn_in(&made, "echo in; exec sleep 600");
    wait_for_output(&mut child);
    let empty = |deadline| wait_for_line(&directory, "cgroup.events", "populated 0", deadline);
    assert!(!empty(Deadline::after(Duration::from_millis(5))));
    assert!(made.kill().unwrap());
    assert!(empty(soon()));
    child.wait().unwrap();
    close(tree, made);
}

#[test]
fn a_limit_the_kernel_refuses_leaves_no_directory() {
    let tree = open("refused");
    let limits = Limits { cpus_milli_max: Some(0), ..Limits::default() };
    let failure = tree.create("b", &limits).unwrap_err();
    assert_eq!((failure.step.as_str(), failure.errno), ("cgroup cpu", Some(libc::EINVAL)));
    for directory in tree.directories() {
        assert!(!directory.join("b").exists());
    }
    close(tree, BoxGroup::default());
}

#[test]
fn a_sweep_clears_what_a_dead_owner_left_alive() {
    for tree in trees("sweep") {
        let directories = tree.directories();
        let made = tree.create("b", &Limits::default()).unwrap();
        let mut child = spawn_in(&made, "sleep 600 & sleep 600 & echo in; wait");
        wait_for_output(&mut child);
        // What a SIGKILL of the owner leaves: nobody runs a destructor.
        std::mem::forget(made);
        std::mem::forget(tree);
        let aside = Aside::step(&directories);
        let mut killed = 0;
        for directory in &directories {
            let swept = sweep(directory, soon()).unwrap();
            assert!(swept.directories_removed >= 1);
            killed += swept.processes_killed;
        }
        assert!(killed >= 3, "{killed}");
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        for directory in directories {
            assert!(!directory.exists(), "{}", directory.display());
        }
        drop(aside);
    }
}

/// Out of a tree that holds us because our own group was delegated to us: who
/// sweeps is never the dead owner. Goes back on drop, to where trees can be made.
struct Aside(Option<PathBuf>);

impl Aside {
    fn step(directories: &[PathBuf]) -> Self {
        let here = own_layout().v2.unwrap();
        let Some(top) = directories.iter().find(|top| here.starts_with(top)) else {
            return Self(None);
        };
        let aside = top.with_file_name("aside");
        fs::create_dir(&aside).unwrap();
        fs::write(aside.join("cgroup.procs"), "0").unwrap();
        Self(Some(aside))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let Some(aside) = &self.0 else { return };
        let own = aside.parent().unwrap();
        let handed_down = own.join("cgroup.subtree_control");
        for controller in fs::read_to_string(&handed_down).unwrap().split_whitespace() {
            fs::write(&handed_down, format!("-{controller}")).unwrap();
        }
        fs::write(own.join("cgroup.procs"), "0").unwrap();
        fs::remove_dir(aside).unwrap();
    }
}

#[test]
fn a_sweep_never_touches_a_directory_that_is_not_ours_by_name_and_file_system() {
    let elsewhere = tempfile::tempdir().unwrap();
    let alike = elsewhere.path().join("cofferdam-x");
    fs::create_dir(&alike).unwrap();
    assert_eq!(sweep(&alike, soon()).unwrap_err().errno, Errno::EOPNOTSUPP);
    assert!(alike.exists());
    let tree = open("other");
    let other = tree.directories().first().unwrap().join("other");
    fs::create_dir(&other).unwrap();
    assert_eq!(sweep(&other, soon()).unwrap_err().errno, Errno::EINVAL);
    fs::remove_dir(other).unwrap();
    close(tree, BoxGroup::default());
}
