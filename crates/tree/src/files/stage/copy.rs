//! Copies a tree into a directory that no program can reach yet.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, fstat, fstatat,
    futimens, mkdirat, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat};

use crate::copy::attributes::make_link;
use crate::copy::copy_file::{FileCopier, Piece};
use crate::copy::link_text::{read_link, stays_inside};
use crate::error::{During, WorkspaceFault};
use crate::files::error::{FilesError, OnPath};
use crate::status;
use crate::walk::budget::{TreeBudget, TreeLimits};
use crate::walk::dir_stack::DirStack;
use crate::walk::open_beneath;
use crate::walk::{FileKind, TreeWalk, WalkEvent, as_path};
use cofferdam_core::values::owner::Owner;

/// What a copied tree is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPurpose {
    /// The tree of a workspace gets another name: everything is kept, read-only trees too.
    Move,
    /// A tree for the programs. Links stay inside, special files are left out.
    Writable,
    /// As `Writable`, but the service keeps it, without write permissions.
    ReadOnly,
}

/// The service itself as an owner: root, unless it runs without privileges.
pub(crate) fn service_owner() -> Owner {
    Owner { uid: Uid::effective().as_raw(), gid: Gid::effective().as_raw() }
}

/// Permissions, owner and time of a copy.
#[derive(Debug, Clone, Copy)]
struct CopyAttributes {
    mode: Mode,
    owner: Owner,
    modified: TimeSpec,
}

impl CopyAttributes {
    fn settle(self, copy: BorrowedFd<'_>) -> Result<(), WorkspaceFault> {
        fchmod(copy, self.mode).during("chmod")?;
        futimens(copy, &self.modified, &self.modified).during("utimens")?;
        self.owner.take(copy).during("chown")
    }
}

/// A copy in progress.
pub(crate) struct TreeCopy<'target> {
    target: DirStack<'target>,
    /// The attributes of the directories that the copy is in, set when they are left.
    attributes: Vec<CopyAttributes>,
    owner: Owner,
    purpose: CopyPurpose,
    budget: TreeBudget,
    copier: FileCopier,
}

impl<'target> TreeCopy<'target> {
    pub(crate) fn new(
        target: BorrowedFd<'target>,
        owner: Owner,
        purpose: CopyPurpose,
        limits: &TreeLimits,
    ) -> Self {
        Self {
            target: DirStack::new(target),
            attributes: Vec::new(),
            owner,
            purpose,
            budget: TreeBudget::new(*limits),
            copier: FileCopier::default(),
        }
    }

    /// Copies the contents of `source`. The target itself keeps its attributes. `path` is for errors.
    pub(crate) fn run(
        mut self,
        source: BorrowedFd<'_>,
        entries_max: u64,
        path: &Path,
    ) -> Result<(), FilesError> {
        let mut walk = TreeWalk::to_choose(source, entries_max).on("list", path)?;
        while let Some(event) = walk.advance()? {
            let (WalkEvent::Enter { name, .. }
            | WalkEvent::Leave { name }
            | WalkEvent::Entry { name, .. }
            | WalkEvent::Unopened { name, .. }) = &event;
            if !matches!(event, WalkEvent::Leave { .. }) {
                let counted = self.budget.take_entry(walk.depth()).map_err(WorkspaceFault::from);
                counted.on("copy", &path.join(walk.path()))?;
            }
            let shown = || path.join(walk.path()).join(as_path(name));
            let taken = match &event {
                WalkEvent::Enter { name, stat } => self.enter(name, stat),
                WalkEvent::Leave { .. } => self.leave(),
                WalkEvent::Entry { name, kind } => self.entry(&walk, name, *kind),
                // It has disappeared, or is a mount.
                WalkEvent::Unopened { errno: Errno::ENOENT | Errno::EXDEV, .. } => Ok(()),
                WalkEvent::Unopened { errno, .. } => Err(*errno).during("open"),
            };
            taken.map_err(|fault| FilesError::from(fault.at(shown())))?;
        }
        Ok(())
    }

    /// The attributes that the copy of a file or directory gets.
    fn attributes_of(&self, stat: &FileStat, is_directory: bool) -> CopyAttributes {
        let modified = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
        let plain = status::file_mode(stat);
        let usable = if is_directory { status::directory_mode(stat) } else { plain };
        let service = service_owner();
        let (mode, owner) = match self.purpose {
            CopyPurpose::Writable => (usable, self.owner),
            CopyPurpose::ReadOnly => (status::read_only_mode(usable), service),
            CopyPurpose::Move if stat.st_uid == service.uid => (plain, service),
            CopyPurpose::Move => (plain, self.owner),
        };
        CopyAttributes { mode, owner, modified }
    }

    /// The attributes of the copy as a whole.
    pub(crate) fn settle_top(
        target: BorrowedFd<'_>,
        stat: &FileStat,
        (owner, purpose): (Owner, CopyPurpose),
        path: &Path,
    ) -> Result<(), FilesError> {
        let copy = TreeCopy::new(target, owner, purpose, &TreeLimits::default());
        copy.attributes_of(stat, true).settle(target).on("chmod", path)
    }

    fn enter(&mut self, name: &CStr, stat: &FileStat) -> Result<(), WorkspaceFault> {
        mkdirat(self.target.current(), name, Mode::S_IRWXU).during("mkdir")?;
        let made = open_beneath::open_directory(self.target.current(), name).during("open")?;
        let made_stat = fstat(&made).during("stat")?;
        self.target.descend(made, &made_stat);
        self.attributes.push(self.attributes_of(stat, true));
        Ok(())
    }

    fn leave(&mut self) -> Result<(), WorkspaceFault> {
        if let Some(attributes) = self.attributes.pop() {
            attributes.settle(self.target.current())?;
        }
        self.target.ascend().during("return from")
    }

    fn entry(
        &mut self,
        walk: &TreeWalk<'_>,
        name: &CStr,
        kind: FileKind,
    ) -> Result<(), WorkspaceFault> {
        match kind {
            FileKind::Regular => self.file(walk.directory(), name),
            FileKind::Symlink => self.link(walk, name),
            FileKind::Special => self.special(walk.directory(), name),
        }
    }

    fn file(&mut self, from: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        let found = match open_beneath::open_path(from, name) {
            Err(Errno::ENOENT | Errno::EXDEV) => return Ok(()),
            found => found.during("open")?,
        };
        let stat = fstat(&found).during("stat")?;
        if status::file_type(&stat) != SFlag::S_IFREG {
            // Another entry has taken its name meanwhile.
            return Err(Errno::ESTALE).during("open");
        }
        let source = open_beneath::reopen_for_reading(found.as_fd()).during("open")?;
        let source = File::from(source);
        let target = open_beneath::create_file(self.target.current(), name).during("create")?;
        let target = File::from(target);
        let budget = &mut self.budget;
        self.copier.contents(&source, &target, &stat, |piece| match piece {
            Piece::Data(data) => Ok(budget.take_bytes(data.len() as u64)?),
            Piece::Hole(_) => Ok(()),
        })?;
        self.attributes_of(&stat, false).settle(target.as_fd())
    }

    fn link(&mut self, walk: &TreeWalk<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        let from = walk.directory();
        let (stat, text) = match read_link(from, name) {
            Err(Errno::ENOENT) => return Ok(()),
            // Another entry has taken its name meanwhile.
            Err(Errno::EINVAL) => return Err(Errno::ESTALE).during("readlink"),
            link => link.during("readlink")?,
        };
        if self.purpose != CopyPurpose::Move && !stays_inside(text.as_bytes(), walk.depth()) {
            return Err(Errno::ELOOP).during("readlink");
        }
        let owner = self.attributes_of(&stat, false).owner;
        make_link(self.target.current(), name, &text, &stat, owner)
    }

    /// A fifo or a socket that moves with its tree. Devices are left out: programs cannot make any.
    fn special(&mut self, from: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        let stat = fstatat(from, name, AtFlags::AT_SYMLINK_NOFOLLOW).during("stat")?;
        let kind = status::file_type(&stat);
        let is_kept = matches!(kind, SFlag::S_IFIFO | SFlag::S_IFSOCK);
        if self.purpose != CopyPurpose::Move || !is_kept {
            return Ok(());
        }
        let CopyAttributes { mode, owner, modified } = self.attributes_of(&stat, false);
        let parent = self.target.current();
        mknodat(parent, name, kind, Mode::S_IRUSR, 0).during("mknod")?;
        // By name: no program can exchange the new file here.
        fchmodat(parent, name, mode, FchmodatFlags::FollowSymlink).during("chmod")?;
        utimensat(parent, name, &modified, &modified, UtimensatFlags::NoFollowSymlink)
            .during("utimens")?;
        let (uid, gid) = (Some(owner.uid()), Some(owner.gid()));
        fchownat(parent, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW).during("chown")
    }
}
