//! The extents of one saved tree: a directory of files that are named by their digests.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

use crate::store::{ReadFault, StoreDir, StoreError};
use crate::workspace::disk::store_quota::{StoreReservation, file_charge};
use crate::workspace::error::EngineError;
use cofferdam_tree::saved::{
    Extent, ExtentDigest, ExtentSink, ExtentSource, ManifestReader, SavedEntry,
};

/// The extents that a manifest names, with their lengths.
pub(super) type NamedExtents = HashMap<ExtentDigest, u32>;

/// The name of an extent's file.
pub(super) fn extent_name(digest: &ExtentDigest) -> String {
    digest.iter().fold(String::with_capacity(64), |mut name, byte| {
        // A text takes whatever is written to it.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// The extents that the manifest names.
pub(super) fn named_extents(manifest: impl Read) -> io::Result<NamedExtents> {
    let mut manifest = ManifestReader::open(manifest)?;
    let mut named = NamedExtents::new();
    while let Some(entry) = manifest.advance()? {
        let extents = SavedEntry::extents(&entry).iter();
        named.extend(extents.map(|extent| (extent.digest, extent.bytes)));
    }
    Ok(named)
}

/// Keeps the extents of a tree that is being saved.
#[derive(Debug)]
pub(super) struct SavingExtents<'save> {
    directory: &'save StoreDir,
    /// Those of the save before.
    known: NamedExtents,
    /// Those that the tree needs.
    needed: HashSet<ExtentDigest>,
    /// Those that were written.
    written: Vec<ExtentDigest>,
    /// Covers what was written.
    room: StoreReservation,
    room_bytes: u64,
    /// Why the last one could not be kept.
    failure: Option<EngineError>,
}

impl<'save> SavingExtents<'save> {
    pub(super) fn new(
        directory: &'save StoreDir,
        known: NamedExtents,
        room: StoreReservation,
    ) -> Self {
        let (needed, written) = (HashSet::new(), Vec::new());
        Self { directory, known, needed, written, room, room_bytes: 0, failure: None }
    }

    /// Why an extent could not be kept.
    pub(super) fn failure(&mut self) -> Option<EngineError> {
        self.failure.take()
    }

    /// Reserves `bytes` more.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), EngineError> {
        let more = self.room_bytes.saturating_add(bytes);
        self.room.raise_to(more)?;
        self.room_bytes = more;
        Ok(())
    }

    /// Removes what was written, since nothing names it.
    pub(super) fn undo(self) {
        for digest in &self.written {
            if let Err(error) = self.directory.unlink(&extent_name(digest)) {
                log::warn!("a file of a failed save stays until the next start: {error}");
            }
        }
    }

    /// Keeps what was written for good, and removes the extents that are no longer needed. Returns how much
    /// those took.
    pub(super) fn commit(self) -> u64 {
        let Self { directory, known, needed, room, .. } = self;
        room.keep();
        let mut freed = 0;
        for (digest, bytes) in known.iter().filter(|(digest, _)| !needed.contains(*digest)) {
            match directory.unlink(&extent_name(digest)) {
                Ok(()) => freed += file_charge((*bytes).into()),
                Err(error) => log::warn!("a file of an earlier save stays: {error}"),
            }
        }
        freed
    }

    fn write(&mut self, digest: &ExtentDigest, bytes: &[u8]) -> Result<(), EngineError> {
        self.reserve(file_charge(bytes.len() as u64))?;
        let name = extent_name(digest);
        // One that an earlier save could not remove.
        self.directory.unlink(&name)?;
        let mut file = self.directory.create_file(&name)?;
        self.written.push(*digest);
        let written = file.write_all(bytes);
        written.map_err(|error| write_error(self.directory, &name, &error))?;
        Ok(())
    }
}

/// The error of a write of `name`.
pub(super) fn write_error(directory: &StoreDir, name: &str, error: &io::Error) -> StoreError {
    let errno = error.raw_os_error().map_or(nix::errno::Errno::EIO, nix::errno::Errno::from_raw);
    directory.error("write", name, errno)
}

impl ExtentSink for SavingExtents<'_> {
    fn keep(&mut self, digest: &ExtentDigest, bytes: &[u8]) -> io::Result<()> {
        if !self.needed.insert(*digest) || self.known.contains_key(digest) {
            return Ok(());
        }
        self.write(digest, bytes).map_err(|error| {
            self.failure = Some(error);
            io::Error::other("the store refused an extent")
        })
    }

    fn name(&mut self, extent: &Extent) {
        self.needed.insert(extent.digest);
    }
}

/// Reads the extents of a saved tree.
#[derive(Debug)]
pub(super) struct StoredExtents(pub(super) StoreDir);

impl ExtentSource for StoredExtents {
    fn read(&mut self, digest: &ExtentDigest, bytes: &mut [u8]) -> io::Result<()> {
        let name = extent_name(digest);
        let (mut file, length) = self.0.open_file(&name).map_err(|fault| match fault {
            ReadFault::Absent => io::Error::from(io::ErrorKind::NotFound),
            ReadFault::Corrupt(words) => io::Error::other(words),
            ReadFault::System(error) => io::Error::other(error),
        })?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{name} is damaged"));
        if length != bytes.len() as u64 {
            return Err(damaged());
        }
        file.read_exact(bytes)?;
        let found = Sha256::digest(&*bytes);
        if found.as_slice() == digest.as_slice() { Ok(()) } else { Err(damaged()) }
    }
}
