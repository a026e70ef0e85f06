//! Errors of access to a workspace's files.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::error::{WorkspaceError, WorkspaceFault};
use crate::walk::budget::TreeLimit;

/// Why a workspace's files could not be read or changed. Paths are as clients see them, and are
/// printed escaped because a program may have chosen the names.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The path is empty, contains NUL, or leaves the workspace and `/tmp`.
    #[error("{path:?} is not a path in the workspace")]
    PathEscape {
        /// The path.
        path: PathBuf,
    },
    /// The path or one of its names is longer than the kernel accepts.
    #[error("the path {path:?} is too long")]
    PathTooLong {
        /// The path, cut.
        path: PathBuf,
    },
    /// There is nothing at the path.
    #[error("{path:?} is not found")]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// A link is on the way to the path, or leads out of the workspace.
    #[error("{path:?} leads through a link")]
    ThroughLink {
        /// The path up to the link.
        path: PathBuf,
    },
    /// The path is no regular file, or no directory, as the operation wants it, or a program has
    /// exchanged it during the operation.
    #[error("{path:?} has the wrong type")]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// There is something at the path already.
    #[error("{path:?} exists")]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The path is in a read-only tree.
    #[error("{path:?} is read-only")]
    ReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// The directory is not empty.
    #[error("{path:?} is not empty")]
    NotEmpty {
        /// The path.
        path: PathBuf,
    },
    /// A directory would be moved or copied into itself.
    #[error("{path:?} lies in the directory that is moved")]
    IntoItself {
        /// The path of the target.
        path: PathBuf,
    },
    /// The workspace has no room.
    #[error("the disk is full at {path:?}")]
    DiskFull {
        /// The path.
        path: PathBuf,
    },
    /// A tree or an archive exceeds a limit.
    #[error("{path:?}: {source}")]
    TooLarge {
        /// The path where the limit was exceeded.
        path: PathBuf,
        /// The limit.
        source: TreeLimit,
    },
    /// An archive contains what may not be unpacked. Nothing was written.
    #[error("the archive is not safe at {entry:?}: {reason}")]
    ArchiveUnsafe {
        /// The name of the entry; empty for the archive as a whole.
        entry: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A pattern is malformed.
    #[error("pattern {index}: {reason}")]
    BadPattern {
        /// Its index in the list.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The [`StopCheck`](crate::StopCheck) stopped the operation.
    #[error("stopped")]
    Stopped,
    /// The contents to write could not be read.
    #[error("the contents cannot be read: {0}")]
    Input(#[source] io::Error),
    /// The archive could not be written to its reader.
    #[error("the output cannot be written: {0}")]
    Output(#[source] io::Error),
    /// The kernel refused an operation.
    #[error("{operation} {path:?}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The errno.
        source: Errno,
    },
}

/// The most bytes of a path in an error.
const PATH_SHOWN_BYTES_MAX: usize = 4096;

impl FilesError {
    /// The error for `errno` of `operation` on `path`.
    pub(super) fn of(errno: Errno, operation: &'static str, path: &Path) -> Self {
        let path = shown(path);
        match errno {
            Errno::ENOENT => Self::NotFound { path },
            Errno::ELOOP => Self::ThroughLink { path },
            Errno::ENOTDIR | Errno::EISDIR | Errno::ENXIO | Errno::ESTALE => {
                Self::NotRegular { path }
            }
            Errno::EEXIST => Self::Exists { path },
            Errno::EROFS => Self::ReadOnly { path },
            Errno::ENOTEMPTY => Self::NotEmpty { path },
            Errno::ENAMETOOLONG => Self::PathTooLong { path },
            Errno::ENOSPC | Errno::EDQUOT => Self::DiskFull { path },
            source => Self::Io { operation, path, source },
        }
    }

    pub(super) fn not_regular(path: &Path) -> Self {
        Self::NotRegular { path: shown(path) }
    }

    pub(super) fn too_large(limit: TreeLimit, path: &Path) -> Self {
        Self::TooLarge { path: shown(path), source: limit }
    }

    pub(super) fn archive(reason: &'static str, entry: &Path) -> Self {
        Self::ArchiveUnsafe { entry: shown(entry), reason }
    }
}

impl From<WorkspaceError> for FilesError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::System { operation, path, source } => {
                Self::of(source, operation, &path)
            }
            WorkspaceError::TooLarge { path, source } => Self::TooLarge { path, source },
            WorkspaceError::Stopped => Self::Stopped,
            WorkspaceError::DirectoryInTheWay { path } | WorkspaceError::NotADirectory { path } => {
                Self::NotRegular { path }
            }
        }
    }
}

/// Adds the operation and the path to an error of a system call.
pub(super) trait OnPath<T> {
    fn on(self, operation: &'static str, path: &Path) -> Result<T, FilesError>;
}

impl<T> OnPath<T> for Result<T, Errno> {
    fn on(self, operation: &'static str, path: &Path) -> Result<T, FilesError> {
        self.map_err(|errno| FilesError::of(errno, operation, path))
    }
}

impl<T> OnPath<T> for io::Result<T> {
    fn on(self, operation: &'static str, path: &Path) -> Result<T, FilesError> {
        // Only a write that writes nothing has no errno.
        self.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
            .on(operation, path)
    }
}

impl<T> OnPath<T> for Result<T, WorkspaceFault> {
    fn on(self, _: &'static str, path: &Path) -> Result<T, FilesError> {
        self.map_err(|fault| fault.at(path).into())
    }
}

fn shown(path: &Path) -> PathBuf {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    match path.as_os_str().as_bytes().get(..PATH_SHOWN_BYTES_MAX) {
        Some(start) => Path::new(OsStr::from_bytes(start)).join("…"),
        None => path.to_owned(),
    }
}
