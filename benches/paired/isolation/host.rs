//! A process in a sandbox as the host sees it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::seen::{Resource, bounds, capabilities, groups, process_limit, status_value};
use super::yes;
use crate::peers::Sandbox;

const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];
const LOOK_EVERY: Duration = Duration::from_millis(2);
const GROUPS: &str = "/sys/fs/cgroup";

/// What `/proc` said while it lived.
pub struct Process {
    status: String,
    limits: String,
    namespaces: Vec<&'static str>,
    has_own_root: bool,
    limited: Vec<Resource>,
}

/// Runs a program that only sleeps, and looks at it meanwhile. `None` if it was not found.
pub fn process_in(sandbox: &mut dyn Sandbox) -> Option<Process> {
    // The argument tells the program from every other.
    let seconds = format!("0.5{:09}", process::id());
    let program = ["/bin/sleep", seconds.as_str()];
    let words = format!("{}\0{}\0", program[0], program[1]);
    thread::scope(|scope| {
        let run = scope.spawn(|| sandbox.run(&program));
        let mut found = None;
        while found.is_none() && !run.is_finished() {
            thread::sleep(LOOK_EVERY);
            found = with_words(&words).and_then(|of| Process::read(&of));
        }
        run.join().unwrap().ok().and(found)
    })
}

/// The directory in `/proc` of the process with these words.
fn with_words(words: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| fs::read(path.join("cmdline")).is_ok_and(|it| it == words.as_bytes()))
}

impl Process {
    fn read(of: &Path) -> Option<Self> {
        let text = |name: &str| fs::read_to_string(of.join(name)).ok();
        let ours = Path::new("/proc/self");
        let is_own = |name: &&'static str| {
            let link = |process: &Path| fs::read_link(process.join("ns").join(name)).ok();
            link(of).is_some() && link(of) != link(ours)
        };
        let root = fs::metadata(of.join("root")).ok()?;
        let host = fs::metadata("/").ok()?;
        let cgroup = text("cgroup")?;
        let before = fs::read_to_string("/proc/self/cgroup").ok()?;
        let limited = [Resource::Memory, Resource::Processes];
        let limited = limited.into_iter().filter(|it| is_bound(&cgroup, &before, *it));
        Some(Self {
            status: text("status")?,
            limits: text("limits")?,
            namespaces: NAMESPACES.into_iter().filter(is_own).collect(),
            has_own_root: (root.dev(), root.ino()) != (host.dev(), host.ino()),
            limited: limited.collect(),
        })
    }

    pub fn namespaces(&self) -> Option<String> {
        let names = self.namespaces.join(" ");
        Some(if names.is_empty() { "none".to_owned() } else { names })
    }

    pub fn filter(&self) -> Option<String> {
        self.value("Seccomp").map(|mode| yes(mode == "2"))
    }

    pub fn no_new_privileges(&self) -> Option<String> {
        self.value("NoNewPrivs").map(|flag| yes(flag == "1"))
    }

    pub fn capabilities(&self) -> Option<String> {
        let count = capabilities(self.value("CapEff")?)?;
        Some(if count == 0 { "none".to_owned() } else { count.to_string() })
    }

    pub fn user(&self) -> Option<String> {
        let uid = self.value("Uid")?.split_whitespace().next()?;
        Some(if uid == "0" { "root" } else { "another" }.to_owned())
    }

    pub fn root(&self) -> Option<String> {
        Some(if self.has_own_root { "its own" } else { "the host's" }.to_owned())
    }

    /// What bounds the resource here and not this bench.
    pub fn limited_by(&self, resource: Resource) -> Option<&'static str> {
        let ours = fs::read_to_string("/proc/self/limits").ok()?;
        if self.limited.contains(&resource) {
            return Some("yes, of a cgroup");
        }
        let limit = process_limit(&self.limits, resource)?;
        (process_limit(&ours, resource) != Some(limit)).then_some("yes, of each process")
    }

    fn value(&self, name: &str) -> Option<&str> {
        status_value(&self.status, name)
    }
}

/// Whether the process is in a group of its own that limits the resource.
fn is_bound(theirs: &str, ours: &str, resource: Resource) -> bool {
    // The files with its limit, on version 1 and on version 2.
    let (controller, files) = match resource {
        Resource::Memory => ("memory", ["memory.limit_in_bytes", "memory.max"]),
        Resource::Processes => ("pids", ["pids.max", "pids.max"]),
        Resource::CpuTime => return false,
    };
    let roots = [Path::new(GROUPS).join(controller), PathBuf::from(GROUPS)];
    let pairs = groups(theirs, controller).into_iter().zip(groups(ours, controller));
    pairs.zip(roots).zip(files).any(|(((theirs, ours), root), file)| {
        let limit = theirs
            .filter(|_| theirs != ours)
            .map(|path| fs::read_to_string(root.join(path.trim_start_matches('/')).join(file)));
        matches!(limit, Some(Ok(limit)) if bounds(&limit))
    })
}

/// Whether one of the commands restricts itself by Landlock. The kernel shows this of no process, so its calls are
/// traced; those of a server that started before cannot be.
pub fn landlock(sandbox: &dyn Sandbox) -> Option<String> {
    let directory = tempfile::tempdir().ok()?;
    let mut calls = String::new();
    for words in sandbox.commands(&["/bin/true"])? {
        let trace = directory.path().join("trace");
        let status = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=landlock_restrict_self", "-o"])
            .arg(&trace)
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.ok().filter(ExitStatus::success)?;
        calls += &fs::read_to_string(trace).ok()?;
    }
    Some(yes(calls.lines().any(|line| line.ends_with("= 0"))))
}
