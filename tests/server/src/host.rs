//! Views of a server from the host: its processes, descriptors, mounts and cgroups.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The uids of sandboxes on the host.
pub const HOST_UIDS: Range<u32> = 56_000..60_096;

/// The descriptor from which the process of a prepared program reads its release.
const RELEASE_FD: i32 = 5;

/// Calls `work` for each number below `count` on `at_once` threads.
pub fn in_turn(at_once: usize, count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    work(number);
                }
            });
        }
    });
}

/// One process. The start time distinguishes it from a later process with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    started: u64,
}

impl Process {
    /// Whether it still runs. A zombie counts as dead.
    pub fn is_alive(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }
}

/// All descendants of `pid`, including zombies.
pub fn descendants(pid: i32) -> Vec<Process> {
    let stats: HashMap<i32, Stat> =
        pids().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let is_below = |stat: &Stat| {
        let mut parent = stat.parent;
        while parent != pid {
            match stats.get(&parent) {
                Some(stat) => parent = stat.parent,
                None => return false,
            }
        }
        true
    };
    let below = stats.iter().filter(|(_, stat)| is_below(stat));
    below.map(|(&pid, stat)| Process { pid, started: stat.started }).collect()
}

/// Whether a descendant of `pid` has executed the program called `name`.
pub fn is_running(pid: i32, name: &str) -> bool {
    let comm = |process: &Process| fs::read_to_string(format!("/proc/{}/comm", process.pid));
    descendants(pid).iter().any(|process| comm(process).is_ok_and(|comm| comm.trim() == name))
}

/// The inits of the sandboxes of a server. For an init, its program.
pub fn inits(pid: i32) -> Vec<Process> {
    let stats = pids().filter_map(|child| Some((child, Stat::read(child)?)));
    let inits = stats.filter(|(_, stat)| stat.parent == pid && stat.state != 'Z');
    inits.map(|(pid, stat)| Process { pid, started: stat.started }).collect()
}

/// The inits of the prepared sandboxes: their program has done everything but the exec, and reads
/// the release descriptor.
pub fn ready_sandboxes(pid: i32) -> Vec<Process> {
    let waiting = format!("{} {:#x} ", libc::SYS_read, RELEASE_FD);
    let waits = |program: &Process| {
        // A program that was resumed already is in the same call, but does not sleep in it.
        let sleeps = || Stat::read(program.pid).is_some_and(|stat| stat.state == 'S');
        fs::read_to_string(format!("/proc/{}/syscall", program.pid))
            .is_ok_and(|call| call.starts_with(&waiting))
            && sleeps()
    };
    inits(pid).into_iter().filter(|init| inits(init.pid).iter().any(waits)).collect()
}

/// The descendants that belong to runs, without prepared sandboxes.
pub fn run_processes(pid: i32) -> Vec<Process> {
    let ready = ready_sandboxes(pid);
    let ahead = |process: &Process| {
        ready.iter().any(|init| init.pid == process.pid || parent(process.pid) == Some(init.pid))
    };
    descendants(pid).into_iter().filter(|process| !ahead(process)).collect()
}

/// The processes of runs that have a tenant's uid.
pub fn tenants(pid: i32) -> Vec<Process> {
    let is_tenant = |process: &Process| {
        fs::metadata(format!("/proc/{}", process.pid))
            .is_ok_and(|proc| HOST_UIDS.contains(&proc.uid()))
    };
    run_processes(pid).into_iter().filter(is_tenant).collect()
}

/// The current parent of `pid`.
pub fn parent(pid: i32) -> Option<i32> {
    Stat::read(pid).map(|stat| stat.parent)
}

/// Whether the command line of any process contains `marker`.
pub fn has_process(marker: &str) -> bool {
    let lines = pids().filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
    lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(marker))
}

/// The number of threads and descriptors of a server.
pub fn threads_and_descriptors(pid: i32) -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    (count("task"), count("fd"))
}

/// The resident memory of a server, in bytes.
pub fn resident_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes * 1024
}

/// The files whose locks reserve host ids for a server.
pub fn host_id_files(pid: i32) -> Vec<PathBuf> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let opened = links.filter_map(|link| fs::read_link(link.path()).ok());
    opened.filter(|path| path.parent().is_some_and(|place| place.ends_with("uids"))).collect()
}

/// The number of mounts that a server sees.
pub fn mounts(pid: i32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap().lines().count()
}

/// The files below `base` that loop devices of the host show.
pub fn loops_below(base: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices
        .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| file.contains(base.to_str().unwrap())).collect()
}

/// The registration directory of a server, found by the lock that it holds there.
fn instance_of(pid: i32) -> PathBuf {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut opened = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    let lock = opened.find(|path| path.ends_with("lock") && named(path, "instances"));
    lock.expect("a registered server").parent().unwrap().to_owned()
}

/// The cgroup directories whose path contains the id of `instance`, including those of its
/// sandboxes.
fn cgroups_of(instance: &Path) -> Vec<PathBuf> {
    let id = instance.file_name().unwrap().to_str().unwrap();
    let mut found = Vec::new();
    let mut unread = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = unread.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        unread.extend(directories.map(|entry| entry.path()));
        if directory.to_string_lossy().contains(id) {
            found.push(directory);
        }
    }
    found
}

fn is_trust_directory(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"trust-"))
}

/// The registration and cgroups of a server, which must be gone after its end.
#[derive(Debug)]
pub struct Footprint {
    instance: PathBuf,
}

impl Footprint {
    pub fn of(pid: i32) -> Self {
        Self { instance: instance_of(pid) }
    }

    /// The cgroup directories that exist now.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        cgroups_of(&self.instance)
    }

    /// The directories of certificates for programs of this server.
    pub fn trust_directories(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.instance).into_iter().flatten().flatten();
        let directories = entries.map(|entry| entry.path());
        directories.filter(|path| is_trust_directory(path)).collect()
    }

    /// Whether the registration and all cgroups are gone.
    pub fn is_gone(&self) -> bool {
        !self.instance.exists() && self.cgroups().is_empty()
    }

    #[track_caller]
    pub fn assert_gone(&self) {
        assert!(!self.instance.exists(), "{} is left", self.instance.display());
        assert_eq!(self.cgroups(), Vec::<PathBuf>::new());
    }
}

fn named(path: &Path, name: &str) -> bool {
    path.components().any(|component| component.as_os_str() == name)
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

struct Stat {
    state: char,
    parent: i32,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in the brackets may itself contain a bracket.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}
