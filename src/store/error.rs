//! What can go wrong with the records of jobs, with the operation and the path.

use std::path::PathBuf;

use nix::errno::Errno;

use cofferdam_core::job::{ErrorCode, JobError, JobId};

/// Why a record could not be made, read or changed. Paths are printed escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The kernel refused an operation.
    #[error("{operation} {path:?}: {source}")]
    System {
        /// The system call, or a few words.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// The kernel's reason.
        source: Errno,
    },
    /// There is something of that name already.
    #[error("a job {id} is there already")]
    Exists {
        /// The name.
        id: JobId,
    },
    /// There is no job of that name.
    #[error("no job {id}")]
    Unknown {
        /// The name.
        id: JobId,
    },
    /// A file of a record is not what was written there.
    #[error("{path:?}: {reason}")]
    Corrupt {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The directory cannot be a store, or this handle may not do that.
    #[error("{path:?} cannot be used as a store: {reason}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Another service has it.
    #[error("{path:?} is the store of {}; one service at a time has a store", process(*pid))]
    Owned {
        /// The store.
        path: PathBuf,
        /// The other service's process, as far as that is known.
        pid: Option<u32>,
    },
    /// A value is nothing that can be recorded there.
    #[error("cannot record {path:?}: {reason}")]
    NotRecordable {
        /// The file it was meant for.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A list was asked to go on where no list ended.
    #[error("not a cursor of this list")]
    BadCursor,
}

impl StoreError {
    /// Whether the same operation may succeed later: the disk is full, or fails.
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
    fn without_paths(&self) -> String {
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

/// What clients are told, without paths. The error itself is for the log.
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
pub(super) enum ReadFault {
    /// There is none.
    Absent,
    /// It is not what was written there.
    Corrupt(String),
    /// This process could not look, whatever is there.
    System(StoreError),
}

impl ReadFault {
    /// What the kernel's refusal says: of the file, or of this process.
    pub(super) fn of(operation: &'static str, path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::ENOENT => Self::Absent,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => {
                Self::System(StoreError::System { operation, path, source: errno })
            }
            errno => Self::Corrupt(format!("{operation}: {errno}")),
        }
    }

    pub(super) fn at(self, path: PathBuf) -> StoreError {
        match self {
            Self::Absent => StoreError::System { operation: "open", path, source: Errno::ENOENT },
            Self::Corrupt(reason) => StoreError::Corrupt { path, reason },
            Self::System(error) => error,
        }
    }
}

/// The errno of a failure of the standard library; `EIO` where it carries none.
pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_operation_and_path_and_has_a_code_of_the_wire() {
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
