//! An open cgroup directory: its files, its children, and errors that name them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, fstatfs};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::control::CgroupVersion;
use cofferdam_core::values::deadline::Deadline;

/// How often a file of version 1 is read again: version 1 sends no events.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// The largest part of a file that is read; it holds 130,000 process ids.
const READ_BYTES_MAX: usize = 1 << 20;
/// More than most files contain.
const READ_BYTES_AT_ONCE: usize = 512;

/// A failed call on a file or directory of a cgroup tree.
#[derive(Debug, thiserror::Error)]
#[error("{}: {errno:?}", path.display())]
pub struct CgroupError {
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the kernel.
    #[source]
    pub errno: Errno,
}

/// The calls that behave differently on a cgroup file system; everything else is plain reading.
/// Implemented by the kernel in production and by a scripted tree in tests.
pub(super) trait CgroupFs: fmt::Debug + Send + Sync {
    /// The cgroup version of the file system that the directory is on, if it is a cgroup file
    /// system.
    fn version(
        &self,
        directory: BorrowedFd<'_>,
        path: &Path,
    ) -> Result<Option<CgroupVersion>, Errno>;
    fn make(&self, parent: &CgroupDirectory, name: &str) -> Result<(), Errno>;
    fn write(&self, directory: &CgroupDirectory, file: &str, text: &str) -> Result<(), Errno>;
    fn remove(&self, parent: &CgroupDirectory, name: &str) -> Result<(), Errno>;
}

/// The kernel.
#[derive(Debug)]
pub(super) struct KernelCgroupFs;

impl CgroupFs for KernelCgroupFs {
    fn version(
        &self,
        directory: BorrowedFd<'_>,
        _path: &Path,
    ) -> Result<Option<CgroupVersion>, Errno> {
        let kind = fstatfs(directory)?.filesystem_type();
        Ok(match kind {
            CGROUP_SUPER_MAGIC => Some(CgroupVersion::V1),
            CGROUP2_SUPER_MAGIC => Some(CgroupVersion::V2),
            _ => None,
        })
    }

    fn make(&self, parent: &CgroupDirectory, name: &str) -> Result<(), Errno> {
        mkdirat(parent, name, Mode::from_bits_truncate(0o755))
    }

    fn write(&self, directory: &CgroupDirectory, file: &str, text: &str) -> Result<(), Errno> {
        let opened = openat(directory, file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        File::from(opened).write_all(text.as_bytes()).map_err(|error| errno_of(&error))
    }

    fn remove(&self, parent: &CgroupDirectory, name: &str) -> Result<(), Errno> {
        unlinkat(parent, name, UnlinkatFlags::RemoveDir)
    }
}

/// One directory of a cgroup tree. Its files are opened relative to it.
#[derive(Debug)]
pub(super) struct CgroupDirectory {
    path: PathBuf,
    handle: OwnedFd,
    version: CgroupVersion,
    calls: Arc<dyn CgroupFs>,
}

impl CgroupDirectory {
    /// Opens a directory; `EOPNOTSUPP` if it is not on a cgroup file system.
    pub(super) fn open(calls: Arc<dyn CgroupFs>, path: &Path) -> Result<Self, CgroupError> {
        let fail = |errno| CgroupError { path: path.to_owned(), errno };
        let handle = open(path, directory_flags(), Mode::empty()).map_err(fail)?;
        let version = calls.version(handle.as_fd(), path).map_err(fail)?;
        let version = version.ok_or_else(|| fail(Errno::EOPNOTSUPP))?;
        Ok(Self { path: path.to_owned(), handle, version, calls })
    }

    /// Creates a child group and opens it.
    pub(super) fn make_child(&self, name: &str) -> Result<Self, CgroupError> {
        self.calls.make(self, name).map_err(|errno| self.fail(name, errno))?;
        self.open_child(name).inspect_err(|_| {
            // The error that matters is the one returned.
            let _ = self.remove_child(name);
        })
    }

    fn open_child(&self, name: &str) -> Result<Self, CgroupError> {
        let handle = openat(self, name, directory_flags(), Mode::empty())
            .map_err(|errno| self.fail(name, errno))?;
        let path = self.path.join(name);
        Ok(Self { path, handle, version: self.version, calls: Arc::clone(&self.calls) })
    }

    /// Removes a child group. It is no error if the group is gone already.
    pub(super) fn remove_child(&self, name: &str) -> Result<(), CgroupError> {
        match self.calls.remove(self, name) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.fail(name, errno)),
        }
    }

    pub(super) fn write(&self, file: &str, text: &str) -> Result<(), CgroupError> {
        self.calls.write(self, file, text).map_err(|errno| self.fail(file, errno))
    }

    /// The text of the file; whole lines only if the file is longer than what is read.
    pub(super) fn read(&self, file: &str) -> Result<String, CgroupError> {
        let mut opened = File::from(self.open_file(file, OFlag::O_RDONLY)?);
        let fail = |error: &io::Error| self.fail(file, errno_of(error));
        let mut text = vec![0; READ_BYTES_AT_ONCE];
        let count = opened.read(&mut text).map_err(|error| fail(&error))?;
        text.truncate(count);
        // A shorter file comes whole in one call, as most do.
        if count == READ_BYTES_AT_ONCE {
            let rest = READ_BYTES_MAX - READ_BYTES_AT_ONCE;
            opened.take(rest as u64).read_to_end(&mut text).map_err(|error| fail(&error))?;
        }
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if text.len() == READ_BYTES_MAX {
            // Half a process id would be the id of another process.
            text.truncate(text.rfind('\n').unwrap_or(0));
        }
        Ok(text)
    }

    pub(super) fn open_file(&self, file: &str, access: OFlag) -> Result<OwnedFd, CgroupError> {
        openat(self, file, access | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| self.fail(file, errno))
    }

    /// Whether the file exists.
    pub(super) fn has(&self, file: &str) -> bool {
        self.open_file(file, OFlag::O_PATH).is_ok()
    }

    /// The processes of this group, as numbered in this process's PID namespace. Processes outside
    /// of it are left out.
    pub(super) fn processes(&self) -> Result<Vec<i32>, CgroupError> {
        let text = self.read("cgroup.procs")?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|id| *id > 0).collect())
    }

    /// The threads of this group, numbered in the same way.
    pub(super) fn threads(&self) -> Result<Vec<i32>, CgroupError> {
        let file = match self.version {
            CgroupVersion::V1 => "tasks",
            CgroupVersion::V2 => "cgroup.threads",
        };
        let text = self.read(file)?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|id| *id > 0).collect())
    }

    /// Waits until the file contains the line. False if the deadline passes first or the file
    /// cannot be read.
    pub(super) fn wait_for_line(&self, file: &str, line: &str, deadline: Deadline) -> bool {
        let Ok(opened) = self.open_file(file, OFlag::O_RDONLY) else { return false };
        let mut opened = File::from(opened);
        loop {
            let mut text = String::new();
            // Reading from the start also arms the event for the next change.
            if opened.rewind().is_err() || opened.read_to_string(&mut text).is_err() {
                return false;
            }
            if text.lines().any(|l| l == line) {
                return true;
            }
            if deadline.passed() {
                return false;
            }
            let at_most = match self.version() {
                CgroupVersion::V1 => deadline.remaining().min(RETRY_INTERVAL),
                CgroupVersion::V2 => deadline.remaining(),
            };
            // Rounded up: a wait of zero would spin.
            let at_most = at_most.saturating_add(Duration::from_micros(999));
            let at_most = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
            // After an interrupted or failed wait the loop reads again.
            let _ = poll(&mut [PollFd::new(opened.as_fd(), PollFlags::POLLPRI)], at_most);
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last part of its path.
    pub(super) fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub(super) fn version(&self) -> CgroupVersion {
        self.version
    }

    fn fail(&self, name: &str, errno: Errno) -> CgroupError {
        CgroupError { path: self.path.join(name), errno }
    }
}

impl AsFd for CgroupDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn directory_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_another_file_system_is_refused() {
        let elsewhere = tempfile::tempdir().unwrap();
        let error = CgroupDirectory::open(Arc::new(KernelCgroupFs), elsewhere.path()).unwrap_err();
        assert_eq!(error.errno, Errno::EOPNOTSUPP);
        assert!(error.to_string().ends_with(": EOPNOTSUPP"), "{error}");
    }
}
