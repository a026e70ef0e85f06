//! Writes a tree out: its manifest, and the extents that are not kept yet.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use nix::fcntl::readlinkat;
use nix::sys::stat::{FileStat, SFlag};
use sha2::{Digest, Sha256};

use super::entry::{
    EXTENT_BYTES_MAX, EntryKind, EntryOwner, EntryTime, Extent, FileState, SavedEntry, SavedFile,
};
use super::keeping::{ExtentSink, SavedTreeError};
use super::manifest::{ManifestReader, ManifestWriter};
use crate::copy::copy_file::data_after;
use crate::error::{During, WorkspaceFault};
use crate::layer::redirects::READ_ONLY_TREES;
use crate::status;
use crate::walk::budget::TreeLimit;
use crate::walk::open_beneath;
use crate::walk::ordered::{OrderedEntry, OrderedRange, OrderedWalk};
use crate::walk::stop_check::StopCheck;

/// A file that was changed less than this long before the tree was frozen, seconds, may be changed again
/// without a difference in its state: the clock of the kernel is coarse.
const UNSETTLED_SECONDS: i64 = 2;
/// The most bytes that the paths of all entries may have together. An entry takes time by the length of its
/// path, so a deep tree with many entries would keep all other trees waiting.
pub(super) const PATHS_BYTES_MAX: u64 = 4 << 30;
/// The owner of read-only trees.
const ROOT_ID: u32 = 0;

/// How [`save_tree`] goes about it.
#[derive(Debug)]
pub struct SaveOptions<'calls, R> {
    /// What was saved before, if anything was.
    pub previous: Option<ManifestReader<R>>,
    /// The life of the file system. States of files are compared within one life only.
    pub life: [u8; 16],
    /// When the tree was frozen, seconds since 1970.
    pub frozen_at: i64,
    /// Ends the work early.
    pub stop: StopCheck<'calls>,
}

/// What a saved tree holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SavedTotals {
    /// All entries.
    pub entries: u64,
    /// Regular files.
    pub files: u64,
    /// Bytes of regular files, holes included.
    pub bytes: u64,
}

/// Writes the manifest of the tree below `root` to `manifest`, and gives `sink` the extents of its files.
/// Nothing may change the tree meanwhile. A file with the state that it had in `options.previous` is not
/// read again.
///
/// # Errors
/// The tree cannot be read or has too long paths, the work was stopped, or `manifest` or `sink` failed.
pub fn save_tree(
    root: BorrowedFd<'_>,
    manifest: &mut impl Write,
    sink: &mut dyn ExtentSink,
    options: SaveOptions<'_, impl Read>,
) -> Result<SavedTotals, SavedTreeError> {
    save_tree_within(root, manifest, sink, options, PATHS_BYTES_MAX)
}

/// As [`save_tree`], with this limit of bytes of all paths together.
pub(super) fn save_tree_within(
    root: BorrowedFd<'_>,
    manifest: &mut impl Write,
    sink: &mut dyn ExtentSink,
    options: SaveOptions<'_, impl Read>,
    paths_bytes_max: u64,
) -> Result<SavedTotals, SavedTreeError> {
    let SaveOptions { previous, life, frozen_at, stop } = options;
    let range = OrderedRange { depth_max: usize::MAX, entries_max: usize::MAX, after: Vec::new() };
    let walk = OrderedWalk::over(root, range).map_err(|fault| fault.at("."))?;
    // What lies there is seen elsewhere.
    let walk = walk.without(READ_ONLY_TREES);
    let previous = previous.filter(|previous| previous.life() == life);
    let mut previous = Previous { manifest: previous, next: None };
    let mut saving = SaveWalk {
        walk,
        sink,
        stop,
        frozen_at,
        groups: HashMap::new(),
        paths: PathsBudget { bytes: 0, bytes_max: paths_bytes_max },
        totals: SavedTotals::default(),
        buffer: vec![0; EXTENT_BYTES_MAX],
    };
    let mut manifest = ManifestWriter::begin(manifest, life)?;
    while let Some(entry) = saving.advance()? {
        if let Some(saved) = saving.save(&entry, &mut previous)? {
            saving.totals.entries += 1;
            manifest.add(saved)?;
        }
    }
    manifest.end()?;
    Ok(saving.totals)
}

/// The earlier manifest, in step with the walk.
struct Previous<R> {
    manifest: Option<ManifestReader<R>>,
    next: Option<SavedEntry>,
}

impl<R: Read> Previous<R> {
    /// The file that was at `path`. Paths are asked for in order.
    fn file(&mut self, path: &[u8]) -> Option<SavedFile> {
        while let Some(manifest) = &mut self.manifest {
            match &self.next {
                Some(next) if next.path.as_slice() < path => self.next = None,
                Some(next) if next.path == path => break,
                Some(_) => return None,
                None => match manifest.advance() {
                    Ok(Some(entry)) => self.next = Some(entry),
                    // Without it all files are read, which is right too.
                    Ok(None) | Err(_) => self.manifest = None,
                },
            }
        }
        match self.next.take()?.kind {
            EntryKind::File(file) => Some(file),
            _ => None,
        }
    }
}

struct SaveWalk<'root, 'calls> {
    walk: OrderedWalk<'root>,
    sink: &'calls mut dyn ExtentSink,
    stop: StopCheck<'calls>,
    frozen_at: i64,
    /// The groups of files with several names, by device and inode.
    groups: HashMap<(u64, u64), u64>,
    paths: PathsBudget,
    totals: SavedTotals,
    buffer: Vec<u8>,
}

/// The bytes of the paths so far.
struct PathsBudget {
    bytes: u64,
    bytes_max: u64,
}

impl PathsBudget {
    fn take(&mut self, bytes: usize) -> Result<(), WorkspaceFault> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        match self.bytes > self.bytes_max {
            true => Err(TreeLimit::PathsBytes { max: self.bytes_max }.into()),
            false => Ok(()),
        }
    }
}

impl SaveWalk<'_, '_> {
    fn advance(&mut self) -> Result<Option<OrderedEntry>, SavedTreeError> {
        self.stop.check().map_err(|fault| self.at(fault))?;
        let next = self.walk.advance();
        next.map_err(|fault| self.at(fault).into())
    }

    fn at(&self, fault: WorkspaceFault) -> crate::WorkspaceError {
        fault.at(self.walk.path().shown())
    }

    /// What is to be written of an entry; nothing of sockets and devices.
    fn save<R: Read>(
        &mut self,
        entry: &OrderedEntry,
        previous: &mut Previous<R>,
    ) -> Result<Option<SavedEntry>, SavedTreeError> {
        let stat = self.walk.stat(entry).map_err(|fault| self.at(fault))?;
        let Some(stat) = stat else { return Ok(None) };
        let taken = self.paths.take(self.walk.path().bytes().len() + entry.name.count_bytes());
        taken.map_err(|fault| self.at(fault))?;
        let path = self.walk.path_of(&entry.name);
        let kind = match status::file_type(&stat) {
            SFlag::S_IFDIR => EntryKind::Directory,
            SFlag::S_IFREG => self.file(entry, &stat, previous.file(&path))?,
            SFlag::S_IFIFO => EntryKind::Fifo,
            SFlag::S_IFLNK => {
                let target = readlinkat(self.walk.directory(), entry.name.as_c_str());
                let target = target.during("readlink").map_err(|fault| self.at(fault))?;
                EntryKind::SymbolicLink { target: target.as_bytes().to_vec() }
            }
            _ => return Ok(None),
        };
        // Whatever is not root's is the tenant's: no other id can own anything there.
        let owner = if stat.st_uid == ROOT_ID { EntryOwner::Root } else { EntryOwner::Tenant };
        let mode = u16::try_from(stat.st_mode & 0o7777).unwrap_or_default();
        let modified = EntryTime::modified(&stat);
        Ok(Some(SavedEntry { path, owner, mode, modified, kind }))
    }

    fn file(
        &mut self,
        entry: &OrderedEntry,
        stat: &FileStat,
        before: Option<SavedFile>,
    ) -> Result<EntryKind, SavedTreeError> {
        let mut group = 0;
        if stat.st_nlink > 1 {
            let next = self.groups.len() as u64 + 1;
            group = *self.groups.entry((stat.st_dev, stat.st_ino)).or_insert(next);
            if group != next {
                return Ok(EntryKind::HardLink { group });
            }
        }
        let bytes = u64::try_from(stat.st_size).unwrap_or_default();
        self.totals.files += 1;
        self.totals.bytes = self.totals.bytes.saturating_add(bytes);
        let changed = EntryTime::changed(stat);
        let is_settled = changed.seconds.saturating_add(UNSETTLED_SECONDS) < self.frozen_at;
        let inode = if is_settled { stat.st_ino } else { 0 };
        let state = FileState { inode, changed };
        let same = before.filter(|file| inode != 0 && file.state == state && file.bytes == bytes);
        let extents = match same {
            Some(file) => {
                file.extents.iter().for_each(|extent| self.sink.name(extent));
                file.extents
            }
            None => self.read(entry, stat)?,
        };
        Ok(EntryKind::File(SavedFile { bytes, group, state, extents }))
    }

    /// Gives the sink all extents of a file.
    fn read(
        &mut self,
        entry: &OrderedEntry,
        stat: &FileStat,
    ) -> Result<Vec<Extent>, SavedTreeError> {
        let opened = open_beneath::open_for_reading_quietly(self.walk.directory(), &*entry.name);
        let file = File::from(opened.during("open").map_err(|fault| self.at(fault))?);
        let (mut extents, mut at) = (Vec::new(), 0);
        loop {
            let found = data_after(&file, at, stat.st_size).map_err(|fault| self.at(fault))?;
            let Some((start, end)) = found else { return Ok(extents) };
            at = start;
            while at < end {
                self.stop.check().map_err(|fault| self.at(fault))?;
                let wanted = usize::try_from(end - at).unwrap_or(EXTENT_BYTES_MAX);
                let offset = u64::try_from(at).unwrap_or_default();
                // Extents end at multiples of their length, so that a change moves no other.
                let past = usize::try_from(offset % EXTENT_BYTES_MAX as u64).unwrap_or_default();
                let wanted = wanted.min(EXTENT_BYTES_MAX - past);
                let buffer = self.buffer.get_mut(..wanted).unwrap_or_default();
                let read = file.read_exact_at(buffer, offset).during("read");
                read.map_err(|fault| self.at(fault))?;
                let bytes = self.buffer.get(..wanted).unwrap_or_default();
                let digest = Sha256::digest(bytes).into();
                self.sink.keep(&digest, bytes)?;
                let bytes = u32::try_from(wanted).unwrap_or_default();
                extents.push(Extent { offset, bytes, digest });
                at += i64::from(bytes);
            }
        }
    }
}
