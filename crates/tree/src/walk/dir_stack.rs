//! A way down into a tree of any depth that holds a bounded number of descriptors.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat};

/// Directories one way down keeps open, the deepest ones: enough that going up and down among
/// neighbours reopens nothing, few enough for any descriptor limit.
const DIRECTORIES_OPEN_MAX: usize = 16;

/// What tells one directory from every other.
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

/// The chain of directories from a root to the one being worked in.
///
/// A directory that fell out of the open ones is found again through `..` of its child, one
/// step at a time, so a whole walk stays linear in the size of the tree. `..` may lead
/// elsewhere if somebody moved the child meanwhile; the identity noted on the way down tells.
#[derive(Debug)]
pub(crate) struct DirStack<'root> {
    root: BorrowedFd<'root>,
    /// One for each level below the root.
    identities: Vec<Identity>,
    /// The deepest levels' descriptors, last one deepest; empty only at the root.
    open: VecDeque<OwnedFd>,
}

impl<'root> DirStack<'root> {
    pub(crate) fn new(root: BorrowedFd<'root>) -> Self {
        Self { root, identities: Vec::new(), open: VecDeque::with_capacity(DIRECTORIES_OPEN_MAX) }
    }

    /// The directory reached.
    pub(crate) fn current(&self) -> BorrowedFd<'_> {
        self.open.back().map_or(self.root, AsFd::as_fd)
    }

    /// How many levels below the root that is.
    pub(crate) fn depth(&self) -> usize {
        self.identities.len()
    }

    /// Goes into `directory`, a child of the current one, whose status is `stat`.
    pub(crate) fn descend(&mut self, directory: OwnedFd, stat: &FileStat) {
        if self.open.len() == DIRECTORIES_OPEN_MAX {
            self.open.pop_front();
        }
        self.identities.push(Identity::of(stat));
        self.open.push_back(directory);
    }

    /// Goes back to the parent; `ESTALE` if it is not where it was. At the root nothing happens.
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
