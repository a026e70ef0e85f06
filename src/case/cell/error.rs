//! Why a command or a file operation of a Cell did not happen.

use std::collections::BTreeMap;

use serde::Serialize;

use cofferdam_tree::files::FilesError;
use nix::errno::Errno;

/// A word for what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ExecCode {
    /// The Cell is not started.
    #[serde(rename = "exec.not_started")]
    NotStarted,
    /// The Cell is stopped.
    #[serde(rename = "exec.stopped")]
    Stopped,
    /// The command has no words, one holds a NUL, or they are too long.
    #[serde(rename = "exec.invalid_argv")]
    InvalidArgv,
    /// The working directory is outside the Cell, or is no directory.
    #[serde(rename = "exec.invalid_cwd")]
    InvalidCwd,
    /// A variable has no valid name or value.
    #[serde(rename = "exec.invalid_env")]
    InvalidEnv,
    /// This executor cannot be had here.
    #[serde(rename = "exec.backend_unavailable")]
    BackendUnavailable,
    /// The executor failed.
    #[serde(rename = "exec.backend_failed")]
    BackendFailed,
    /// There is no file at the path.
    #[serde(rename = "exec.not_found")]
    NotFound,
    /// A directory is at the path.
    #[serde(rename = "exec.is_directory")]
    IsDirectory,
    /// The owner of the file may not do that.
    #[serde(rename = "exec.permission_denied")]
    PermissionDenied,
    /// The content is longer than allowed, or there is no room for it.
    #[serde(rename = "exec.too_large")]
    TooLarge,
    /// The path leads out of the Cell, through a link, or to a special file.
    #[serde(rename = "exec.unsafe_path")]
    UnsafePath,
}

/// An error of a Cell. No command has run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct ExecError {
    /// What went wrong.
    pub code: ExecCode,
    /// The same in words.
    pub message: String,
    /// What it is about.
    pub details: BTreeMap<&'static str, String>,
}

impl ExecError {
    /// An error without details.
    pub fn new(code: ExecCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: BTreeMap::new() }
    }

    /// The same with one detail more.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.details.insert(name, value.into());
        self
    }

    /// A step of the executor that failed.
    pub(in crate::case) fn failed(step: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::new(ExecCode::BackendFailed, format!("{step}: {reason}")).with("step", step)
    }

    /// An error about the file at `path`.
    pub(super) fn of_path(code: ExecCode, path: &str, words: impl std::fmt::Display) -> Self {
        Self::new(code, format!("{path:?}: {words}")).with("path", path)
    }

    /// What the kernel refused at `path`.
    pub(super) fn of_errno(errno: Errno, path: &str) -> Self {
        let code = match errno {
            Errno::ENOENT | Errno::ENOTDIR => ExecCode::NotFound,
            Errno::EACCES | Errno::EPERM | Errno::EROFS => ExecCode::PermissionDenied,
            Errno::EXDEV | Errno::ELOOP | Errno::ENAMETOOLONG => ExecCode::UnsafePath,
            Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => ExecCode::TooLarge,
            Errno::EISDIR => ExecCode::IsDirectory,
            _ => ExecCode::BackendFailed,
        };
        Self::of_path(code, path, errno.desc())
    }

    /// Why the file at `path` could not be written, removed or listed.
    pub(super) fn of_files(error: &FilesError, path: &str) -> Self {
        let code = match error {
            FilesError::PathEscape { .. }
            | FilesError::PathTooLong { .. }
            | FilesError::ThroughLink { .. }
            | FilesError::NotRegular { .. } => ExecCode::UnsafePath,
            FilesError::NotFound { .. } => ExecCode::NotFound,
            FilesError::ReadOnly { .. } => ExecCode::PermissionDenied,
            FilesError::DiskFull { .. } | FilesError::TooLarge { .. } => ExecCode::TooLarge,
            FilesError::Io { source, .. } => return Self::of_errno(*source, path),
            _ => ExecCode::BackendFailed,
        };
        Self::of_path(code, path, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_written_as_the_contract_has_it() {
        let words = [
            (ExecCode::NotStarted, "not_started"),
            (ExecCode::Stopped, "stopped"),
            (ExecCode::InvalidArgv, "invalid_argv"),
            (ExecCode::InvalidCwd, "invalid_cwd"),
            (ExecCode::InvalidEnv, "invalid_env"),
            (ExecCode::BackendUnavailable, "backend_unavailable"),
            (ExecCode::BackendFailed, "backend_failed"),
            (ExecCode::NotFound, "not_found"),
            (ExecCode::IsDirectory, "is_directory"),
            (ExecCode::PermissionDenied, "permission_denied"),
            (ExecCode::TooLarge, "too_large"),
            (ExecCode::UnsafePath, "unsafe_path"),
        ];
        for (code, word) in words {
            let error = ExecError::new(code, "words").with("path", "a");
            let wanted = serde_json::json!(
                {"code": format!("exec.{word}"), "message": "words", "details": {"path": "a"}}
            );
            assert_eq!(serde_json::to_value(error).unwrap(), wanted);
        }
    }

    #[test]
    fn what_the_kernel_refuses_has_the_code_of_its_cause() {
        for (errno, code) in [
            (Errno::ENOENT, ExecCode::NotFound),
            (Errno::ENOTDIR, ExecCode::NotFound),
            (Errno::EACCES, ExecCode::PermissionDenied),
            (Errno::EXDEV, ExecCode::UnsafePath),
            (Errno::ELOOP, ExecCode::UnsafePath),
            (Errno::ENOSPC, ExecCode::TooLarge),
            (Errno::EIO, ExecCode::BackendFailed),
        ] {
            assert_eq!(ExecError::of_errno(errno, "a").code, code, "{errno}");
        }
    }
}
