//! Cgroups on the host that runs the tests, as root.
//!
//! Children enter their sandbox as runs do: they write `0` themselves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use crate::cgroup::directory::{CgroupDirectory, CgroupFs, KernelCgroupFs};
use crate::cgroup::layout::CgroupLayout;
use crate::cgroup::{CgroupTree, SandboxGroup, sweep};
use cofferdam_core::Limits;
use cofferdam_core::values::deadline::Deadline;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// A tree for one test.
fn open(test: &str) -> CgroupTree {
    CgroupTree::open(&format!("{test}-{}", std::process::id())).unwrap()
}

/// This host as it is and, if it has version 1, as a host with version 1 alone.
pub(crate) fn trees(test: &str) -> Vec<CgroupTree> {
    let has_v1 = own_layout().v1_place("memory").is_ok();
    let v1_only = has_v1.then(|| open_v1_only(&format!("{test}-v1")));
    std::iter::once(open(test)).chain(v1_only).collect()
}

pub(crate) fn open_v1_only(test: &str) -> CgroupTree {
    let layout = CgroupLayout { v2: Err("not mounted"), ..own_layout() };
    let kernel: Arc<dyn CgroupFs> = Arc::new(KernelCgroupFs);
    CgroupTree::open_on(&layout, false, &kernel, &format!("{test}-{}", std::process::id())).unwrap()
}

fn own_layout() -> CgroupLayout {
    let text = |path| fs::read_to_string(path).unwrap();
    CgroupLayout::parse(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"))
}

fn path_of(handle: BorrowedFd<'_>) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).unwrap()
}

/// A shell that enters the sandbox and runs `script`.
pub(crate) fn spawn_in(made: &SandboxGroup, script: &str) -> Child {
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

/// Removes the sandbox and its tree, and checks that nothing is left.
pub(crate) fn close(mut tree: CgroupTree, mut made: SandboxGroup) {
    let directories = tree.directories();
    made.remove(soon()).unwrap();
    drop(made);
    tree.close(soon()).unwrap();
    for directory in directories {
        assert!(!directory.exists(), "{}", directory.display());
    }
}

/// Waits for the first line of the child's output.
pub(crate) fn wait_for_output(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "the child ended without a word");
}

#[test]
fn this_host_provides_every_control_and_names_the_version() {
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
    close(tree, SandboxGroup::default());
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
        assert!(usage.oom_kills >= Some(1), "{usage:?}");
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
        // The shell takes the place of the init: it is not one of the four.
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
fn a_kill_reaches_processes_that_left_their_session_or_keep_forking() {
    for tree in trees("kill") {
        let limits = Limits { processes_max: 40, ..Limits::default() };
        let mut made = tree.create("b", &limits).unwrap();
        let forks = "trap '' TERM; echo in; while :; do setsid sh -c 'sleep 0.01' & done 2>&1";
        let mut child = spawn_in(&made, &format!("sleep 600 & {forks}"));
        wait_for_output(&mut child);
        assert!(made.processes().unwrap().len() >= 2);
        // The shell ends when a fork is refused. Either way all processes must die.
        assert!(made.kill().unwrap());
        let _ = child.wait().unwrap();
        made.remove(soon()).unwrap();
        close(tree, made);
    }
}

#[test]
fn a_stopped_process_in_the_sandbox_dies_of_sigkill() {
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
fn a_group_that_is_not_empty_stays_and_is_named() {
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
fn a_group_reports_that_it_became_empty() {
    let tree = open("empty");
    let made = tree.create("b", &Limits::default()).unwrap();
    let path = path_of(made.clone_into().unwrap());
    let directory = CgroupDirectory::open(Arc::new(KernelCgroupFs), &path).unwrap();
    let mut child = spawn_in(&made, "echo in; exec sleep 600");
    wait_for_output(&mut child);
    let empty = |deadline| directory.wait_for_line("cgroup.events", "populated 0", deadline);
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
    close(tree, SandboxGroup::default());
}

#[test]
fn a_sweep_kills_what_a_killed_owner_left_alive() {
    for tree in trees("sweep") {
        let directories = tree.directories();
        let made = tree.create("b", &Limits::default()).unwrap();
        let mut child = spawn_in(&made, "sleep 600 & sleep 600 & echo in; wait");
        wait_for_output(&mut child);
        // As after a SIGKILL of the owner: no destructor runs.
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

/// Moves this process out of a tree that holds it because its own group was delegated: a sweep
/// never runs in the killed owner. Drop moves it back, to where trees can be created.
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
    close(tree, SandboxGroup::default());
}
