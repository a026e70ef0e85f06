//! The stack of directories of a walk, with a bounded number of open descriptors.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat};

/// The most directories that a stack keeps open, the deepest ones: enough to go up and down among
/// neighbours without reopening, few enough for any descriptor limit.
const DIRECTORIES_OPEN_MAX: usize = 16;

/// The device and inode of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(stat: &FileStat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// The chain of directories from a root to the current one.
///
/// A directory that is no longer open is reopened through `..` of its child, so a whole walk is
/// linear in the size of the tree. If the child was moved meanwhile, `..` is another directory; the
/// identity recorded on the way down detects that.
#[derive(Debug)]
pub(crate) struct DirStack<'root> {
    root: BorrowedFd<'root>,
    /// One per level below the root.
    identities: Vec<Identity>,
    /// The descriptors of the deepest levels, the deepest last; empty only at the root.
    open: VecDeque<OwnedFd>,
}

impl<'root> DirStack<'root> {
    pub(crate) fn new(root: BorrowedFd<'root>) -> Self {
        Self { root, identities: Vec::new(), open: VecDeque::with_capacity(DIRECTORIES_OPEN_MAX) }
    }

    /// The current directory.
    pub(crate) fn current(&self) -> BorrowedFd<'_> {
        self.open.back().map_or(self.root, AsFd::as_fd)
    }

    /// Its depth below the root.
    pub(crate) fn depth(&self) -> usize {
        self.identities.len()
    }

    /// Enters `directory`, a child of the current one with status `stat`.
    pub(crate) fn descend(&mut self, directory: OwnedFd, stat: &FileStat) {
        if self.open.len() == DIRECTORIES_OPEN_MAX {
            self.open.pop_front();
        }
        self.identities.push(Identity::of(stat));
        self.open.push_back(directory);
    }

    /// Returns to the parent. At the root it does nothing.
    ///
    /// # Errors
    /// `ESTALE` if the current directory was moved.
    pub(crate) fn ascend(&mut self) -> Result<(), Errno> {
        let Some(child) = self.open.pop_back() else { return Ok(()) };
        self.identities.pop();
        let Some(expected) = self.identities.last() else { return Ok(()) };
        if self.open.is_empty() {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let parent = openat(&child, c"..", flags, Mode::empty())?;
            if Identity::of(&fstat(&parent)?) != *expected {
                return Err(Errno::ESTALE);
            }
            self.open.push_back(parent);
        }
        Ok(())
    }
}
