//! The format of an archive, by its first bytes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

use super::error::{Refused, StrictError};
use super::limits::StrictLimits;
use super::stream::{BoundedRatio, Ratio};
use super::zip::entries::ZipReader;
use super::zstd::ZstdReader;
use crate::files::archive::header::{BLOCK_BYTES, TarHeader};
use crate::files::archive::reader::{ArchiveLimits, EntryStream, TarReader};
use crate::files::archive::spool::StoredArchive;
use crate::files::error::{FilesError, OnPath};
use crate::walk::stop_check::{StopCheck, StoppableRead};

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArchiveFormat {
    Tar,
    Gzip,
    Zstd,
    Zip,
}

/// A whole archive in a file that does not change.
#[derive(Debug)]
pub struct StrictArchive {
    file: File,
    /// Its size.
    bytes: u64,
    pub(super) format: ArchiveFormat,
}

impl StrictArchive {
    /// The archive in `file`.
    ///
    /// # Errors
    /// [`StrictError::Malformed`] if it is of no known format, and [`StrictError::Host`] if the file cannot
    /// be read.
    pub fn of(file: File) -> Result<Self, StrictError> {
        let place = Path::new("archive");
        let mut start = [0; BLOCK_BYTES];
        let mut held = StoredArchive { file: &file, at: 0 };
        let mut count = 0;
        while let Some(rest) = start.get_mut(count..).filter(|rest| !rest.is_empty()) {
            match held.read(rest).on("read", place).map_err(StrictError::Host)? {
                0 => break,
                more => count += more,
            }
        }
        let bytes = file.metadata().on("stat", place).map_err(StrictError::Host)?.len();
        let format = match start {
            [0x1f, 0x8b, ..] => ArchiveFormat::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                ArchiveFormat::Zstd
            }
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => ArchiveFormat::Zip,
            _ if count == BLOCK_BYTES && TarHeader::decode(&start).is_ok() => ArchiveFormat::Tar,
            _ => {
                let reason = "it is not a tar, tar.gz, tar.zst or zip archive";
                return Err(StrictError::Malformed { entry: String::new(), reason });
            }
        };
        Ok(Self { file, bytes, format })
    }

    /// The bytes to which the archive may unpack by its ratio. Only what is compressed has one.
    pub(super) fn ratio(&self) -> Ratio {
        match self.format {
            ArchiveFormat::Tar => Ratio::unbounded(),
            _ => Ratio::of(self.bytes),
        }
    }

    /// Reads the entries from the start.
    pub(super) fn entries<'call>(
        &'call self,
        limits: StrictLimits,
        refused: &Refused,
        stop: StopCheck<'call>,
    ) -> Result<Box<dyn EntryStream + 'call>, FilesError> {
        let stored = StoredArchive { file: &self.file, at: 0 };
        let stored = StoppableRead { stream: stored, stop };
        let stream: Box<dyn Read + 'call> = match self.format {
            ArchiveFormat::Zip => {
                let entries_max = limits.entries_max;
                return Ok(Box::new(ZipReader::new(&self.file, self.bytes, entries_max, stop)?));
            }
            ArchiveFormat::Tar => Box::new(stored),
            ArchiveFormat::Gzip => Box::new(MultiGzDecoder::new(stored)),
            ArchiveFormat::Zstd => Box::new(ZstdReader::new(stored, Rc::clone(refused))),
        };
        let bounded = BoundedRatio::new(stream, self.ratio(), Rc::clone(refused));
        let ArchiveLimits { depth_max, .. } = ArchiveLimits::default();
        let limits = ArchiveLimits {
            // The judge counts exactly; here extensions are headers too.
            entries_max: limits.entries_max.saturating_mul(2),
            bytes_max: limits.bytes_max,
            depth_max,
        };
        Ok(Box::new(TarReader::over(Box::new(bounded), limits)))
    }
}

impl StoredArchive<'_> {
    /// Fills `buffer` from `at`, which does not move.
    pub(super) fn exact_at(file: &File, buffer: &mut [u8], at: u64) -> Result<(), FilesError> {
        let early = || FilesError::archive("it ends early", Path::new(""));
        match file.read_exact_at(buffer, at) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(early()),
            read => read.on("read", Path::new("archive")),
        }
    }
}
