//! Copies a directory tree to a new directory. All entries get one owner.

pub(crate) mod attributes;
pub(crate) mod copy_file;
pub(crate) mod fingerprint;
pub(crate) mod link_text;
pub(crate) mod measure;
pub(crate) mod template;

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};

use super::error::{During, WorkspaceError, WorkspaceFault};
use super::status;
use super::walk::{FileKind, TreeWalk, WalkEvent, as_path};
use crate::copy::attributes::{Attributes, make_link};
use crate::copy::copy_file::{FileCopier, Piece};
use crate::copy::link_text::read_link;
use crate::walk::budget::{TreeBudget, TreeLimits};
use crate::walk::dir_stack::DirStack;
use crate::walk::open_beneath;
use crate::walk::stop_check::StopCheck;
use cofferdam_core::values::owner::Owner;

/// The contents of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files and symbolic links.
    pub files: u64,
    /// Size of the regular files' contents without holes, bytes.
    pub bytes: u64,
    /// Fifos, sockets, devices and mount points of the source, which are not copied.
    pub skipped: u64,
}

/// Copies the contents of the directory `source` to the directory `target`, which must be empty and
/// not yet accessible to others. `target` gets the mode and time of `source`.
///
/// Files and directories keep their permission bits, without setuid, setgid and sticky; the owner
/// of a directory can always read, write and search it. Symbolic links are copied as text, never
/// followed. Modification times are kept. `.git` is skipped at any depth. Hard links become
/// separate files, and extended attributes are not copied.
///
/// # Errors
/// The first operation that failed or limit that was exceeded. `target` then holds a part.
pub fn copy_tree(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    owner: Owner,
    limits: &TreeLimits,
) -> Result<Copied, WorkspaceError> {
    copy_tree_until(source, target, owner, limits, StopCheck::never())
}

/// As [`copy_tree`], unless `stop` ends it.
///
/// # Errors
/// As [`copy_tree`], and [`WorkspaceError::Stopped`].
pub fn copy_tree_until(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    owner: Owner,
    limits: &TreeLimits,
    stop: StopCheck<'_>,
) -> Result<Copied, WorkspaceError> {
    let root = fstat(source).during("stat").map_err(|fault| fault.at("."))?;
    let mut walk = TreeWalk::to_read(source, limits.entries_max)
        .during("list")
        .map_err(|fault| fault.at("."))?;
    let mut copy = Copy::new(target, owner, limits, stop);
    while let Some(event) = walk.advance()? {
        copy.take(&walk, &event)?;
    }
    Attributes::of_directory(&root).settle(target, owner).map_err(|fault| fault.at("."))?;
    Ok(Copied { bytes: copy.budget.bytes(), ..copy.copied })
}

/// As [`copy_tree_until`], without the entries whose names `is_left_out` picks. Directories among them are not read.
///
/// # Errors
/// As there.
pub fn copy_selected(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    owner: Owner,
    limits: &TreeLimits,
    is_left_out: &dyn Fn(&[u8]) -> bool,
    stop: StopCheck<'_>,
) -> Result<Copied, WorkspaceError> {
    let root = fstat(source).during("stat").map_err(|fault| fault.at("."))?;
    let mut walk = TreeWalk::to_choose(source, limits.entries_max)
        .during("list")
        .map_err(|fault| fault.at("."))?;
    let mut copy = Copy::new(target, owner, limits, stop);
    while let Some(event) = walk.advance()? {
        match event.name() {
            name if !is_left_out(name.to_bytes()) => copy.take(&walk, &event)?,
            // Its contents are taken from the walk, whose next step leaves it.
            _ if matches!(event, WalkEvent::Enter { .. }) => walk.pass_over(),
            _ => {}
        }
    }
    Attributes::of_directory(&root).settle(target, owner).map_err(|fault| fault.at("."))?;
    Ok(Copied { bytes: copy.budget.bytes(), ..copy.copied })
}

/// A copy in progress: the target side of the walk over the source.
struct Copy<'target, 'stop> {
    target: DirStack<'target>,
    /// The attributes of the directories that the copy is in. They are set when a directory is left,
    /// because each new entry changes its time.
    attributes: Vec<Attributes>,
    owner: Owner,
    budget: TreeBudget,
    copied: Copied,
    copier: FileCopier,
    stop: StopCheck<'stop>,
}

impl<'target, 'stop> Copy<'target, 'stop> {
    fn new(
        target: BorrowedFd<'target>,
        owner: Owner,
        limits: &TreeLimits,
        stop: StopCheck<'stop>,
    ) -> Self {
        Self {
            target: DirStack::new(target),
            attributes: Vec::new(),
            owner,
            budget: TreeBudget::new(*limits),
            copied: Copied::default(),
            copier: FileCopier::default(),
            stop,
        }
    }

    fn take(&mut self, walk: &TreeWalk<'_>, event: &WalkEvent) -> Result<(), WorkspaceError> {
        let from = walk.directory();
        match event {
            WalkEvent::Enter { name, stat } => self
                .count(walk)
                .and_then(|()| self.enter(name, stat))
                .map_err(|fault| fault.at(walk.path())),
            WalkEvent::Leave { name } => {
                self.leave().map_err(|fault| fault.at(walk.path().join(as_path(name))))
            }
            WalkEvent::Entry { name, kind } => self
                .count(walk)
                .and_then(|()| match kind {
                    FileKind::Regular => self.file(from, name),
                    FileKind::Symlink => self.symlink(from, name),
                    FileKind::Special => self.skip(),
                })
                .map_err(|fault| fault.at(walk.path().join(as_path(name)))),
            WalkEvent::Unopened { name, errno } => self
                .count(walk)
                .and_then(|()| self.unopened(*errno))
                .map_err(|fault| fault.at(walk.path().join(as_path(name)))),
        }
    }

    fn count(&mut self, walk: &TreeWalk<'_>) -> Result<(), WorkspaceFault> {
        self.stop.check()?;
        Ok(self.budget.take_entry(walk.depth())?)
    }

    fn skip(&mut self) -> Result<(), WorkspaceFault> {
        self.copied.skipped += 1;
        Ok(())
    }

    fn unopened(&mut self, errno: Errno) -> Result<(), WorkspaceFault> {
        match errno {
            Errno::EXDEV => self.skip(),
            _ => Err(errno).during("open"),
        }
    }

    fn enter(&mut self, name: &CStr, stat: &FileStat) -> Result<(), WorkspaceFault> {
        mkdirat(self.target.current(), name, Mode::S_IRWXU).during("mkdir")?;
        let made = open_beneath::open_directory(self.target.current(), name).during("open")?;
        let made_stat = fstat(&made).during("stat")?;
        self.target.descend(made, &made_stat);
        self.attributes.push(Attributes::of_directory(stat));
        Ok(())
    }

    fn leave(&mut self) -> Result<(), WorkspaceFault> {
        if let Some(attributes) = self.attributes.pop() {
            attributes.settle(self.target.current(), self.owner)?;
        }
        self.target.ascend().during("return from")
    }

    fn file(&mut self, from: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        let source = match open_beneath::open_for_reading(from, name) {
            Err(errno) => return self.unopened(errno),
            Ok(source) => File::from(source),
        };
        let stat = fstat(&source).during("stat")?;
        if status::file_type(&stat) != SFlag::S_IFREG {
            return self.skip();
        }
        let target = open_beneath::create_file(self.target.current(), name).during("create")?;
        let target = File::from(target);
        let (budget, stop) = (&mut self.budget, self.stop);
        self.copier.contents(&source, &target, &stat, |piece| {
            stop.check()?;
            match piece {
                Piece::Data(data) => Ok(budget.take_bytes(data.len() as u64)?),
                Piece::Hole(_) => Ok(()),
            }
        })?;
        Attributes::of_file(&stat).settle(target.as_fd(), self.owner)?;
        self.copied.files += 1;
        Ok(())
    }

    fn symlink(&mut self, from: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        let (stat, text) = read_link(from, name).during("readlink")?;
        make_link(self.target.current(), name, &text, &stat, self.owner)?;
        self.copied.files += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
