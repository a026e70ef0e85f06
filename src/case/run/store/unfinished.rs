//! A run that is being made.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;

use super::cell_files::remove_entry;
use super::error::CaseRunError;
use crate::store::{ServiceLock, StoreDir};
use cofferdam_core::job::JobId;

/// The start of the name of a run that is not whole yet.
pub(super) const UNFINISHED: &str = ".new-";
/// How many new names are tried for a run that is not whole yet.
const ATTEMPTS_MAX: u32 = 16;

/// A run that is being made, in a directory that others take for no run. Dropping it removes the directory; what a
/// killed process leaves is removed when the next run is made.
#[derive(Debug)]
pub struct UnfinishedRun {
    cases: Arc<StoreDir>,
    name: String,
    directory: StoreDir,
    /// Held until the run is whole.
    lock: Option<ServiceLock>,
}

impl UnfinishedRun {
    /// A new directory under a name of its own, with its lock.
    pub(super) fn make(cases: &Arc<StoreDir>) -> Result<Self, CaseRunError> {
        for _ in 0..ATTEMPTS_MAX {
            let name = new_name();
            let directory = cases.own_child(&name)?;
            // Until the lock is taken, another process may take the directory for one that was left.
            if let Ok(lock) = ServiceLock::take(&directory)
                && directory.is_in_place()
            {
                return Ok(Self { cases: Arc::clone(cases), name, directory, lock: Some(lock) });
            }
        }
        Err(cases.error("lock", UNFINISHED, Errno::EAGAIN).into())
    }

    pub(super) fn directory(&self) -> &StoreDir {
        &self.directory
    }

    /// Its path, until it is whole.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes the directory `name` in it, which other users cannot enter.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn make_directory(&self, name: &str) -> Result<PathBuf, CaseRunError> {
        Ok(self.directory.own_child(name)?.path().to_owned())
    }

    /// Writes the new file `name` besides those of every run.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), CaseRunError> {
        Ok(self.directory.write_new(name, contents)?)
    }

    /// Gives the run its name; returns its lock.
    pub(super) fn rename(mut self, id: &JobId) -> Result<ServiceLock, CaseRunError> {
        let moved = self.cases.move_to(&self.name, &self.cases, id.as_str());
        moved.map_err(|errno| match errno {
            Errno::EEXIST => CaseRunError::Taken(id.clone()),
            errno => self.cases.error("rename", id.as_str(), errno).into(),
        })?;
        let lock = self.lock.take();
        lock.ok_or_else(|| self.cases.error("lock", id.as_str(), Errno::ENOLCK).into())
    }
}

impl Drop for UnfinishedRun {
    fn drop(&mut self) {
        if self.lock.is_some()
            && let Err(error) = remove_entry(&self.cases, OsStr::new(&self.name))
        {
            log::warn!(reason = error.to_string(); "unfinished run not removed");
        }
    }
}

/// A name that no run has.
pub(super) fn new_name() -> String {
    format!("{UNFINISHED}{}", uuid::Uuid::new_v4().simple())
}
