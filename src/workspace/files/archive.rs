//! Packs files of a workspace, and unpacks archives into it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::error::{engine_error, locate, tree_error};
use super::view::WrittenView;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::service::live::WorkspaceUse;
use cofferdam_tree::files::{self, ArchiveLimits, Spool};
use cofferdam_tree::{StopCheck, TreeLimits};

/// What an archive may take besides the contents of its files: their names and sizes.
const HEADERS_BYTES_MAX: u64 = 64 << 20;

/// Writes the tree or the file at `path` to `output` as a tar archive.
///
/// # Errors
/// There is nothing, before the first byte; or the output cannot be written.
pub fn send_archive(
    used: &WorkspaceUse,
    path: &str,
    output: &mut dyn Write,
) -> Result<(), EngineError> {
    let stop = || used.workspace().is_over();
    used.workspace().with_root(|root| {
        let location = locate(root, "path", path)?;
        files::pack(root, &location, &TreeLimits::default(), StopCheck(&stop), output)
            .map_err(engine_error)
    })
}

/// Unpacks the archive that `source` gives into the directory `path`. It is received and judged as a
/// whole before the first file is written.
///
/// # Errors
/// It is not safe or too long, or the workspace is full, which can leave whole files.
pub fn receive_archive(
    used: &mut WorkspaceUse,
    path: &str,
    source: &mut dyn Read,
) -> Result<WrittenView, EngineError> {
    // Judged before the archive is received, which takes time.
    used.workspace().with_root(|root| locate(root, "path", path))?;
    let (spool, limits) = spool_archive(used, source)?;
    used.reserve(u64::MAX)?;
    used.workspace().with_root(|root| {
        let location = locate(root, "path", path)?;
        let contents = files::unpack(root, &location, &spool, limits).map_err(tree_error)?;
        Ok(WrittenView { written: usize::try_from(contents.files).unwrap_or(usize::MAX) })
    })
}

/// Receives the archive that `source` gives. Also returns the limits for a workspace.
///
/// # Errors
/// It is longer than the workspace, or cannot be kept.
pub fn spool_archive(
    used: &WorkspaceUse,
    source: &mut dyn Read,
) -> Result<(Spool, ArchiveLimits), EngineError> {
    let usage = used.workspace().usage()?;
    let spool_bytes_max = usage.limit_bytes.saturating_add(HEADERS_BYTES_MAX);
    let spool = spool_file().map_err(|error| {
        log::error!("no file for a received archive: {error}");
        EngineError::new(EngineCode::IoFailed, "the archive cannot be kept while it is judged")
    })?;
    let spool = Spool::fill(spool, source, spool_bytes_max).map_err(tree_error)?;
    let limits = ArchiveLimits {
        entries_max: usage.limit_inodes,
        bytes_max: usage.limit_bytes,
        ..ArchiveLimits::default()
    };
    Ok((spool, limits))
}

/// A file without a name: on disk where there is a directory for it, else in memory.
fn spool_file() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
    options.open(std::env::temp_dir()).or_else(|_| {
        let file = memfd_create(c"archive", MFdFlags::MFD_CLOEXEC)?;
        Ok(file.into())
    })
}
