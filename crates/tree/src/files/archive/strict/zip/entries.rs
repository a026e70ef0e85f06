//! The entries of a zip archive and their contents.

use std::fs::File;
use std::io::{self, Read, Take};
use std::path::Path;

use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::directory::ZipDirectory;
use super::record::{LOCAL_BYTES, ZipRecord};
use crate::files::archive::reader::{ArchivedEntry, ArchivedKind, EntryStream};
use crate::files::archive::spool::StoredArchive;
use crate::files::error::FilesError;
use crate::files::location::PATH_BYTES_MAX;
use crate::walk::stop_check::{StopCheck, StoppableRead};

/// Bits of a mode: the type, and those of a directory, a file and a link.
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// Bytes skipped at a time.
const BUFFER_BYTES: usize = 32 * 1024;

/// Reads a zip archive entry by entry, in the order of its directory.
pub(crate) struct ZipReader<'archive> {
    file: &'archive File,
    directory: ZipDirectory<'archive>,
    current: Option<ZipContents<'archive>>,
    stop: StopCheck<'archive>,
}

impl<'archive> ZipReader<'archive> {
    /// Reads the archive in `file`, of `file_bytes`.
    pub(crate) fn new(
        file: &'archive File,
        file_bytes: u64,
        entries_max: u64,
        stop: StopCheck<'archive>,
    ) -> Result<Self, FilesError> {
        let directory = ZipDirectory::find(file, file_bytes, entries_max)?;
        Ok(Self { file, directory, current: None, stop })
    }

    /// The entry of `record`. The text of a link is its contents.
    fn entry(&mut self, record: &ZipRecord) -> Result<ArchivedEntry, FilesError> {
        let kind = match record.mode & TYPE {
            DIRECTORY => ArchivedKind::Directory,
            _ if record.name.ends_with(b"/") || (record.mode == 0 && record.is_dos_directory) => {
                ArchivedKind::Directory
            }
            REGULAR | 0 => ArchivedKind::File,
            LINK => ArchivedKind::Symlink(Vec::new()),
            _ => ArchivedKind::Special("it is a device or a fifo"),
        };
        let mode = match (&kind, record.mode & 0o7777) {
            (ArchivedKind::Directory, 0) => 0o755,
            (_, 0) => 0o644,
            (_, mode) => mode,
        };
        let mut entry = ArchivedEntry {
            path: record.name.clone(),
            kind,
            mode,
            size: record.bytes,
            modified: record.modified,
        };
        let refuse = |reason| FilesError::archive(reason, entry.shown());
        let mut contents = self.contents(record).map_err(|refusal| match refusal {
            ZipFault::Archive(reason) => refuse(reason),
            ZipFault::Host(error) => error,
        })?;
        if let ArchivedKind::Symlink(text) = &mut entry.kind {
            (&mut contents)
                .take(PATH_BYTES_MAX as u64 + 1)
                .read_to_end(text)
                .map_err(|_| FilesError::archive(DAMAGED, Path::new("")))?;
            entry.size = 0;
        } else if entry.kind != ArchivedKind::File && record.bytes != 0 {
            return Err(FilesError::archive("only a file has contents", entry.shown()));
        }
        self.current = Some(contents);
        Ok(entry)
    }

    fn contents(&self, record: &ZipRecord) -> Result<ZipContents<'archive>, ZipFault> {
        let mut local = [0; LOCAL_BYTES];
        StoredArchive::exact_at(self.file, &mut local, record.header_at)?;
        let after = record.contents_after(&local)?;
        let mut name = vec![0; record.name.len()];
        let name_at = record.header_at.saturating_add(LOCAL_BYTES as u64);
        StoredArchive::exact_at(self.file, &mut name, name_at)?;
        record.check_name(&name)?;
        let packed = StoredArchive { file: self.file, at: name_at.saturating_add(after) };
        let packed = StoppableRead { stream: packed, stop: self.stop };
        let packed = packed.take(record.packed_bytes);
        let data = match record.method {
            0 => ZipData::Stored(packed),
            _ => ZipData::Deflated(Box::new(DeflateDecoder::new(packed))),
        };
        let (bytes_left, crc) = (record.bytes, record.crc);
        Ok(ZipContents { data, bytes_left, crc, seen: Crc::new(), is_whole: false })
    }
}

enum ZipFault {
    Archive(&'static str),
    Host(FilesError),
}

impl From<&'static str> for ZipFault {
    fn from(reason: &'static str) -> Self {
        Self::Archive(reason)
    }
}

impl From<FilesError> for ZipFault {
    fn from(error: FilesError) -> Self {
        Self::Host(error)
    }
}

const DAMAGED: &str = "the compressed data is damaged";

impl EntryStream for ZipReader<'_> {
    fn next_entry(&mut self) -> Result<Option<ArchivedEntry>, FilesError> {
        if let Some(mut last) = self.current.take() {
            let mut buffer = vec![0; BUFFER_BYTES];
            let damaged = |_| FilesError::archive(DAMAGED, Path::new(""));
            while last.read(&mut buffer).map_err(damaged)? > 0 {}
        }
        match self.directory.next()? {
            Some(record) => self.entry(&record).map(Some),
            None => Ok(None),
        }
    }
}

impl Read for ZipReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.current.as_mut().map_or(Ok(0), |current| current.read(buffer))
    }
}

enum ZipData<'archive> {
    Stored(Take<StoppableRead<'archive, StoredArchive<'archive>>>),
    Deflated(Box<DeflateDecoder<Take<StoppableRead<'archive, StoredArchive<'archive>>>>>),
}

/// The contents of an entry, which must have the size and the checksum that its record says.
struct ZipContents<'archive> {
    data: ZipData<'archive>,
    bytes_left: u64,
    crc: u32,
    seen: Crc,
    is_whole: bool,
}

impl Read for ZipContents<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_whole || buffer.is_empty() {
            return Ok(0);
        }
        let count = match &mut self.data {
            ZipData::Stored(stored) => stored.read(buffer)?,
            ZipData::Deflated(deflated) => deflated.read(buffer)?,
        };
        self.seen.update(buffer.get(..count).unwrap_or_default());
        let left = self.bytes_left.checked_sub(count as u64);
        self.bytes_left = left.ok_or(io::ErrorKind::InvalidData)?;
        if count == 0 {
            if self.bytes_left > 0 || self.seen.sum() != self.crc {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.is_whole = true;
        }
        Ok(count)
    }
}
