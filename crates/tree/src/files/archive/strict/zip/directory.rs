//! Finds the central directory of a zip archive and reads its records in their order.

use std::fs::File;
use std::path::Path;

use super::record::{RECORD_BYTES, ZipRecord, u16_at, u32_at, u64_at};
use crate::files::archive::spool::StoredArchive;
use crate::files::error::FilesError;
use crate::walk::budget::TreeLimit;

const END_MAGIC: [u8; 4] = *b"PK\x05\x06";
const END_BYTES: usize = 22;
/// The longest comment after the end record, bytes.
const COMMENT_BYTES_MAX: usize = 65_535;
const LOCATOR_MAGIC: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_BYTES: usize = 20;
const END64_MAGIC: [u8; 4] = *b"PK\x06\x06";
const END64_BYTES: usize = 56;

/// The records that are still to be read.
#[derive(Debug)]
pub(super) struct ZipDirectory<'archive> {
    file: &'archive File,
    at: u64,
    records_left: u64,
    end: u64,
}

fn damaged(reason: &'static str) -> FilesError {
    FilesError::archive(reason, Path::new(""))
}

impl<'archive> ZipDirectory<'archive> {
    /// The directory of the archive in `file`, of `file_bytes`.
    pub(super) fn find(
        file: &'archive File,
        file_bytes: u64,
        entries_max: u64,
    ) -> Result<Self, FilesError> {
        let span = file_bytes.min((END_BYTES + COMMENT_BYTES_MAX) as u64);
        let mut tail = vec![0; usize::try_from(span).unwrap_or_default()];
        StoredArchive::exact_at(file, &mut tail, file_bytes - span)?;
        let place = (0..=tail.len().saturating_sub(END_BYTES)).rev().find(|at| {
            let end = tail.get(*at..).unwrap_or_default();
            // The comment reaches exactly to the end: bytes like a record within a comment do not count.
            end.starts_with(&END_MAGIC)
                && end.len() == END_BYTES + usize::from(u16_at(end, END_BYTES - 2))
        });
        let place = place.ok_or_else(|| damaged("it has no directory"))?;
        let end = tail.get(place..).unwrap_or_default();
        let mut directory = Self {
            file,
            at: u64::from(u32_at(end, 16)),
            records_left: u64::from(u16_at(end, 10)),
            end: u64::from(u32_at(end, 12)),
        };
        let end_at = file_bytes - span + place as u64;
        let is_large = u16_at(end, 10) == u16::MAX
            || u32_at(end, 12) == u32::MAX
            || u32_at(end, 16) == u32::MAX;
        if is_large {
            directory.read_large(end_at)?;
        }
        if directory.records_left > entries_max {
            let limit = TreeLimit::Entries { max: entries_max };
            return Err(FilesError::too_large(limit, Path::new("")));
        }
        directory.end = directory.at.saturating_add(directory.end);
        if directory.end > end_at {
            return Err(damaged("its directory is damaged"));
        }
        Ok(directory)
    }

    /// Takes the numbers of the large end record, if the archive has one. Without it the small ones hold.
    fn read_large(&mut self, end_at: u64) -> Result<(), FilesError> {
        let Some(locator_at) = end_at.checked_sub(LOCATOR_BYTES as u64) else { return Ok(()) };
        let mut locator = [0; LOCATOR_BYTES];
        StoredArchive::exact_at(self.file, &mut locator, locator_at)?;
        if !locator.starts_with(&LOCATOR_MAGIC) {
            return Ok(());
        }
        let mut end = [0; END64_BYTES];
        StoredArchive::exact_at(self.file, &mut end, u64_at(&locator, 8))?;
        if !end.starts_with(&END64_MAGIC) {
            return Err(damaged("its directory is damaged"));
        }
        self.records_left = u64_at(&end, 32);
        (self.end, self.at) = (u64_at(&end, 40), u64_at(&end, 48));
        Ok(())
    }

    /// The next record, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<ZipRecord>, FilesError> {
        if self.records_left == 0 {
            let is_whole = self.at == self.end;
            return if is_whole { Ok(None) } else { Err(damaged("its directory is damaged")) };
        }
        self.records_left -= 1;
        let mut fixed = [0; RECORD_BYTES];
        StoredArchive::exact_at(self.file, &mut fixed, self.at)?;
        let [name, extra, comment] = ZipRecord::lengths(&fixed)?;
        let mut rest = vec![0; name + extra];
        StoredArchive::exact_at(self.file, &mut rest, self.at + RECORD_BYTES as u64)?;
        self.at = self.at.saturating_add((RECORD_BYTES + name + extra + comment) as u64);
        if self.at > self.end {
            return Err(damaged("its directory is damaged"));
        }
        let (name, extra) = rest.split_at(name);
        let decoded = ZipRecord::decode(&fixed, name, extra);
        decoded.map(Some).map_err(|reason| {
            use std::os::unix::ffi::OsStrExt;
            FilesError::archive(reason, Path::new(std::ffi::OsStr::from_bytes(name)))
        })
    }
}
