//! Reads the entries of an archive, with the extensions of POSIX and GNU for long names, in bounded
//! memory.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

use super::header::{BLOCK_BYTES, TarBlock, TarHeader, until_nul};
use super::spool::Spool;
use crate::files::error::FilesError;
use crate::walk::budget::TreeLimit;

/// The longest record of extensions before an entry, bytes.
const EXTENSION_BYTES_MAX: u64 = 64 * 1024;
/// What an entry may take in the stream besides its contents, on average, bytes.
const ENTRY_BYTES_MAX: u64 = 4 * 1024;
/// Bytes skipped at a time.
const BUFFER_BYTES: usize = 32 * 1024;

/// The limits of an archive that is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Entries and the directories above them. Judging takes up to 16 bytes of memory for each.
    pub entries_max: u64,
    /// The contents of the files together, bytes.
    pub bytes_max: u64,
    /// Nested directories.
    pub depth_max: usize,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self { entries_max: 200_000, bytes_max: 4 << 30, depth_max: 256 }
    }
}

/// The type of an entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArchivedKind {
    File,
    Directory,
    /// A symbolic link and its text.
    Symlink(Vec<u8>),
    /// Another name of the file with this path.
    HardLink(Vec<u8>),
    /// A device or a fifo, in words. It is always refused.
    Special(&'static str),
}

/// An entry of an archive, as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArchivedEntry {
    pub(super) path: Vec<u8>,
    pub(super) kind: ArchivedKind,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) modified: u64,
}

impl ArchivedEntry {
    pub(super) fn shown(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }
}

/// What extensions say about the entry after them.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.path.is_none() && self.link.is_none() && self.size.is_none()
    }

    /// Adds the records of a POSIX extension: `length key=value\n` each.
    fn add_records(&mut self, mut records: &[u8]) -> Result<(), &'static str> {
        const MALFORMED: &str = "an extension is malformed";
        while !records.is_empty() {
            let blank = records.iter().position(|byte| *byte == b' ').ok_or(MALFORMED)?;
            let length = decimal(records.get(..blank).unwrap_or_default()).ok_or(MALFORMED)?;
            let length = usize::try_from(length).map_err(|_| MALFORMED)?;
            let (record, rest) = records.split_at_checked(length).ok_or(MALFORMED)?;
            let record = record.get(blank + 1..).and_then(|record| record.strip_suffix(b"\n"));
            let record = record.ok_or(MALFORMED)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(MALFORMED)?;
            let (key, value) = record.split_at(equals);
            self.add(key, value.get(1..).unwrap_or_default())?;
            records = rest;
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(decimal(value).ok_or("its size is malformed")?),
            _ if key.starts_with(b"GNU.sparse.") => return Err("it is a sparse file"),
            _ => {}
        }
        Ok(())
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| match *digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(*digit - b'0')),
        _ => None,
    })
}

/// Reads an archive entry by entry.
pub(super) struct TarReader<'spool> {
    input: Box<dyn Read + 'spool>,
    buffer: Vec<u8>,
    limits: ArchiveLimits,
    /// What may still be read from the stream, bytes.
    stream_left: u64,
    headers: u64,
    /// What the current entry has left: contents, and padding to a whole block.
    contents_left: u64,
    padding: u64,
}

impl<'spool> TarReader<'spool> {
    pub(super) fn new(spool: &'spool Spool, limits: ArchiveLimits) -> Self {
        Self::over(spool.reader(), limits)
    }

    /// Reads the stream `input`, which is a tar archive.
    pub(super) fn over(input: Box<dyn Read + 'spool>, limits: ArchiveLimits) -> Self {
        let besides = limits.entries_max.saturating_add(64).saturating_mul(ENTRY_BYTES_MAX);
        Self {
            input,
            buffer: vec![0; BUFFER_BYTES],
            limits,
            stream_left: limits.bytes_max.saturating_add(besides),
            headers: 0,
            contents_left: 0,
            padding: 0,
        }
    }

    /// The next entry, or `None` at the end. Contents of the last one that were not read are skipped.
    pub(super) fn advance(&mut self) -> Result<Option<ArchivedEntry>, FilesError> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let Some(block) = self.block()? else {
                return match extensions.is_empty() && self.headers > 0 {
                    true => Ok(None),
                    false => Err(FilesError::archive("it ends early", Path::new(""))),
                };
            };
            if block.iter().all(|byte| *byte == 0) {
                return self.drain().map(|()| None);
            }
            let header = TarHeader::decode(&block)
                .map_err(|reason| FilesError::archive(reason, Path::new("")))?;
            self.headers += 1;
            if self.headers > self.limits.entries_max.saturating_mul(2) {
                let limit = TreeLimit::Entries { max: self.limits.entries_max };
                return Err(FilesError::too_large(limit, Path::new("")));
            }
            match header.kind {
                b'L' => extensions.path = Some(self.long_name(&header)?),
                b'K' => extensions.link = Some(self.long_name(&header)?),
                b'x' | b'g' => self.records(&header, &mut extensions)?,
                _ => return self.entry(header, extensions).map(Some),
            }
        }
    }

    /// A name that did not fit into a header of GNU.
    fn long_name(&mut self, header: &TarHeader) -> Result<Vec<u8>, FilesError> {
        let contents = self.extension(header)?;
        Ok(until_nul(&contents).to_vec())
    }

    fn records(&mut self, header: &TarHeader, next: &mut Extensions) -> Result<(), FilesError> {
        let contents = self.extension(header)?;
        let mut everywhere = Extensions::default();
        let is_global = header.kind == b'g';
        let records = if is_global { &mut everywhere } else { next };
        let added = records.add_records(&contents);
        let checked = match added {
            Ok(()) if !everywhere.is_empty() => Err("it gives all entries one name or size"),
            added => added,
        };
        checked.map_err(|reason| FilesError::archive(reason, Path::new("")))
    }

    fn extension(&mut self, header: &TarHeader) -> Result<Vec<u8>, FilesError> {
        if header.size > EXTENSION_BYTES_MAX {
            return Err(FilesError::archive("a name or an extension is too long", Path::new("")));
        }
        self.begin(header.size);
        let mut contents = vec![0; usize::try_from(header.size).unwrap_or_default()];
        self.fill(&mut contents)?;
        self.contents_left = 0;
        Ok(contents)
    }

    fn entry(&mut self, header: TarHeader, next: Extensions) -> Result<ArchivedEntry, FilesError> {
        let path = next.path.unwrap_or(header.path);
        let link = next.link.unwrap_or(header.link);
        let size = next.size.unwrap_or(header.size);
        let (mode, modified) = (header.mode, header.modified);
        let is_directory = path.ends_with(b"/");
        let refused = |reason| FilesError::archive(reason, Path::new(OsStr::from_bytes(&path)));
        let kind = match header.kind {
            // Before 1988, a slash made a directory.
            0 if is_directory => ArchivedKind::Directory,
            0 | b'0' | b'7' if is_directory => {
                return Err(refused("a file has a directory's name"));
            }
            0 | b'0' | b'7' => ArchivedKind::File,
            b'1' => ArchivedKind::HardLink(link),
            b'2' => ArchivedKind::Symlink(link),
            b'5' => ArchivedKind::Directory,
            b'3' | b'4' => ArchivedKind::Special("it is a device"),
            b'6' => ArchivedKind::Special("it is a fifo"),
            b'S' => return Err(refused("it is a sparse file")),
            _ => return Err(refused("its type is not known")),
        };
        if !matches!(kind, ArchivedKind::File | ArchivedKind::Special(_)) && size != 0 {
            return Err(refused("only a file has contents"));
        }
        self.begin(size);
        Ok(ArchivedEntry { path, kind, mode, size, modified })
    }

    fn begin(&mut self, size: u64) {
        let block = BLOCK_BYTES as u64;
        self.contents_left = size;
        self.padding = (block - size % block) % block;
    }

    /// Skips what the current entry has left.
    fn skip(&mut self) -> Result<(), FilesError> {
        let mut left = self.contents_left.saturating_add(self.padding);
        (self.contents_left, self.padding) = (0, 0);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut skipped = Ok(());
        while left > 0 && skipped.is_ok() {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            skipped = self.fill(buffer.get_mut(..count).unwrap_or_default());
            left -= count as u64;
        }
        self.buffer = buffer;
        skipped
    }

    /// Reads what follows the end of the archive, to check all of the compressed data.
    fn drain(&mut self) -> Result<(), FilesError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        while self.read(&mut buffer)? > 0 {}
        self.buffer = buffer;
        Ok(())
    }

    /// The next block; `None` if the stream ends before it.
    fn block(&mut self) -> Result<Option<TarBlock>, FilesError> {
        let mut block = [0; BLOCK_BYTES];
        let first = self.read(&mut block)?;
        if first == 0 {
            return Ok(None);
        }
        self.fill(block.get_mut(first..).unwrap_or_default())?;
        Ok(Some(block))
    }

    fn fill(&mut self, mut buffer: &mut [u8]) -> Result<(), FilesError> {
        while !buffer.is_empty() {
            let count = self.read(buffer)?;
            if count == 0 {
                return Err(FilesError::archive("it ends early", Path::new("")));
            }
            buffer = buffer.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FilesError> {
        let count = loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| of_stream(&error))?,
            }
        };
        let left = self.stream_left.checked_sub(count as u64);
        self.stream_left = left.ok_or_else(|| {
            let limit = TreeLimit::Bytes { max: self.limits.bytes_max };
            FilesError::too_large(limit, Path::new(""))
        })?;
        Ok(count)
    }
}

/// The error for one of the spool's file, or of the decompression.
fn of_stream(error: &io::Error) -> FilesError {
    match error.raw_os_error() {
        Some(errno) => FilesError::Io {
            operation: "read",
            path: "archive".into(),
            source: Errno::from_raw(errno),
        },
        None => FilesError::archive("the compressed data is damaged", Path::new("")),
    }
}

/// The entries of an archive, one after the other; it reads the contents of the current one.
pub(super) trait EntryStream: Read {
    /// The next entry, or `None` at the end. Contents of the last one that were not read are skipped.
    fn next_entry(&mut self) -> Result<Option<ArchivedEntry>, FilesError>;
}

impl EntryStream for TarReader<'_> {
    fn next_entry(&mut self) -> Result<Option<ArchivedEntry>, FilesError> {
        self.advance()
    }
}

/// The contents of the current entry.
impl Read for TarReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.contents_left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        match TarReader::read(self, buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.contents_left -= count as u64;
                Ok(count)
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
