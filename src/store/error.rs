//! The errors of a store, with the operation and the path.

use std::path::PathBuf;

use nix::errno::Errno;

use cofferdam_core::job::{ErrorCode, JobError, JobId};

/// Why a record could not be created, read or changed. Paths are printed escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The kernel refused an operation.
    #[error("{operation} {path:?}: {source}")]
    System {
        /// The system call, or a few words.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The errno.
        source: Errno,
    },
    /// A job of that id exists.
    #[error("a job {id} is there already")]
    Exists {
        /// The id.
        id: JobId,
    },
    /// No job has that id.
    #[error("no job {id}")]
    Unknown {
        /// The id.
        id: JobId,
    },
    /// A file of a record does not hold what was written to it.
    #[error("{path:?}: {reason}")]
    Corrupt {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The directory cannot be a store, or this handle may not write.
    #[error("{path:?} cannot be used as a store: {reason}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Another service owns the store.
    #[error("{path:?} is the store of {}; one service at a time has a store", process(*pid))]
    Owned {
        /// The store.
        path: PathBuf,
        /// The process id of the other service, if known.
        pid: Option<u32>,
    },
    /// A value that cannot be recorded.
    #[error("cannot record {path:?}: {reason}")]
    NotRecordable {
        /// The file of the value.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A cursor that no list returned.
    #[error("not a cursor of this list")]
    BadCursor,
}

impl StoreError {
    /// Whether the same operation may succeed later, as after a full disk.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::System { .. } | Self::Unusable { .. })
    }

    /// Logs a failure of the store with its path. Returns the error for clients, without paths.
    pub fn logged(self) -> JobError {
        let reason = self.to_string();
        let error = JobError::from(self);
        if error.code == ErrorCode::IoFailed {
            log::error!(reason; "the store failed");
        }
        error
    }

    /// The message for clients, without paths of this host.
    pub(crate) fn without_paths(&self) -> String {
        match self {
            Self::System { operation, source, .. } => format!("the store: {operation}: {source}"),
            Self::Corrupt { reason, .. } => format!("a damaged record: {reason}"),
            Self::Unusable { reason, .. } => format!("the store cannot be used: {reason}"),
            Self::Owned { .. } => "another process serves the store".to_owned(),
            Self::NotRecordable { reason, .. } => format!("not recordable: {reason}"),
            Self::Exists { .. } | Self::Unknown { .. } | Self::BadCursor => self.to_string(),
        }
    }
}

/// The error for clients, without paths. Log the store error itself.
impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Exists { .. } => ErrorCode::JobConflict,
            StoreError::Unknown { .. } => return Self::not_found(),
            StoreError::BadCursor => {
                return Self::new(ErrorCode::InvalidRequest, error.to_string())
                    .with("path", "cursor");
            }
            StoreError::Owned { .. } => {
                let owned = Self::new(ErrorCode::QueueClosed, error.without_paths());
                return owned.with("reason", "store_owned");
            }
            _ => ErrorCode::IoFailed,
        };
        Self::new(code, error.without_paths())
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Why a file of a record could not be read.
#[derive(Debug)]
pub(crate) enum ReadFault {
    /// The file is missing.
    Absent,
    /// The file does not hold what was written to it.
    Corrupt(String),
    /// This process could not read it; its content is unknown.
    System(StoreError),
}

impl ReadFault {
    /// Tells failures of the file from failures of this process, such as too many open files.
    pub(crate) fn of(operation: &'static str, path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::ENOENT => Self::Absent,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => {
                Self::System(StoreError::System { operation, path, source: errno })
            }
            errno => Self::Corrupt(format!("{operation}: {errno}")),
        }
    }

    pub(crate) fn at(self, path: PathBuf) -> StoreError {
        match self {
            Self::Absent => StoreError::System { operation: "open", path, source: Errno::ENOENT },
            Self::Corrupt(reason) => StoreError::Corrupt { path, reason },
            Self::System(error) => error,
        }
    }
}

/// The errno of an I/O error; `EIO` if it has none.
pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_operation_and_path_and_has_a_code() {
        let id = JobId::parse("j").unwrap();
        let path = PathBuf::from("a\nb");
        let system = StoreError::System { operation: "open", path, source: Errno::ENOSPC };
        assert_eq!(system.to_string(), r#"open "a\nb": ENOSPC: No space left on device"#);
        for (error, code) in [
            (system, ErrorCode::IoFailed),
            (StoreError::Exists { id: id.clone() }, ErrorCode::JobConflict),
            (StoreError::Unknown { id }, ErrorCode::JobNotFound),
            (StoreError::BadCursor, ErrorCode::InvalidRequest),
        ] {
            assert_eq!(JobError::from(error).code, code);
        }
        let path = || PathBuf::from("/srv/store");
        let reason = || "why".to_owned();
        for error in [
            StoreError::System { operation: "open", path: path(), source: Errno::EIO },
            StoreError::Corrupt { path: path(), reason: reason() },
            StoreError::Unusable { path: path(), reason: reason() },
            StoreError::Owned { path: path(), pid: Some(7) },
            StoreError::NotRecordable { path: path(), reason: reason() },
        ] {
            assert!(error.to_string().contains("/srv/store"), "{error}");
            assert!(!JobError::from(error).message.contains("srv"));
        }
    }
}
