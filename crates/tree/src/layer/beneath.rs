//! What lies below the target of an application, in step with the walk.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{fstat, fstatat};

use super::entries::is_whiteout;
use crate::error::{During, WorkspaceFault};
use crate::walk::dir_stack::DirStack;
use crate::walk::open_beneath;

/// The directory that shows through the current one of the target.
#[derive(Debug)]
pub(super) struct Beneath<'root> {
    /// None if no layer lies below.
    dirs: Option<DirStack<'root>>,
    /// How many directories the walk is in, from the first on through which none shows.
    hidden: usize,
    /// How many directories the walk is in, from the first on through which another one shows.
    redirected: usize,
}

/// What shows through a directory of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownBelow {
    /// What lies below it.
    Own,
    /// Nothing.
    Nothing,
    /// A directory that lies elsewhere.
    Elsewhere,
}

impl<'root> Beneath<'root> {
    pub(super) fn new(root: Option<BorrowedFd<'root>>) -> Self {
        Self { dirs: root.map(DirStack::new), hidden: 0, redirected: 0 }
    }

    /// Whether a layer lies below.
    pub(super) fn exists(&self) -> bool {
        self.dirs.is_some()
    }

    /// Enters the directory `name`, through which `shown` shows.
    pub(super) fn enter(&mut self, name: &CStr, shown: ShownBelow) -> Result<(), WorkspaceFault> {
        if self.redirected > 0 || shown == ShownBelow::Elsewhere {
            self.redirected += 1;
            return Ok(());
        }
        let Some(dirs) = &mut self.dirs else { return Ok(()) };
        if self.hidden > 0 || shown == ShownBelow::Nothing {
            self.hidden += 1;
            return Ok(());
        }
        match open_beneath::open_directory(dirs.current(), name) {
            Ok(directory) => {
                let stat = fstat(&directory).during("stat")?;
                dirs.descend(directory, &stat);
            }
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => self.hidden += 1,
            Err(errno) => return Err(errno).during("open"),
        }
        Ok(())
    }

    /// Leaves the directory that was entered last.
    pub(super) fn leave(&mut self) -> Result<(), WorkspaceFault> {
        if self.redirected > 0 {
            self.redirected -= 1;
            return Ok(());
        }
        match &mut self.dirs {
            Some(_) if self.hidden > 0 => self.hidden -= 1,
            Some(dirs) => dirs.ascend().during("return from")?,
            None => {}
        }
        Ok(())
    }

    /// Whether the entry `name` shows through the current directory. Where it is not known, overlayfs has made each
    /// whiteout for something.
    pub(super) fn has(&self, name: &CStr) -> Result<bool, WorkspaceFault> {
        if self.redirected > 0 {
            return Ok(true);
        }
        let Some(dirs) = self.dirs.as_ref().filter(|_| self.hidden == 0) else { return Ok(false) };
        match fstatat(dirs.current(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(!is_whiteout(&stat)),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno).during("stat"),
        }
    }
}
