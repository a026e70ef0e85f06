//! A private directory for the files of an unpacked task.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::cli::failure::Failure;

/// An empty directory that only this user reaches. It is removed when dropped.
#[derive(Debug)]
pub struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    /// Makes one below the system's directory for temporary files.
    ///
    /// # Errors
    /// [`Failure::Write`].
    pub fn create() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("cofferdam-task-{}", uuid::Uuid::new_v4()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|source| Failure::Write { what: "a temporary directory", source })?;
        Ok(Self(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // What cannot be removed stays below the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
