//! A run that this process alone works on.

use std::io::{BufWriter, Write};
use std::path::Path;

use nix::fcntl::renameat;
use nix::unistd::fsync;

use super::cell_files::{CellFile, CellFilesDir, read_result, read_tail};
use super::error::CaseRunError;
use super::manifest::{MANIFEST_BYTES_MAX, MANIFEST_VERSION, RunManifest};
use crate::case::run::plan::PlannedCell;
use crate::case::run::record::CellStatus;
use crate::case::run::result::CellResult;
use crate::store::{ServiceLock, StoreDir, StoreError, errno_of};
use cofferdam_core::values::digest::sha256_of;

/// The directory of the Cells.
pub(super) const CELLS: &str = "cells";
/// The document of the run.
pub(super) const MANIFEST: &str = "manifest.json";
/// Bytes that are collected for one write.
const BUFFER_BYTES: usize = 64 << 10;

/// A run and its lock. The kernel releases the lock with the process.
#[derive(Debug)]
pub struct LockedRun {
    manifest: RunManifest,
    directory: StoreDir,
    cells: StoreDir,
    _lock: ServiceLock,
}

impl LockedRun {
    /// The run in `directory`, whose lock this process has.
    pub(super) fn new(directory: StoreDir, lock: ServiceLock) -> Result<Self, CaseRunError> {
        let manifest = read_manifest(&directory)?;
        let cells = directory.own_child(CELLS)?;
        Ok(Self { manifest, directory, cells, _lock: lock })
    }

    /// Takes the lock of the run in `directory`.
    pub(super) fn lock(directory: StoreDir) -> Result<Self, CaseRunError> {
        // Only of a run: taking the lock makes its file.
        let id = read_manifest(&directory)?.run_id;
        let lock = ServiceLock::take(&directory).map_err(|error| match error {
            StoreError::Owned { pid, .. } => CaseRunError::InUse { id: id.to_string(), pid },
            error => error.into(),
        })?;
        Self::new(directory, lock)
    }

    /// What the run was made of.
    pub fn manifest(&self) -> &RunManifest {
        &self.manifest
    }

    /// The path of the run.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn directory(&self) -> &StoreDir {
        &self.directory
    }

    /// Fails if the run was made of another case file.
    ///
    /// # Errors
    /// [`CaseRunError::Changed`].
    pub fn check_case(&self, case_yaml: &[u8]) -> Result<(), CaseRunError> {
        self.check("Case", self.manifest.digests.case == sha256_of(case_yaml))
    }

    /// Fails if the run was made of a source with another digest.
    ///
    /// # Errors
    /// [`CaseRunError::Changed`].
    pub fn check_source(&self, digest: &str) -> Result<(), CaseRunError> {
        self.check("source", self.manifest.digests.source == digest)
    }

    fn check(&self, what: &'static str, is_same: bool) -> Result<(), CaseRunError> {
        let id = self.manifest.run_id.clone();
        if is_same { Ok(()) } else { Err(CaseRunError::Changed { id, what }) }
    }

    /// The result of a Cell. One that was not written whole counts as pending, and so does one of a Cell that no
    /// process runs any more: call this between runs only.
    ///
    /// # Errors
    /// This process could not read it.
    pub fn result(&self, cell: &PlannedCell) -> Result<CellResult, CaseRunError> {
        let mut result = self.live_result(cell)?;
        if result.end.status == CellStatus::Running {
            result = CellResult::of(cell, result.attempt, CellStatus::Pending);
        }
        Ok(result)
    }

    /// The same while Cells run.
    ///
    /// # Errors
    /// This process could not read it.
    pub fn live_result(&self, cell: &PlannedCell) -> Result<CellResult, CaseRunError> {
        read_result(&self.cells, cell)
    }

    /// The end of a file of a Cell and its size; nothing if there is no such file.
    pub fn tail(
        &self,
        cell: &PlannedCell,
        file: CellFile,
        bytes_max: u64,
    ) -> Option<(Vec<u8>, u64)> {
        read_tail(&self.cells, cell, file, bytes_max)
    }

    /// Begins an attempt at `cell`: the files of earlier ones are gone, and the result says that it runs.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn begin(&self, cell: &PlannedCell, attempt: u64) -> Result<CellFilesDir, CaseRunError> {
        let files = CellFilesDir::open(&self.cells, cell)?;
        files.write_result(&CellResult::of(cell, attempt, CellStatus::Running))?;
        files.clear()?;
        Ok(files)
    }

    /// Writes the result of a Cell.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn finish(&self, result: &CellResult) -> Result<(), CaseRunError> {
        CellFilesDir::open(&self.cells, &result.cell)?.write_result(result)
    }

    /// Replaces the file `name` of the run by what `write` writes: a reader sees the old or the new one.
    ///
    /// # Errors
    /// `write` or the disk fails. The old file is still there.
    pub fn replace(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), CaseRunError>,
    ) -> Result<(), CaseRunError> {
        let temporary = format!(".{name}.new");
        let fault = |operation, errno| self.directory.error(operation, name, errno);
        self.directory.unlink(&temporary)?;
        let file = self.directory.create_file(&temporary)?;
        let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, file);
        let written = write(&mut buffered).and_then(|()| {
            let file =
                buffered.into_inner().map_err(|error| fault("write", errno_of(error.error())))?;
            fsync(&file).map_err(|errno| fault("fsync", errno))?;
            let fd = self.directory.fd();
            renameat(fd, temporary.as_str(), fd, name).map_err(|errno| fault("rename", errno))?;
            Ok(())
        });
        if written.is_err() {
            // The first failure is the one to report.
            let _ = self.directory.unlink(&temporary);
        }
        written
    }

    /// The error of a write to the file `name` of the run.
    pub fn write_error(&self, name: &str, error: &std::io::Error) -> CaseRunError {
        self.directory.error("write", name, errno_of(error)).into()
    }
}

fn read_manifest(directory: &StoreDir) -> Result<RunManifest, CaseRunError> {
    let path = directory.path_of(MANIFEST);
    let bytes =
        directory.read(MANIFEST, MANIFEST_BYTES_MAX).map_err(|fault| fault.at(path.clone()))?;
    let corrupt = |reason: String| StoreError::Corrupt { path: path.clone(), reason };
    let manifest: RunManifest =
        serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
    if manifest.version != MANIFEST_VERSION {
        return Err(
            corrupt(format!("version {}; want {MANIFEST_VERSION}", manifest.version)).into()
        );
    }
    let is_name = |cell: &PlannedCell| {
        !cell.id.is_empty() && !cell.id.starts_with('.') && !cell.id.contains(['/', '\0'])
    };
    match manifest.cells.iter().find(|cell| !is_name(cell)) {
        Some(cell) => Err(corrupt(format!("{:?} is no name of a Cell", cell.id)).into()),
        None => Ok(manifest),
    }
}
