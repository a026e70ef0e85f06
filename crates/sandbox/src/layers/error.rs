//! Errors of layers.

use cofferdam_core::SetupFailure;

use super::space::DiskSpace;

/// Why a workspace's file system could not be made, frozen or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    /// The kernel refused a step.
    #[error(transparent)]
    Failed(#[from] SetupFailure),
    /// The workspace would have less room left than [`LEAST_ROOM`](super::space::LEAST_ROOM).
    #[error("{} bytes and {} inodes would be left", left.bytes, left.inodes)]
    DiskFull {
        /// What would be left.
        left: DiskSpace,
    },
    /// Something still writes to the files.
    #[error("a file is still open for writing")]
    Busy,
    /// The host has no storage of that kind.
    #[error("{reason}")]
    StorageUnavailable {
        /// What is missing.
        reason: String,
    },
    /// The stop check ended the work.
    #[error("stopped")]
    Stopped,
}

impl LayerError {
    /// A failed call of the standard library.
    pub(super) fn of_io(step: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Failed(SetupFailure::from_io(step, &error))
    }

    /// A failed system call.
    pub(super) fn of_errno(step: &'static str) -> impl FnOnce(nix::errno::Errno) -> Self {
        move |errno| Self::Failed(SetupFailure::from_errno(step, errno as i32))
    }
}
