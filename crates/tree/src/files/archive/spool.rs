//! An archive as it was received, in a file that only the service can reach.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::files::error::{FilesError, OnPath};
use crate::walk::budget::TreeLimit;

/// The first bytes of gzip data.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes copied at a time.
const BUFFER_BYTES: usize = 64 * 1024;

/// A received archive, which can be read several times.
#[derive(Debug)]
pub struct Spool {
    file: File,
    is_gzip: bool,
}

impl Spool {
    /// Copies all of `source` to `file`, which must be empty: an unlinked temporary file or a `memfd`.
    ///
    /// # Errors
    /// [`FilesError::TooLarge`] for more than `bytes_max`, [`FilesError::Input`] if `source` fails, and
    /// [`FilesError::Io`] if the file cannot be written.
    pub fn fill(file: File, source: &mut dyn Read, bytes_max: u64) -> Result<Self, FilesError> {
        let path = Path::new("archive");
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bytes = 0;
        loop {
            let count = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FilesError::Input(error)),
            };
            let piece = buffer.get(..count).unwrap_or_default();
            if bytes + count as u64 > bytes_max {
                return Err(FilesError::too_large(TreeLimit::Bytes { max: bytes_max }, path));
            }
            file.write_all_at(piece, bytes).map_err(|error| {
                let errno = error
                    .raw_os_error()
                    .map_or(nix::errno::Errno::EIO, nix::errno::Errno::from_raw);
                FilesError::Io { operation: "spool", path: path.to_owned(), source: errno }
            })?;
            bytes += count as u64;
        }
        Self::of(file)
    }

    /// The archive in `file`, which does not change.
    ///
    /// # Errors
    /// [`FilesError::Io`] if the file cannot be read.
    pub fn of(file: File) -> Result<Self, FilesError> {
        let mut start = [0; GZIP_MAGIC.len()];
        let count = file.read_at(&mut start, 0).on("read", Path::new("archive"))?;
        Ok(Self { file, is_gzip: count == start.len() && start == GZIP_MAGIC })
    }

    /// Reads the archive from its start, decompressed.
    pub(super) fn reader(&self) -> Box<dyn Read + '_> {
        let stored = StoredArchive { file: &self.file, at: 0 };
        if self.is_gzip { Box::new(MultiGzDecoder::new(stored)) } else { Box::new(stored) }
    }
}

/// Reads a file from `at` on, whatever others read of it.
pub(super) struct StoredArchive<'spool> {
    pub(super) file: &'spool File,
    pub(super) at: u64,
}

impl Read for StoredArchive<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
