//! The digest of a directory, and the number of its files.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::error::{FilesError, OnPath};
use super::location::FileLocation;
use super::read::size;
use super::resolve::WorkspaceRoot;
use crate::copy::copy_file::BUFFER_BYTES;
use crate::error::{During, WorkspaceFault};
use crate::status;
use crate::walk::budget::{TreeBudget, TreeLimits};
use crate::walk::open_beneath;
use crate::walk::ordered::{OrderedEntry, OrderedRange, OrderedWalk};
use crate::walk::stop_check::StopCheck;
use cofferdam_core::values::digest::Digest;

/// The digest of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryDigest {
    /// SHA-256, 64 hexadecimal digits.
    pub digest: String,
    /// The number of regular files.
    pub files: u64,
    /// The size of their contents, bytes.
    pub bytes: u64,
}

/// Computes the digest of the directory at `location`: for each regular file, sorted by the bytes of the paths, its
/// path, NUL, its contents, NUL. Links and special files are skipped.
///
/// # Errors
/// [`FilesError::TooLarge`] for the limit that was exceeded, [`FilesError::Stopped`], and those of finding and
/// reading.
pub fn digest(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    limits: &TreeLimits,
    stop: StopCheck<'_>,
) -> Result<DirectoryDigest, FilesError> {
    let (directory, location) = root.find(location, true)?.into_directory()?;
    digest_directory(directory.as_fd(), &location.shown(), limits, stop)
}

/// As [`digest`], of an open directory. `path` is for errors.
///
/// # Errors
/// As [`digest`].
pub fn digest_directory(
    directory: BorrowedFd<'_>,
    path: &Path,
    limits: &TreeLimits,
    stop: StopCheck<'_>,
) -> Result<DirectoryDigest, FilesError> {
    let range = OrderedRange {
        depth_max: usize::MAX,
        entries_max: usize::try_from(limits.entries_max).unwrap_or(usize::MAX).saturating_add(1),
        after: Vec::new(),
    };
    let mut walk = OrderedWalk::over(directory, range).on("list", path)?;
    let mut hasher = TreeHasher::new(*limits);
    while let Some(entry) = walk.advance().on("list", path)? {
        hasher.take(&walk, &entry, stop).on("read", path)?;
    }
    Ok(DirectoryDigest {
        digest: hasher.digest.finish(),
        files: hasher.files,
        bytes: hasher.budget.bytes(),
    })
}

struct TreeHasher {
    digest: Digest,
    budget: TreeBudget,
    files: u64,
    buffer: Vec<u8>,
}

impl TreeHasher {
    fn new(limits: TreeLimits) -> Self {
        let (digest, budget) = (Digest::default(), TreeBudget::new(limits));
        Self { digest, budget, files: 0, buffer: vec![0; BUFFER_BYTES] }
    }

    fn take(
        &mut self,
        walk: &OrderedWalk<'_>,
        entry: &OrderedEntry,
        stop: StopCheck<'_>,
    ) -> Result<(), WorkspaceFault> {
        self.budget.take_entry(walk.path().depth())?;
        if entry.is_directory() == Some(true) {
            return Ok(());
        }
        let opened = match open_beneath::open_path(walk.directory(), entry.name.as_c_str()) {
            // It has disappeared.
            Err(Errno::ENOENT) => return Ok(()),
            opened => opened.during("open")?,
        };
        let stat = fstat(&opened).during("stat")?;
        if status::file_type(&stat) != SFlag::S_IFREG {
            return Ok(());
        }
        // A file can be large without using room, and takes long to read then.
        self.budget.check_bytes(size(&stat))?;
        let file = open_beneath::reopen_for_reading(opened.as_fd()).during("open")?;
        self.files += 1;
        self.digest.update(&walk.path_of(&entry.name));
        self.digest.update(&[0]);
        self.contents(File::from(file), stop)?;
        self.digest.update(&[0]);
        Ok(())
    }

    fn contents(&mut self, mut file: File, stop: StopCheck<'_>) -> Result<(), WorkspaceFault> {
        loop {
            stop.check()?;
            let count = file.read(&mut self.buffer).during("read")?;
            if count == 0 {
                return Ok(());
            }
            self.budget.take_bytes(count as u64)?;
            self.digest.update(self.buffer.get(..count).unwrap_or_default());
        }
    }
}
