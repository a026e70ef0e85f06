//! What a service keeps beside the files of every run, and how it reads and removes runs that have ended.

use std::ffi::OsStr;
use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::cell_files::remove_entry;
use super::error::CaseRunError;
use super::folder::RunFolder;
use super::locked_run::LockedRun;
use super::unfinished::new_name;
use crate::store::{ReadFault, ServiceLock, StoreDir, StoreError};

impl RunFolder {
    /// The directories of runs, in no order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> Result<Vec<String>, CaseRunError> {
        let names = self.cases.names()?.into_iter().filter_map(|name| name.into_string().ok());
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    }

    /// The file `file` of the run `name`; `None` if it does not exist.
    ///
    /// # Errors
    /// It is longer than `bytes_max`, or cannot be read.
    pub fn read_file(
        &self,
        name: &str,
        file: &str,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, CaseRunError> {
        let Some(run) = self.run_directory(name)? else { return Ok(None) };
        found(&run, file, run.read(file, bytes_max))
    }

    /// Opens the file `file` of the run `name` and returns its size too; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_file(&self, name: &str, file: &str) -> Result<Option<(File, u64)>, CaseRunError> {
        let Some(run) = self.run_directory(name)? else { return Ok(None) };
        found(&run, file, run.open_file(file))
    }

    /// Removes the entry `entry` of the run `name`, whole, unless another process works on the run.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_file(&self, name: &str, entry: &str) -> Result<(), CaseRunError> {
        let Some(run) = self.run_directory(name)? else { return Ok(()) };
        if run.entry(entry)?.is_none() {
            return Ok(());
        }
        let _lock = ServiceLock::take(&run)?;
        remove_entry(&run, OsStr::new(entry))
    }

    /// Removes the run `name`.
    ///
    /// # Errors
    /// Another process works on it, or it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), CaseRunError> {
        let Some(run) = self.run_directory(name)? else { return Ok(()) };
        let lock = ServiceLock::take(&run)?;
        // Under this name a killed removal is finished when the next run is made.
        let gone = new_name();
        let moved = self.cases.move_to(name, &self.cases, &gone);
        moved.map_err(|errno| self.cases.error("rename", name, errno))?;
        let removed = remove_entry(&self.cases, OsStr::new(&gone));
        drop(lock);
        removed
    }

    fn run_directory(&self, name: &str) -> Result<Option<StoreDir>, CaseRunError> {
        match self.cases.child(name) {
            Ok(run) => Ok(Some(run)),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
            Err(errno) => Err(self.cases.error("open", name, errno).into()),
        }
    }
}

impl LockedRun {
    /// Replaces the file `name`, besides those of every run.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn write_file(&self, name: &str, contents: &[u8]) -> Result<(), CaseRunError> {
        self.directory().replace(name, contents)?;
        Ok(self.directory().sync()?)
    }

    /// Opens the file `name` for reading and returns its size too; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_file(&self, name: &str) -> Result<Option<(File, u64)>, CaseRunError> {
        found(self.directory(), name, self.directory().open_file(name))
    }

    /// Opens the file `name` for reading and writing, and creates it if missing.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn grow_file(&self, name: &str) -> Result<File, CaseRunError> {
        let flags = OFlag::O_RDWR
            | OFlag::O_CREAT
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC;
        let opened = openat(self.directory().fd(), name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        Ok(opened.map(File::from).map_err(|errno| self.directory().error("open", name, errno))?)
    }

    /// Removes the entry `name`, whole, if it is there.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_file(&self, name: &str) -> Result<(), CaseRunError> {
        match self.directory().entry(name)? {
            Some(_) => remove_entry(self.directory(), OsStr::new(name)),
            None => Ok(()),
        }
    }
}

/// What was read, or nothing if there is no such file.
fn found<T>(
    directory: &StoreDir,
    name: &str,
    read: Result<T, ReadFault>,
) -> Result<Option<T>, CaseRunError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(ReadFault::Absent) => Ok(None),
        Err(ReadFault::System(error)) => Err(error.into()),
        Err(ReadFault::Corrupt(reason)) => {
            Err(StoreError::Corrupt { path: directory.path_of(name), reason }.into())
        }
    }
}
