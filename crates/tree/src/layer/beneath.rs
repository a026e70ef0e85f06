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
}

impl<'root> Beneath<'root> {
    pub(super) fn new(root: Option<BorrowedFd<'root>>) -> Self {
        Self { dirs: root.map(DirStack::new), hidden: 0 }
    }

    /// Whether a layer lies below.
    pub(super) fn exists(&self) -> bool {
        self.dirs.is_some()
    }

    /// Enters the directory `name`. If it `hides`, nothing shows through it.
    pub(super) fn enter(&mut self, name: &CStr, hides: bool) -> Result<(), WorkspaceFault> {
        let Some(dirs) = &mut self.dirs else { return Ok(()) };
        if self.hidden > 0 || hides {
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
        match &mut self.dirs {
            Some(_) if self.hidden > 0 => self.hidden -= 1,
            Some(dirs) => dirs.ascend().during("return from")?,
            None => {}
        }
        Ok(())
    }

    /// Whether the entry `name` shows through the current directory.
    pub(super) fn has(&self, name: &CStr) -> Result<bool, WorkspaceFault> {
        let Some(dirs) = self.dirs.as_ref().filter(|_| self.hidden == 0) else { return Ok(false) };
        match fstatat(dirs.current(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(!is_whiteout(&stat)),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno).during("stat"),
        }
    }
}
