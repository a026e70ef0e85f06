//! An open directory of the store. Everything in it is opened by a single name, and no link is
//! followed.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, lstat, mkdirat};
use nix::unistd::{UnlinkatFlags, fsync, geteuid, unlinkat};

use crate::store::error::{ReadFault, StoreError, errno_of};

/// A directory, and its path for errors.
#[derive(Debug)]
pub(crate) struct StoreDir {
    fd: OwnedFd,
    path: PathBuf,
}

const OPEN_DIRECTORY: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// Only the owner of the store may access its files.
const FILE_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

impl StoreDir {
    /// Opens `path`. Links are followed: the operator chose the path.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OPEN_DIRECTORY.difference(OFlag::O_NOFOLLOW);
        let fd = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens the directory `path` by its canonical path, and creates it if missing. It must belong to
    /// this user, and no other user may be able to rename what is in it.
    pub(crate) fn open_root(path: &Path) -> Result<Self, StoreError> {
        let unusable = |reason: String| StoreError::Unusable { path: path.into(), reason };
        let failed = |error: std::io::Error| unusable(errno_of(&error).to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let whole = path.canonicalize().map_err(failed)?;
        let root = Self::open(&whole).map_err(|errno| unusable(errno.to_string()))?;
        let stat = root.stat()?;
        if stat.st_uid != geteuid().as_raw() {
            return Err(unusable(format!("it belongs to user {}", stat.st_uid)));
        }
        let mode = Mode::from_bits_truncate(stat.st_mode);
        if mode.contains(Mode::S_IWOTH) && !mode.contains(Mode::S_ISVTX) {
            return Err(unusable("everybody may write to it".to_owned()));
        }
        Ok(root)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    pub(crate) fn stat(&self) -> Result<FileStat, StoreError> {
        fstat(&self.fd).map_err(|errno| self.error("stat", "", errno))
    }

    /// When an entry of the directory was last created, renamed or removed.
    pub(crate) fn changed_at(&self) -> Result<SystemTime, StoreError> {
        let stat = self.stat()?;
        let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
        let nanoseconds = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or(0));
        Ok(SystemTime::UNIX_EPOCH + seconds + nanoseconds)
    }

    /// Whether the path still names this directory. Returns true if that is unknown.
    pub(crate) fn is_in_place(&self) -> bool {
        match (fstat(&self.fd), lstat(&self.path)) {
            (Ok(ours), Ok(there)) => (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino),
            (_, Err(errno)) => errno != Errno::ENOENT,
            _ => true,
        }
    }

    /// The error of an operation on the entry `name`.
    pub(crate) fn error(
        &self,
        operation: &'static str,
        name: impl AsRef<OsStr>,
        source: Errno,
    ) -> StoreError {
        StoreError::System { operation, path: self.path_of(name), source }
    }

    pub(crate) fn path_of(&self, name: impl AsRef<OsStr>) -> PathBuf {
        if name.as_ref().is_empty() { self.path.clone() } else { self.path.join(name.as_ref()) }
    }

    /// Opens the directory `name`.
    pub(crate) fn child(&self, name: impl AsRef<OsStr>) -> Result<Self, Errno> {
        let name = name.as_ref();
        let fd = openat(&self.fd, name, OPEN_DIRECTORY, Mode::empty())?;
        Ok(Self { fd, path: self.path.join(name) })
    }

    /// Opens the directory `name`, and creates it if missing. It must belong to this user.
    pub(crate) fn own_child(&self, name: &str) -> Result<Self, StoreError> {
        match mkdirat(&self.fd, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(self.error("mkdir", name, errno)),
        }
        let child = self.child(name).map_err(|errno| self.error("open", name, errno))?;
        let stat = child.stat()?;
        if stat.st_uid != geteuid().as_raw() {
            let reason = format!("{name} belongs to user {}", stat.st_uid);
            return Err(StoreError::Unusable { path: self.path.clone(), reason });
        }
        if stat.st_mode & 0o777 != 0o700 {
            fchmod(&child.fd, Mode::S_IRWXU).map_err(|errno| self.error("chmod", name, errno))?;
        }
        Ok(child)
    }

    /// The metadata of `name`, without following a link; nothing if there is no such entry.
    pub(crate) fn entry(&self, name: impl AsRef<OsStr>) -> Result<Option<FileStat>, StoreError> {
        let name = name.as_ref();
        match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.error("stat", name, errno)),
        }
    }

    /// Opens the regular file `name` for reading. Opens no other kind of file, and never blocks.
    pub(crate) fn open_file(&self, name: &str) -> Result<(File, u64), ReadFault> {
        let fault = |operation, errno| ReadFault::of(operation, self.path.join(name), errno);
        // Opening a device can have effects.
        let stat = fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        regular_bytes(&stat.map_err(|errno| fault("stat", errno))?)?;
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file =
            openat(&self.fd, name, flags, Mode::empty()).map_err(|errno| fault("open", errno))?;
        let bytes = regular_bytes(&fstat(&file).map_err(|errno| fault("stat", errno))?)?;
        Ok((File::from(file), bytes))
    }

    /// Reads the regular file `name`, of at most `bytes_max` bytes.
    pub(crate) fn read(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, ReadFault> {
        let (file, bytes) = self.open_file(name)?;
        let mut contents = Vec::new();
        // One more byte shows that the file is too large.
        let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut contents);
        read.map_err(|error| ReadFault::of("read", self.path.join(name), errno_of(&error)))?;
        if u64::try_from(contents.len()).unwrap_or(u64::MAX) > bytes_max {
            let reason = format!("{bytes} bytes, more than {bytes_max}");
            return Err(ReadFault::Corrupt(reason));
        }
        Ok(contents)
    }

    /// Creates the new file `name` for writing.
    pub(crate) fn create_file(&self, name: &str) -> Result<File, StoreError> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.fd, name, flags, FILE_MODE)
            .map(File::from)
            .map_err(|errno| self.error("create", name, errno))
    }

    /// Creates the new file `name` with `contents`. On return the contents are on the disk, but the
    /// name may not be.
    pub(crate) fn write_new(&self, name: &str, contents: &[u8]) -> Result<(), StoreError> {
        let mut file = self.create_file(name)?;
        file.write_all(contents).map_err(|error| self.error("write", name, errno_of(&error)))?;
        fsync(&file).map_err(|errno| self.error("fsync", name, errno))
    }

    /// Replaces the file `name` atomically: a reader sees the old or the new contents, also after a
    /// loss of power. One writer at a time.
    pub(crate) fn replace(&self, name: &str, contents: &[u8]) -> Result<(), StoreError> {
        let temporary = temporary(name);
        self.unlink(&temporary)?;
        let renamed = self.write_new(&temporary, contents).and_then(|()| {
            renameat(&self.fd, temporary.as_str(), &self.fd, name)
                .map_err(|errno| self.error("rename", name, errno))
        });
        if renamed.is_err() {
            // The first failure is the one to report.
            let _ = self.unlink(&temporary);
        }
        renamed
    }

    /// Removes the temporary file that an interrupted [`StoreDir::replace`] of `name` has left.
    pub(crate) fn unlink_unfinished(&self, name: &str) -> Result<(), StoreError> {
        self.unlink(&temporary(name))
    }

    /// Removes the file `name`, if it exists.
    pub(crate) fn unlink(&self, name: &str) -> Result<(), StoreError> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.error("unlink", name, errno)),
        }
    }

    /// Removes the directory `name`, which must be empty.
    pub(crate) fn remove_empty(&self, name: impl AsRef<OsStr>) -> Result<(), StoreError> {
        let name = name.as_ref();
        unlinkat(&self.fd, name, UnlinkatFlags::RemoveDir)
            .map_err(|errno| self.error("rmdir", name, errno))
    }

    /// Cuts the regular file `name` to nothing.
    pub(crate) fn empty(&self, name: &str) -> Result<(), StoreError> {
        let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.fd, name, flags | OFlag::O_NONBLOCK, Mode::empty())
            .map(drop)
            .map_err(|errno| self.error("truncate", name, errno))
    }

    /// Moves the entry `name` to `other` as `new_name`, unless that exists.
    pub(crate) fn move_to(
        &self,
        name: impl AsRef<OsStr>,
        other: &Self,
        new_name: impl AsRef<OsStr>,
    ) -> Result<(), Errno> {
        let (name, new_name) = (name.as_ref(), new_name.as_ref());
        match renameat2(&self.fd, name, &other.fd, new_name, RenameFlags::RENAME_NOREPLACE) {
            // The file system does not support the flag. A plain rename does not replace a
            // directory that holds anything, as every job's does.
            Err(Errno::EINVAL | Errno::ENOSYS) => renameat(&self.fd, name, &other.fd, new_name)
                .map_err(|errno| match errno {
                    Errno::ENOTEMPTY | Errno::ENOTDIR => Errno::EEXIST,
                    errno => errno,
                }),
            moved => moved,
        }
    }

    /// Writes the names of the entries to the disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        fsync(&self.fd).map_err(|errno| self.error("fsync", "", errno))
    }

    /// The names of the entries, in no order.
    pub(crate) fn names(&self) -> Result<Vec<OsString>, StoreError> {
        let mut names = Vec::new();
        self.for_each_name(|name| {
            names.push(name.to_owned());
            Ok(())
        })?;
        Ok(names)
    }

    /// Calls `visit` with the name of each entry, in no order, until it fails.
    pub(crate) fn for_each_name<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(&OsStr) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |errno| self.error("read", "", errno);
        let flags = OPEN_DIRECTORY;
        let mut directory = Dir::openat(&self.fd, c".", flags, Mode::empty()).map_err(failed)?;
        for entry in directory.iter() {
            let entry = entry.map_err(failed)?;
            let name: &CStr = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                visit(OsStr::from_bytes(name.to_bytes()))?;
            }
        }
        Ok(())
    }
}

/// The size of a regular file.
fn regular_bytes(stat: &FileStat) -> Result<u64, ReadFault> {
    match file_type(stat) {
        SFlag::S_IFREG => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
        _ => Err(ReadFault::Corrupt("not a regular file".to_owned())),
    }
}

/// The kind of an entry.
pub(crate) fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// The name of the file `name` until it is complete.
fn temporary(name: &str) -> String {
    format!(".{name}.new")
}
