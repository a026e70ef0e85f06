//! Errors of operations on a tree, with the operation and the path.

use std::path::PathBuf;

use nix::errno::Errno;

use crate::walk::budget::TreeLimit;

/// Why a tree could not be read, filled or written. Paths are relative to the tree, and are printed
/// escaped because a tenant may have chosen the names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    /// The kernel refused an operation.
    #[error("{operation} {path:?}: {source}")]
    System {
        /// The system call, or a few words: `open`, `return to`.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The errno.
        source: Errno,
    },
    /// The tree exceeds a limit.
    #[error("{path:?}: {source}")]
    TooLarge {
        /// The path where the limit was exceeded.
        path: PathBuf,
        /// The limit.
        source: TreeLimit,
    },
    /// The [`StopCheck`](crate::StopCheck) stopped the operation.
    #[error("stopped")]
    Stopped,
    /// The file to write is an existing directory.
    #[error("{path:?} is a directory")]
    DirectoryInTheWay {
        /// The file's path.
        path: PathBuf,
    },
    /// A directory on the path is something else, such as a file or a link.
    #[error("{path:?} is not a directory")]
    NotADirectory {
        /// The directory's path.
        path: PathBuf,
    },
}

/// An error without a path. Small functions return it, and the caller that knows the path adds it.
#[derive(Debug)]
pub(super) enum WorkspaceFault {
    System { operation: &'static str, errno: Errno },
    Limit(TreeLimit),
    Stopped,
}

impl WorkspaceFault {
    pub(super) fn at(self, path: impl Into<PathBuf>) -> WorkspaceError {
        let path = path.into();
        match self {
            Self::System { operation, errno } => {
                WorkspaceError::System { operation, path, source: errno }
            }
            Self::Limit(source) => WorkspaceError::TooLarge { path, source },
            Self::Stopped => WorkspaceError::Stopped,
        }
    }
}

impl WorkspaceFault {
    /// The fault of `error`, whose path the caller knows better.
    pub(super) fn from_tree(error: &WorkspaceError) -> Self {
        let system = |operation, errno| Self::System { operation, errno };
        match error {
            WorkspaceError::System { operation, source, .. } => system(operation, *source),
            WorkspaceError::TooLarge { source, .. } => Self::Limit(*source),
            WorkspaceError::Stopped => Self::Stopped,
            WorkspaceError::DirectoryInTheWay { .. } => system("replace", Errno::EISDIR),
            WorkspaceError::NotADirectory { .. } => system("enter", Errno::ENOTDIR),
        }
    }
}

impl From<TreeLimit> for WorkspaceFault {
    fn from(limit: TreeLimit) -> Self {
        Self::Limit(limit)
    }
}

/// Adds the operation to an error of a system call or of the standard library.
pub(super) trait During<T> {
    fn during(self, operation: &'static str) -> Result<T, WorkspaceFault>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, operation: &'static str) -> Result<T, WorkspaceFault> {
        self.map_err(|errno| WorkspaceFault::System { operation, errno })
    }
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, operation: &'static str) -> Result<T, WorkspaceFault> {
        // Only a write that writes nothing has no errno.
        self.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
            .during(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_operation_path_and_errno_on_one_line() {
        let error = Err::<(), _>(Errno::ENOSPC).during("write").unwrap_err().at("a\nb");
        assert_eq!(error.to_string(), r#"write "a\nb": ENOSPC: No space left on device"#);
        let error = WorkspaceFault::from(TreeLimit::Entries { max: 7 }).at("c");
        assert_eq!(error.to_string(), r#""c": more than 7 entries"#);
    }
}
