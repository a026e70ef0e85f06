//! What can go wrong in a workspace, with the operation and the path.

use std::path::PathBuf;

use nix::errno::Errno;

use crate::walk::budget::TreeLimit;

/// Why a workspace could not be read, filled or written. Paths are relative to the tree the
/// operation was given; they are printed escaped, since a tenant may have chosen the names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    /// The kernel refused an operation.
    #[error("{operation} {path:?}: {source}")]
    System {
        /// The system call, or a few words: `open`, `return to`.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// The kernel's reason.
        source: Errno,
    },
    /// The tree is larger than the limits allow.
    #[error("{path:?}: {source}")]
    TooLarge {
        /// Where the limit was crossed.
        path: PathBuf,
        /// The limit.
        source: TreeLimit,
    },
    /// Nobody wanted it any more.
    #[error("stopped")]
    Stopped,
    /// A directory stands where a file was to be written.
    #[error("{path:?} is a directory")]
    DirectoryInTheWay {
        /// The file's path.
        path: PathBuf,
    },
    /// Something that is not a directory, a link included, stands where a directory is needed.
    #[error("{path:?} is not a directory")]
    NotADirectory {
        /// The directory's path.
        path: PathBuf,
    },
}

/// A failure before its path is known: small functions return it, and the one that knows the
/// path adds it once.
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

impl From<TreeLimit> for WorkspaceFault {
    fn from(limit: TreeLimit) -> Self {
        Self::Limit(limit)
    }
}

/// Names the operation a system call or a call of the standard library belonged to.
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
        // A write that takes nothing is the one failure here that carries no errno.
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
