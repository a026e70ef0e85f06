//! A fake cgroup file system in a temporary directory, for what this host cannot show.
//!
//! It follows the rules of the kernel that matter here: which files a group has, the
//! no-internal-process rule, and when a group can be removed.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nix::errno::Errno;

use crate::cgroup::control::CgroupVersion;
use crate::cgroup::directory::{CgroupDirectory, CgroupFs};

/// The line of `cgroup.procs` that is the process under test.
pub(crate) fn ourselves() -> String {
    format!("{}\n", std::process::id())
}

#[derive(Debug)]
pub(crate) struct FakeKernel {
    host: tempfile::TempDir,
    log: Mutex<Vec<String>>,
    /// The refused calls, and how many more times each is refused.
    refusals: Mutex<BTreeMap<String, (Errno, u32)>>,
    missing: Mutex<Vec<&'static str>>,
}

impl FakeKernel {
    /// A version 2 hierarchy at `v2`, whose root offers `controllers`.
    pub(crate) fn new(controllers: &str) -> Arc<Self> {
        let host = tempfile::tempdir().unwrap();
        let kernel = Self {
            host,
            log: Mutex::default(),
            refusals: Mutex::default(),
            missing: Mutex::default(),
        };
        kernel.populate(&kernel.path("v2"), controllers);
        Arc::new(kernel)
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.host.path().join(relative)
    }

    /// Creates a group as another process would.
    pub(crate) fn foreign_group(&self, relative: &str, controllers: &str) {
        self.populate(&self.path(relative), controllers);
    }

    /// Writes a file as another process would.
    pub(crate) fn put(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    pub(crate) fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    /// Makes every later call on `what` (a file or directory) fail.
    pub(crate) fn refuse(&self, what: &str, errno: Errno) {
        self.refuse_times(what, errno, u32::MAX);
    }

    /// Makes the next `times` calls on `what` fail.
    pub(crate) fn refuse_times(&self, what: &str, errno: Errno, times: u32) {
        self.refusals.lock().unwrap().insert(what.to_owned(), (errno, times));
    }

    /// A kernel that lacks a file.
    pub(crate) fn without(&self, file: &'static str) {
        self.missing.lock().unwrap().push(file);
    }

    /// Takes the calls so far: `mkdir v2/a`, `v2/a/pids.max=5`, `rmdir v2/a`.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    fn relative(&self, path: &Path) -> String {
        path.strip_prefix(self.host.path()).unwrap().display().to_string()
    }

    fn check(&self, path: &Path) -> Result<(), Errno> {
        match self.refusals.lock().unwrap().get_mut(&self.relative(path)) {
            Some((errno, times @ 1..)) => {
                *times -= 1;
                Err(*errno)
            }
            _ => Ok(()),
        }
    }

    fn note(&self, call: String) {
        self.log.lock().unwrap().push(call);
    }

    fn populate(&self, group: &Path, controllers: &str) {
        fs::create_dir_all(group).unwrap();
        let missing = self.missing.lock().unwrap().clone();
        let everywhere = [
            ("cgroup.procs", ""),
            ("cgroup.subtree_control", "\n"),
            ("cpu.stat", "usage_usec 1500\nuser_usec 1000\n"),
        ];
        let below_the_root = [
            ("cgroup.type", "domain\n"),
            ("cgroup.kill", ""),
            ("cgroup.freeze", "0\n"),
            ("cgroup.events", "populated 0\nfrozen 0\n"),
        ];
        let below_the_root = below_the_root.into_iter().filter(|_| !self.is_root(group));
        let v1: &[_] = if group.starts_with(self.path("v1")) { V1_FILES } else { &[] };
        let of_controllers = controllers.split_whitespace().flat_map(files_of);
        for (file, text) in everywhere
            .into_iter()
            .chain(below_the_root)
            .chain(of_controllers)
            .chain(v1.iter().copied())
        {
            if !missing.contains(&file) && !group.join(file).exists() {
                fs::write(group.join(file), text).unwrap();
            }
        }
        fs::write(group.join("cgroup.controllers"), format!("{controllers}\n")).unwrap();
    }

    fn is_root(&self, group: &Path) -> bool {
        group == self.path("v2")
    }

    fn switch(&self, group: &Path, text: &str) -> Result<(), Errno> {
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        let (sign, name) = text.split_at(1);
        if !read("cgroup.controllers").split_whitespace().any(|offered| offered == name) {
            return Err(Errno::ENOENT);
        }
        let has_processes = !read("cgroup.procs").is_empty() && !self.is_root(group);
        if sign == "+" && has_processes && name == "memory" {
            return Err(Errno::EBUSY);
        }
        let on = read("cgroup.subtree_control");
        let mut on: Vec<&str> = on.split_whitespace().filter(|c| *c != name).collect();
        if sign == "+" {
            on.push(name);
        }
        for child in children(group) {
            let used = fs::read_to_string(child.join("cgroup.subtree_control")).unwrap();
            if sign == "-" && used.split_whitespace().any(|used| used == name) {
                return Err(Errno::EBUSY);
            }
            self.populate(&child, &on.join(" "));
            if has_processes && !on.is_empty() {
                // The group has become the root of a threaded subtree.
                fs::write(child.join("cgroup.type"), "domain invalid\n").unwrap();
            }
        }
        fs::write(group.join("cgroup.subtree_control"), on.join(" ") + "\n").unwrap();
        Ok(())
    }

    fn enter(&self, group: &Path) -> Result<(), Errno> {
        let kind = fs::read_to_string(group.join("cgroup.type")).unwrap_or_default();
        if kind.trim() == "domain invalid" {
            return Err(Errno::EOPNOTSUPP);
        }
        let hands_down = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap();
        if !hands_down.trim().is_empty() && !self.is_root(group) {
            return Err(Errno::EBUSY);
        }
        let mut groups = vec![self.path("v2")];
        while let Some(left) = groups.pop() {
            groups.extend(children(&left));
            let procs = fs::read_to_string(left.join("cgroup.procs")).unwrap();
            fs::write(left.join("cgroup.procs"), procs.replace(&ourselves(), "")).unwrap();
        }
        let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        fs::write(group.join("cgroup.procs"), procs + &ourselves()).unwrap();
        Ok(())
    }
}

impl CgroupFs for FakeKernel {
    fn version(&self, _: BorrowedFd<'_>, path: &Path) -> Result<Option<CgroupVersion>, Errno> {
        let relative = self.relative(path);
        Ok(match relative.split('/').next() {
            Some("v2") => Some(CgroupVersion::V2),
            Some("v1") => Some(CgroupVersion::V1),
            _ => None,
        })
    }

    fn make(&self, parent: &CgroupDirectory, name: &str) -> Result<(), Errno> {
        let group = parent.path().join(name);
        self.note(format!("mkdir {}", self.relative(&group)));
        self.check(&group)?;
        if group.exists() {
            return Err(Errno::EEXIST);
        }
        let controllers = fs::read_to_string(parent.path().join("cgroup.subtree_control")).unwrap();
        self.populate(&group, controllers.trim());
        let kind = fs::read_to_string(parent.path().join("cgroup.type")).unwrap_or_default();
        if kind.contains("threaded") || kind.contains("invalid") {
            fs::write(group.join("cgroup.type"), "domain invalid\n").unwrap();
        }
        Ok(())
    }

    fn write(&self, directory: &CgroupDirectory, file: &str, text: &str) -> Result<(), Errno> {
        let path = directory.path().join(file);
        self.note(format!("{}={text}", self.relative(&path)));
        self.check(&path)?;
        if !path.exists() {
            return Err(Errno::ENOENT);
        }
        match file {
            "cgroup.subtree_control" => self.switch(directory.path(), text),
            "cgroup.procs" => self.enter(directory.path()),
            "cgroup.freeze" => {
                let events = format!("populated 1\nfrozen {text}\n");
                fs::write(directory.path().join("cgroup.events"), events).unwrap();
                Ok(())
            }
            _ => fs::write(path, text).map_err(|_| Errno::EIO),
        }
    }

    fn remove(&self, parent: &CgroupDirectory, name: &str) -> Result<(), Errno> {
        let group = parent.path().join(name);
        self.note(format!("rmdir {}", self.relative(&group)));
        self.check(&group)?;
        let procs = fs::read_to_string(group.join("cgroup.procs")).map_err(|_| Errno::ENOENT)?;
        if !procs.is_empty() || !children(&group).is_empty() {
            return Err(Errno::EBUSY);
        }
        fs::remove_dir_all(group).map_err(|_| Errno::EIO)
    }
}

/// A version 1 group here has every controller's files.
const V1_FILES: &[(&str, &str)] = &[
    ("tasks", ""),
    ("memory.limit_in_bytes", "-1\n"),
    ("memory.memsw.limit_in_bytes", "-1\n"),
    ("memory.kmem.tcp.limit_in_bytes", "-1\n"),
    ("pids.max", "max\n"),
    ("cpu.cfs_period_us", "100000\n"),
    ("cpu.cfs_quota_us", "-1\n"),
    ("cpu.shares", "1024\n"),
    ("cpuacct.usage", "2500000\n"),
];

fn children(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

fn files_of(controller: &str) -> Vec<(&'static str, &'static str)> {
    match controller {
        "memory" => vec![
            ("memory.max", "max\n"),
            ("memory.swap.max", "max\n"),
            ("memory.peak", "1048576\n"),
            ("memory.events", "low 0\nmax 9\noom 2\noom_kill 1\n"),
        ],
        "pids" => {
            vec![("pids.max", "max\n"), ("pids.peak", "8\n"), ("pids.events", "max 3\n")]
        }
        "cpu" => vec![("cpu.max", "max 100000\n"), ("cpu.weight", "100\n")],
        _ => Vec::new(),
    }
}
