//! The directory of a Cell on the host.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{getegid, geteuid};
use uuid::Uuid;

use crate::case::cell::error::ExecError;
use crate::case::cell::files::CellFiles;
use crate::case::cell::layout::CellLayout;
use crate::case::cell::source::copy_source;
use cofferdam_tree::{Owner, remove_tree};

/// The mode of the directory and of those in it.
const MODE: u32 = 0o700;
/// HOME of commands, below the temporary directory.
const HOME: &str = "home";
/// The sandbox, below the root.
const SANDBOX: &str = "sandbox";

/// The directory of one Cell, with mode 0700. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct CellDirectory {
    parent: PathBuf,
    base: File,
    name: OsString,
    root: File,
    layout: CellLayout,
}

impl CellDirectory {
    /// Makes one in `base`, whose sandbox is empty.
    pub(super) fn make(base: &Path) -> Result<Self, ExecError> {
        let name = OsString::from(format!("cofferdam-cell-{}", Uuid::new_v4().simple()));
        let create = |path: &Path| DirBuilder::new().mode(MODE).create(path);
        let opened = || -> io::Result<Self> {
            let absolute = base.canonicalize()?;
            let path = absolute.join(&name);
            let base = File::open(&absolute)?;
            create(&path)?;
            let (root, layout) = (File::open(&path)?, CellLayout::on_host(&path));
            Ok(Self { parent: absolute, base, name: name.clone(), root, layout })
        };
        let made = opened().map_err(|error| ExecError::failed("make directory", error))?;
        let layout = made.layout();
        for directory in [layout.sandbox(), layout.env(), layout.tmp(), &layout.tmp().join(HOME)] {
            create(directory).map_err(|error| ExecError::failed("make directory", error))?;
        }
        Ok(made)
    }

    /// Copies `source`, if there is one, into the sandbox. No command has run yet.
    pub(super) fn fill(&self, source: Option<&Path>) -> Result<(), ExecError> {
        let Some(source) = source else { return Ok(()) };
        let sandbox = File::open(self.layout.sandbox());
        let sandbox = sandbox.map_err(|error| ExecError::failed("open sandbox", error))?;
        copy_source(source, sandbox.as_fd(), Self::owner())
    }

    /// The sandbox. A link in its place is not followed.
    pub(super) fn open_sandbox(&self) -> Result<OwnedFd, ExecError> {
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        openat2(&self.root, SANDBOX, how)
            .map_err(|errno| ExecError::failed("open sandbox", errno.desc()))
    }

    /// Removes the sandbox, and has `fill` write a new one.
    pub(super) fn replace_sandbox(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        let failed = |error: &dyn std::fmt::Display| ExecError::failed("replace sandbox", error);
        let removed = remove_tree(self.root.as_fd(), OsStr::new(SANDBOX));
        let left = removed.map_err(|error| failed(&error))?.left;
        if left > 0 {
            return Err(failed(&format_args!("{left} entries cannot be removed")));
        }
        let mode = Mode::from_bits_truncate(MODE);
        mkdirat(&self.root, SANDBOX, mode).map_err(|errno| failed(&errno.desc()))?;
        fill(self.open_sandbox()?.as_fd(), Self::owner())
    }

    /// Its files, as they are put and read.
    pub(super) fn files(&self) -> CellFiles<'_> {
        CellFiles { root: self.root.as_fd(), layout: &self.layout, owner: Self::owner() }
    }

    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// The directory that it is in.
    pub(super) fn parent(&self) -> &Path {
        &self.parent
    }

    /// Where the files are.
    pub(super) fn layout(&self) -> &CellLayout {
        &self.layout
    }

    /// The owner of the files: the caller.
    fn owner() -> Owner {
        Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }
}

impl Drop for CellDirectory {
    fn drop(&mut self) {
        match remove_tree(self.base.as_fd(), &self.name) {
            Ok(removal) if removal.left == 0 => {}
            Ok(removal) => log::error!("{} entries of a Cell are left", removal.left),
            Err(error) => log::error!("remove the files of a Cell: {error}"),
        }
    }
}
