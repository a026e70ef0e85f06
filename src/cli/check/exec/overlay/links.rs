//! Where links lead that a command left.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use crate::evaluation::patch::entry::split;
use cofferdam_sandbox::engine::RootSource;
use cofferdam_seccomp::profile::SYSTEM;

/// Tells whether a link may be committed: it leads to a path of the directory, or of the read-only root.
#[derive(Debug)]
pub struct LinkRules {
    root: RootSource,
    /// Paths of the sandbox that are not the root's: binds, other file systems, other directories.
    others: Vec<PathBuf>,
}

/// Top-level directories of every sandbox that are not the root's.
const OWN: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "workspace"];

impl LinkRules {
    pub fn new(root: RootSource, others: Vec<PathBuf>) -> Self {
        Self { root, others }
    }

    /// Whether the link at `path` below `directory` with that text leads out of it. `merged` is what the command
    /// left there.
    pub fn leads_out(
        &self,
        directory: &Path,
        merged: BorrowedFd<'_>,
        path: &[u8],
        text: &[u8],
    ) -> bool {
        let text = Path::new(OsStr::from_bytes(text));
        let parent = Path::new(OsStr::from_bytes(split(path).0));
        let target = normal(&directory.join(parent).join(text));
        if !target.starts_with(directory) {
            return !self.is_of_root(&target);
        }
        // `..` after a name leads elsewhere if the name is a link: the kernel knows.
        has_late_parent(text) && !is_beneath(merged, directory, parent, text)
    }

    /// Whether the sandbox shows the absolute path `target` of its read-only root.
    fn is_of_root(&self, target: &Path) -> bool {
        let top = target.iter().nth(1).and_then(OsStr::to_str).unwrap_or_default();
        if self.others.iter().any(|other| target.starts_with(other)) {
            return false;
        }
        let on_host = match &self.root {
            RootSource::Host if SYSTEM.contains(&top) => target.to_owned(),
            RootSource::Directory(root) if !top.is_empty() && !OWN.contains(&top) => {
                root.join(target.strip_prefix("/").unwrap_or(target))
            }
            _ => return false,
        };
        on_host.symlink_metadata().is_ok()
    }
}

/// `path`, which is absolute, without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => drop(normal.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    normal
}

/// Whether `..` comes after a name.
fn has_late_parent(text: &Path) -> bool {
    let mut parts = text.components().skip_while(|part| !matches!(part, Component::Normal(_)));
    parts.any(|part| part == Component::ParentDir)
}

/// Whether the kernel stays in the directory when it follows the link.
fn is_beneath(merged: BorrowedFd<'_>, directory: &Path, parent: &Path, text: &Path) -> bool {
    let below = match text.strip_prefix(directory) {
        Ok(below) => below.to_owned(),
        Err(_) if text.is_absolute() => return false,
        Err(_) => parent.join(text),
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH);
    openat2(merged, below.as_path(), how).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_may_lead_to_the_directory_or_the_read_only_root() {
        let dirs = tempfile::tempdir().unwrap();
        let directory = dirs.path().canonicalize().unwrap();
        fs::create_dir_all(directory.join("a/b")).unwrap();
        symlink(".", directory.join("self")).unwrap();
        let merged = File::open(&directory).unwrap();
        let rules = LinkRules::new(RootSource::Host, vec!["/opt/bound".into()]);
        let own = directory.join("a").to_str().unwrap().to_owned();
        for (path, text, out) in [
            ("l", "a", false),
            ("l", "gone", false),
            ("a/l", "../a/b", false),
            ("a/l", "../../x", true),
            ("l", "..", true),
            ("l", own.as_str(), false),
            ("l", "/usr/bin/env", false),
            ("l", "/usr/bin/no-such-program", true),
            ("l", "/usr/../root/.ssh", true),
            ("l", "/root", true),
            ("l", "/proc/self/root", true),
            ("l", "/opt/bound/x", true),
            ("l", "/", true),
            ("l", "a/b/../b", false),
            ("l", "self/self/../../x", true),
            ("l", "self/..", true),
        ] {
            let found =
                rules.leads_out(&directory, merged.as_fd(), path.as_bytes(), text.as_bytes());
            assert_eq!(found, out, "{path} -> {text}");
        }
    }
}
