//! Saved workspaces and snapshots: written, read, removed.

use std::io::{BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::syncfs;

use super::extents::{NamedExtents, SavingExtents, StoredExtents, named_extents, write_error};
use super::files::{EXTENTS, open, remove_all};
use super::record::{SavedRecord, manifest_name};
use super::sweep::{GONE, charge_of, sweep};
use crate::store::{StoreDir, StoreError, errno_of};
use crate::workspace::disk::engine_dir::EngineDir;
use crate::workspace::disk::store_quota::{DIRECTORY_CHARGE, file_charge};
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_tree::saved::{ManifestReader, SaveOptions, SavedTreeError, restore_tree, save_tree};
use cofferdam_tree::{Owner, StopCheck, WorkspaceError};

/// What a saved tree takes besides its extents and its manifest: its directories and its record.
const FIXED_CHARGE: u64 = 2 * DIRECTORY_CHARGE + 4096;

/// What is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedKind {
    /// A workspace.
    Workspace,
    /// A snapshot.
    Snapshot,
}

/// The files that a save writes.
#[derive(Debug, Clone, Copy)]
pub struct Saving<'save> {
    /// Their root. Nothing changes them during the save.
    pub root: BorrowedFd<'save>,
    /// The life of their file system: states of files are compared within one life.
    pub life: [u8; 16],
    /// Ends the work early.
    pub stop: StopCheck<'save>,
}

/// The saved workspaces and snapshots. The caller lets one thread at a time use each of them.
#[derive(Debug)]
pub struct SavedStore {
    directory: Arc<EngineDir>,
    workspaces: StoreDir,
    snapshots: StoreDir,
}

impl SavedStore {
    /// Opens them in `directory`, and removes what a killed service has left unfinished. Returns the
    /// records of workspaces and those of snapshots too, the oldest first.
    ///
    /// # Errors
    /// The files cannot be read or changed.
    pub fn open(directory: Arc<EngineDir>) -> Result<(Self, [Vec<SavedRecord>; 2]), StoreError> {
        let [workspaces, snapshots] =
            [directory.child("workspaces")?, directory.child("snapshots")?];
        let records =
            [sweep(&workspaces, directory.quota())?, sweep(&snapshots, directory.quota())?];
        Ok((Self { directory, workspaces, snapshots }, records))
    }

    /// Saves a tree with its record: only extents that the save before does not have are written. When this
    /// returns, the save is on the disk; after an error the save before is as it was.
    ///
    /// # Errors
    /// The store has no room, or a step failed.
    pub fn save(
        &self,
        kind: SavedKind,
        saving: &Saving<'_>,
        mut record: SavedRecord,
    ) -> Result<SavedRecord, EngineError> {
        let place = self.of(kind);
        let directory = place.own_child(&record.id)?;
        let before = SavedRecord::read(&directory)?;
        let saved = self.save_in((place, &directory), saving, before.as_ref(), &mut record);
        if saved.is_err() && before.is_none() {
            remove_all(place, &record.id)?;
        }
        saved.map(|()| record)
    }

    fn save_in(
        &self,
        (place, directory): (&StoreDir, &StoreDir),
        saving: &Saving<'_>,
        before: Option<&SavedRecord>,
        record: &mut SavedRecord,
    ) -> Result<(), EngineError> {
        let extents = directory.own_child(EXTENTS)?;
        let known = before.map(|before| known_extents(directory, before));
        let known = known.transpose()?.unwrap_or_default();
        let quota = self.directory.quota();
        let mut sink = SavingExtents::new(&extents, known, quota.reservation());
        record.manifest = before.map_or(0, |before| before.manifest) + 1;
        let written = write_manifest(directory, saving, before, record, &mut sink);
        let written = written.and_then(|manifest_bytes| {
            let fixed = if before.is_none() { FIXED_CHARGE } else { 0 };
            sink.reserve(file_charge(manifest_bytes) + fixed)?;
            // One wait for all new files instead of one for each.
            syncfs(directory.fd()).map_err(|errno| directory.error("syncfs", "", errno))?;
            Ok(record.write(directory)?)
        });
        if let Err(error) = written {
            sink.undo();
            directory.unlink(&record.manifest_name())?;
            return Err(error);
        }
        // From here the new save holds, whatever else fails.
        if let Err(error) = directory.sync().and_then(|()| place.sync()) {
            log::error!("a save may not survive a loss of power: {error}");
        }
        let mut freed = sink.commit();
        if let Some(before) = before {
            freed += remove_manifest(directory, before);
        }
        quota.free(freed);
        Ok(())
    }

    /// Changes the record of what is saved to `record`, and leaves the files. Returns it with what it says of
    /// them.
    ///
    /// # Errors
    /// Nothing is saved with its id, or it cannot be written.
    pub fn update(
        &self,
        kind: SavedKind,
        mut record: SavedRecord,
    ) -> Result<SavedRecord, EngineError> {
        let directory = self.open_saved(kind, &record.id)?;
        let saved = SavedRecord::read(&directory)?.ok_or_else(|| absent(&directory))?;
        record.manifest = saved.manifest;
        record.write(&directory)?;
        directory.sync()?;
        Ok(record)
    }

    /// Makes the files of what is saved below `root`, in place of what is there. The tenant's get `owner`.
    ///
    /// # Errors
    /// They do not fit, a step failed, or something of the save is missing or damaged.
    pub fn restore(
        &self,
        kind: SavedKind,
        id: &str,
        (root, owner): (BorrowedFd<'_>, Owner),
        stop: StopCheck<'_>,
    ) -> Result<(), EngineError> {
        let directory = self.open_saved(kind, id)?;
        let record = SavedRecord::read(&directory)?.ok_or_else(|| absent(&directory))?;
        let manifest = open(&directory, &record.manifest_name())?;
        let mut source = StoredExtents(child(&directory, EXTENTS)?);
        restore_tree(root, manifest, &mut source, owner, stop).map_err(|error| tree_error(&error))
    }

    /// Removes what is saved with this id, if anything is.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, kind: SavedKind, id: &str) -> Result<(), EngineError> {
        let place = self.of(kind);
        let directory = match place.child(id) {
            Ok(directory) => directory,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(place.error("open", id, errno).into()),
        };
        let charge = charge_of(&directory, None)?;
        let gone = format!("{GONE}{id}");
        place.move_to(id, place, &gone).map_err(|errno| place.error("rename", id, errno))?;
        // From here it is removed, whatever else fails.
        if let Err(error) = place.sync().and_then(|()| remove_all(place, &gone)) {
            log::warn!("files of a removed save stay until the next start: {error}");
            return Ok(());
        }
        self.directory.quota().free(charge);
        Ok(())
    }

    fn of(&self, kind: SavedKind) -> &StoreDir {
        match kind {
            SavedKind::Workspace => &self.workspaces,
            SavedKind::Snapshot => &self.snapshots,
        }
    }

    fn open_saved(&self, kind: SavedKind, id: &str) -> Result<StoreDir, EngineError> {
        child(self.of(kind), id)
    }
}

/// Writes the manifest and the extents of a save. Returns the length of the manifest.
fn write_manifest(
    directory: &StoreDir,
    saving: &Saving<'_>,
    before: Option<&SavedRecord>,
    record: &SavedRecord,
    sink: &mut SavingExtents<'_>,
) -> Result<u64, EngineError> {
    let name = record.manifest_name();
    directory.unlink(&name)?;
    let file = directory.create_file(&name)?;
    let previous = before.map(|before| open(directory, &before.manifest_name())).transpose()?;
    let previous = previous.and_then(|previous| ManifestReader::open(previous).ok());
    let frozen_at = record.saved_at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let options = SaveOptions {
        previous,
        life: saving.life,
        frozen_at: i64::try_from(frozen_at.as_secs()).unwrap_or_default(),
        stop: saving.stop,
    };
    let mut output = BufWriter::new(&file);
    let saved = save_tree(saving.root, &mut output, sink, options);
    saved.map_err(|error| match sink.failure() {
        Some(failure) => failure,
        None => tree_error(&error),
    })?;
    output.flush().map_err(|error| write_error(directory, &name, &error))?;
    let metadata = file.metadata();
    Ok(metadata.map_err(|error| directory.error("stat", &name, errno_of(&error)))?.len())
}

/// The extents of the save before. One that cannot be read is written again as a whole.
fn known_extents(directory: &StoreDir, before: &SavedRecord) -> Result<NamedExtents, EngineError> {
    let manifest = open(directory, &before.manifest_name())?;
    Ok(named_extents(manifest).unwrap_or_else(|error| {
        log::error!("{:?}: {error}", directory.path_of(before.manifest_name()));
        NamedExtents::new()
    }))
}

/// Removes the manifest of an earlier save. Returns how much it took.
fn remove_manifest(directory: &StoreDir, before: &SavedRecord) -> u64 {
    let name = manifest_name(before.manifest);
    let bytes = directory.entry(&name).ok().flatten().map_or(0, |stat| stat.st_size);
    match directory.unlink(&name) {
        Ok(()) => file_charge(u64::try_from(bytes).unwrap_or_default()),
        Err(error) => {
            log::warn!("the manifest of an earlier save stays: {error}");
            0
        }
    }
}

fn child(directory: &StoreDir, name: &str) -> Result<StoreDir, EngineError> {
    Ok(directory.child(name).map_err(|errno| directory.error("open", name, errno))?)
}

fn absent(directory: &StoreDir) -> StoreError {
    directory.error("open", "settings.json", Errno::ENOENT)
}

/// The error for clients; the log has the words.
fn tree_error(error: &SavedTreeError) -> EngineError {
    match error {
        SavedTreeError::Tree(WorkspaceError::Stopped) => {
            let words = "the files could not be written or read in time";
            EngineError::new(EngineCode::SnapshotUnavailable, words)
        }
        SavedTreeError::Tree(WorkspaceError::System { source: Errno::ENOSPC, .. }) => {
            EngineError::new(EngineCode::WorkspaceDiskFull, "the files do not fit any more")
        }
        SavedTreeError::Kept(kept) if kept.raw_os_error() == Some(Errno::ENOSPC as i32) => {
            EngineError::new(EngineCode::StoreFull, "the disk of the engine's store is full")
        }
        SavedTreeError::Tree(_) | SavedTreeError::Kept(_) => {
            log::error!("files of a workspace in the store: {error}");
            EngineError::new(EngineCode::IoFailed, "the files could not be written or read")
        }
    }
}
