//! Applies a layer to the one below it, so that the two become one.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::attributes::{EntryStatus, LayerMarks, settle_unopened};
use super::beneath::{Beneath, ShownBelow};
use super::entries::{self, Below, HardLinks};
use crate::copy::copy_file::FileCopier;
use crate::error::{During, WorkspaceError, WorkspaceFault};
use crate::walk::dir_stack::DirStack;
use crate::walk::open_beneath;
use crate::walk::stop_check::StopCheck;
use crate::walk::{FileKind, TreeWalk, WalkEvent, as_path};

/// The layer that another is applied to.
#[derive(Debug, Clone, Copy)]
pub struct LayerTarget<'target> {
    /// Its entries.
    pub entries: BorrowedFd<'target>,
    /// An empty directory on the same file system. The caller removes it with its contents.
    pub scratch: BorrowedFd<'target>,
    /// What all layers below it show, if there are any. A whiteout is made only for what is there:
    /// overlayfs shows others in directories that lie in one layer alone.
    pub beneath: Option<BorrowedFd<'target>>,
}

/// How [`apply_layer`] goes about it.
#[derive(Debug, Clone, Copy)]
pub struct ApplyOptions<'calls> {
    /// How directories are marked.
    pub marks: LayerMarks<'calls>,
    /// Whether entries with one name are removed from the upper layer once they are in the target, so
    /// that no data is there twice for long.
    pub consume: bool,
    /// Ends the work early.
    pub stop: StopCheck<'calls>,
}

/// Applies the entries `upper` to the layer `target`, which lies right below: afterwards `target` alone
/// shows what both showed. Modes, owners, times, extended attributes, hard links and holes are kept.
///
/// No other process or thread may change either meanwhile. After an error, the two together still show the same, and the
/// application can be repeated; except that names of one file may have become separate files.
pub fn apply_layer(
    upper: BorrowedFd<'_>,
    target: LayerTarget<'_>,
    options: ApplyOptions<'_>,
) -> Result<(), WorkspaceError> {
    let at_root = |fault: WorkspaceFault| fault.at(".");
    let status = EntryStatus::of(&fstat(upper).during("stat").map_err(at_root)?);
    let mut walk = TreeWalk::to_choose(upper, u64::MAX).during("list").map_err(at_root)?;
    let mut application = Application {
        target: DirStack::new(target.entries),
        beneath: Beneath::new(target.beneath),
        links: HardLinks { scratch: target.scratch },
        entered: Vec::new(),
        root: status,
        options,
        copier: FileCopier::default(),
    };
    while let Some(event) = walk.advance()? {
        let name = match &event {
            WalkEvent::Enter { .. } => None,
            WalkEvent::Leave { name }
            | WalkEvent::Entry { name, .. }
            | WalkEvent::Unopened { name, .. } => Some(name.clone()),
        };
        application.take(&walk, event).map_err(|fault| match &name {
            Some(name) => fault.at(walk.path().join(as_path(name))),
            None => fault.at(walk.path()),
        })?;
    }
    options.marks.settle(upper, &status, target.entries).map_err(at_root)
}

/// An application in progress: the target's side of the walk over the upper layer.
struct Application<'target, 'calls> {
    target: DirStack<'target>,
    beneath: Beneath<'target>,
    links: HardLinks<'target>,
    /// The directories of the upper layer that the walk is in. The target's get their attributes when
    /// they are left, because each new entry changes their times.
    entered: Vec<EntryStatus>,
    /// The root of the upper layer.
    root: EntryStatus,
    options: ApplyOptions<'calls>,
    copier: FileCopier,
}

impl Application<'_, '_> {
    fn take(&mut self, walk: &TreeWalk<'_>, event: WalkEvent) -> Result<(), WorkspaceFault> {
        self.options.stop.check()?;
        match event {
            WalkEvent::Enter { name, stat } => self.enter(walk.directory(), &name, &stat),
            WalkEvent::Leave { name } => self.leave(walk.directory(), &name),
            WalkEvent::Entry { name, kind } => {
                let from = walk.directory();
                let stat = fstatat(from, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
                let stat = stat.during("stat")?;
                self.replace(from, &name, kind, &stat)?;
                self.consume(from, &name, &stat)
            }
            WalkEvent::Unopened { errno, .. } => Err(errno).during("open"),
        }
    }

    fn enter(
        &mut self,
        upper: BorrowedFd<'_>,
        name: &CStr,
        stat: &FileStat,
    ) -> Result<(), WorkspaceFault> {
        let marks = self.options.marks;
        let parent = self.target.current();
        let below = entries::below(parent, name)?;
        let (opaque, redirect) = (marks.is_opaque(upper)?, marks.redirect(upper)?);
        let merges = below == Below::Directory && !opaque && redirect.is_none();
        if !merges {
            if below != Below::Nothing {
                entries::remove(parent, name)?;
            }
            mkdirat(parent, name, Mode::S_IRWXU).during("mkdir")?;
        }
        let made = entries::open_directory(parent, name)?;
        let leads_elsewhere = redirect.is_some() || (merges && marks.redirect(&made)?.is_some());
        let hides = if merges { marks.is_opaque(&made)? } else { opaque || below == Below::Other };
        if let Some(path) = &redirect {
            marks.set_redirect(&made, path).during("set attribute")?;
        } else if !merges && hides && self.beneath.exists() {
            marks.set_opaque(&made)?;
        }
        let shown = match (leads_elsewhere, hides) {
            (true, _) => ShownBelow::Elsewhere,
            (false, true) => ShownBelow::Nothing,
            (false, false) => ShownBelow::Own,
        };
        self.beneath.enter(name, shown)?;
        if self.options.consume {
            // The target's directory shows what the upper one did now, with what is taken from there.
            match redirect {
                Some(_) => marks.clear_redirect(upper)?,
                None if opaque => marks.clear_opaque(upper)?,
                None => {}
            }
        }
        let made_stat = fstat(&made).during("stat")?;
        self.target.descend(made, &made_stat);
        self.entered.push(EntryStatus::of(stat));
        Ok(())
    }

    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        if let Some(status) = self.entered.pop() {
            let upper = entries::open_directory(parent, name)?;
            self.options.marks.settle(upper.as_fd(), &status, self.target.current())?;
        }
        self.beneath.leave()?;
        self.target.ascend().during("return from")
    }

    /// Puts the entry `name` of `from` in place of what the target has there.
    fn replace(
        &mut self,
        from: BorrowedFd<'_>,
        name: &CStr,
        kind: FileKind,
        stat: &FileStat,
    ) -> Result<(), WorkspaceFault> {
        entries::remove(self.target.current(), name)?;
        let parent = self.target.current();
        if entries::is_whiteout(stat) {
            return match self.beneath.has(name)? {
                true => entries::make_whiteout(parent, name),
                false => Ok(()),
            };
        }
        if self.links.link(stat, parent, name)? {
            return Ok(());
        }
        match kind {
            FileKind::Regular => self.copy_file(from, name, stat)?,
            FileKind::Symlink => {
                let text = readlinkat(from, name).during("readlink")?;
                symlinkat(text.as_os_str(), parent, name).during("symlink")?;
                settle_unopened(parent, name, stat)?;
            }
            FileKind::Special => {
                entries::make_special(parent, name, stat)?;
                settle_unopened(parent, name, stat)?;
            }
        }
        self.links.keep(stat, self.target.current(), name)
    }

    fn copy_file(
        &mut self,
        from: BorrowedFd<'_>,
        name: &CStr,
        stat: &FileStat,
    ) -> Result<(), WorkspaceFault> {
        let source = open_beneath::open_for_reading_quietly(from, name).during("open")?;
        let made = open_beneath::create_file(self.target.current(), name).during("create")?;
        let (source, made) = (File::from(source), File::from(made));
        let stop = self.options.stop;
        self.copier.contents(&source, &made, stat, |_| stop.check())?;
        self.options.marks.settle(source.as_fd(), &EntryStatus::of(stat), made.as_fd())
    }

    /// Removes the entry from the upper layer, now that it is in the target.
    fn consume(
        &self,
        from: BorrowedFd<'_>,
        name: &CStr,
        stat: &FileStat,
    ) -> Result<(), WorkspaceFault> {
        // Without its other names, an application that is repeated would not link them.
        if !self.options.consume || (stat.st_nlink > 1 && !entries::is_whiteout(stat)) {
            return Ok(());
        }
        match unlinkat(from, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno).during("unlink"),
        }
        // If the application is stopped, the directory still shows its time.
        self.entered.last().unwrap_or(&self.root).restore_times(from)
    }
}
