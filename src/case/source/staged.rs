//! A copy of a directory on this host, as it was at one moment.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::unistd::{getegid, geteuid};
use uuid::Uuid;

use super::error::SourceFault;
use super::left_out::{SOURCE_LIMITS, is_left_out};
use cofferdam_tree::{Owner, StopCheck, copy_selected, remove_tree};

/// The mode of the directory that holds a copy: its own mode is that of what was copied.
const MODE: u32 = 0o700;
/// The copy, below that directory.
const COPY: &str = "source";

/// A copy, which is removed when this is dropped.
#[derive(Debug)]
pub struct StagedCopy {
    base: File,
    name: OsString,
    copy: File,
}

impl StagedCopy {
    /// Copies the directory `source` to a new directory in `base`, which others cannot read, without what no copy has.
    ///
    /// # Errors
    /// It cannot be read, is larger than [`SOURCE_LIMITS`], or `stop` ended the copy. Nothing is left.
    pub fn make(source: &Path, base: &Path, stop: StopCheck<'_>) -> Result<Self, SourceFault> {
        let shown = source.display();
        let opened = File::open(source);
        let opened = opened.map_err(|error| SourceFault::of_step(&shown.to_string(), error))?;
        let made = Self::empty(base).map_err(|error| SourceFault::of_step("make copy", error))?;
        let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let (from, to) = (opened.as_fd(), made.copy.as_fd());
        copy_selected(from, to, owner, &SOURCE_LIMITS, &is_left_out, stop)
            .map_err(|error| SourceFault::of_step(&format!("copy {shown}"), error))?;
        Ok(made)
    }

    fn empty(base: &Path) -> io::Result<Self> {
        let name = OsString::from(format!("source-{}", Uuid::new_v4().simple()));
        let (place, base) = (base.join(&name), File::open(base)?);
        let create = |path: &Path| DirBuilder::new().mode(MODE).create(path);
        create(&place)?;
        let copy = create(&place.join(COPY)).and_then(|()| File::open(place.join(COPY)));
        match copy {
            Ok(copy) => Ok(Self { base, name, copy }),
            Err(error) => {
                remove(&base, &name);
                Err(error)
            }
        }
    }

    /// The copy.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.copy.as_fd()
    }
}

impl Drop for StagedCopy {
    fn drop(&mut self) {
        remove(&self.base, &self.name);
    }
}

fn remove(base: &File, name: &OsString) {
    match remove_tree(base.as_fd(), name) {
        Ok(removal) if removal.left == 0 => {}
        Ok(removal) => log::error!("{} entries of the copy of a source are left", removal.left),
        Err(error) => log::error!("remove the copy of a source: {error}"),
    }
}
