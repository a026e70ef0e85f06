//! Removes what a killed service left in a hierarchy.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;

use nix::errno::Errno;

use super::directory::{CgroupDirectory, CgroupError, CgroupFs, KernelCgroupFs, RETRY_INTERVAL};
use super::termination::{kill_all, kill_listed};
use super::tree::{NAME_PREFIX, SANDBOX_PREFIX};
use cofferdam_core::values::deadline::Deadline;

/// A tree of ours never has more directories than this.
const DIRECTORIES_MAX: usize = 65_536;

/// What a sweep removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// The number of sandboxes, by their names.
    pub sandboxes: usize,
    /// The number of processes killed.
    pub processes_killed: usize,
    /// The number of directories removed, the top one included.
    pub directories_removed: usize,
}

/// Kills every process below one of our top directories and removes the directory, deepest level
/// first. It is no error if the directory is gone already.
///
/// Refuses without any change: a directory whose name does not start with `cofferdam-` (`EINVAL`),
/// one that is not on a cgroup file system (`EOPNOTSUPP`), one that holds this process (`EDEADLK`).
/// `EBUSY` if something does not die before the deadline.
pub fn sweep(directory: &Path, deadline: Deadline) -> Result<SweepReport, CgroupError> {
    sweep_with(&(Arc::new(KernelCgroupFs) as Arc<dyn CgroupFs>), directory, deadline)
}

pub(super) fn sweep_with(
    calls: &Arc<dyn CgroupFs>,
    directory: &Path,
    deadline: Deadline,
) -> Result<SweepReport, CgroupError> {
    let fail = |errno| CgroupError { path: directory.to_owned(), errno };
    let name = directory.file_name().and_then(|name| name.to_str());
    if !name.is_some_and(|name| name.starts_with(NAME_PREFIX)) {
        return Err(fail(Errno::EINVAL));
    }
    let (mut sandboxes, mut killed) = (BTreeSet::new(), BTreeSet::new());
    let mut directories_removed = 0;
    loop {
        let tree = match tree_below(calls, directory) {
            Err(error) if error.errno == Errno::ENOENT => break,
            tree => tree?,
        };
        let names = tree.iter().map(CgroupDirectory::name);
        sandboxes.extend(names.filter(|name| is_sandbox(name)).map(ToOwned::to_owned));
        let processes = processes_of(&tree)?;
        if processes.contains(&nix::unistd::getpid().as_raw()) {
            return Err(fail(Errno::EDEADLK));
        }
        if !processes.is_empty() {
            kill_tree(&tree);
            killed.extend(processes);
        }
        match remove_tree(calls, &tree, &mut directories_removed) {
            Err(error) if error.errno == Errno::EBUSY && !deadline.passed() => {
                sleep(RETRY_INTERVAL);
            }
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    Ok(SweepReport {
        // The only sandbox of its owner may be in the top directory itself.
        sandboxes: sandboxes.len().max(usize::from(!killed.is_empty())),
        processes_killed: killed.len(),
        directories_removed,
    })
}

/// The directory and all directories below it, parents before children.
fn tree_below(calls: &Arc<dyn CgroupFs>, top: &Path) -> Result<Vec<CgroupDirectory>, CgroupError> {
    let mut tree = vec![CgroupDirectory::open(Arc::clone(calls), top)?];
    let mut listed = 0;
    while let Some(path) = tree.get(listed).map(|directory| directory.path().to_owned()) {
        listed += 1;
        for child in subdirectories(&path)? {
            if tree.len() == DIRECTORIES_MAX {
                return Err(CgroupError { path: child, errno: Errno::E2BIG });
            }
            match CgroupDirectory::open(Arc::clone(calls), &child) {
                Ok(child) => tree.push(child),
                Err(error) if error.errno == Errno::ENOENT => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(tree)
}

fn is_sandbox(name: &str) -> bool {
    name.starts_with(SANDBOX_PREFIX)
}

fn subdirectories(path: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        Ok(found)
    };
    list().map_err(|error| CgroupError {
        path: path.to_owned(),
        errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
    })
}

fn processes_of(tree: &[CgroupDirectory]) -> Result<BTreeSet<i32>, CgroupError> {
    let mut processes = BTreeSet::new();
    for directory in tree {
        processes.extend(directory.processes()?);
    }
    Ok(processes)
}

/// One round; the caller repeats it until no process is left. A group that its killed owner left
/// frozen is thawed by the same writes.
fn kill_tree(tree: &[CgroupDirectory]) {
    for directory in tree {
        if !kill_all(directory).unwrap_or(false)
            && let Err(error) = kill_listed(directory)
        {
            log::warn!("{error}");
        }
    }
}

fn remove_tree(
    calls: &Arc<dyn CgroupFs>,
    tree: &[CgroupDirectory],
    removed: &mut usize,
) -> Result<(), CgroupError> {
    for directory in tree.iter().rev() {
        if let Some(parent) = directory.path().parent() {
            CgroupDirectory::open(Arc::clone(calls), parent)?.remove_child(directory.name())?;
            *removed += 1;
        }
    }
    Ok(())
}
