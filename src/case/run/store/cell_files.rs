//! The directory of a Cell: the files of its last attempt.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::error::CaseRunError;
use crate::case::run::plan::PlannedCell;
use crate::case::run::record::CellStatus;
use crate::case::run::result::{CellResult, RESULT_BYTES_MAX};
use crate::store::{ReadFault, StoreDir, StoreError, errno_of};
use cofferdam_tree::remove_tree;

const RESULT: &str = "result.json";
const MIB: u64 = 1 << 20;

/// A file of a Cell besides `result.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellFile {
    /// What was asked of the Cell.
    Spec,
    /// What the agent wrote.
    Output,
    /// What the agent changed.
    Patch,
    /// Times and amounts.
    Metrics,
    /// The scores.
    Score,
    /// The turns of an agent that is a loop of ours.
    Trace,
    /// Each command that ran in the Cell.
    Commands,
}

impl CellFile {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec.json",
            Self::Output => "output.txt",
            Self::Patch => "agent.patch",
            Self::Metrics => "metrics.json",
            Self::Score => "score.json",
            Self::Trace => "trace.jsonl",
            Self::Commands => "commands.jsonl",
        }
    }

    /// The most bytes of it. A patch has its limit from the Case, below this one.
    pub fn bytes_max(self) -> u64 {
        match self {
            Self::Metrics => MIB,
            Self::Spec | Self::Score => 8 * MIB,
            Self::Output | Self::Trace | Self::Commands => 64 * MIB,
            Self::Patch => 1024 * MIB,
        }
    }
}

/// The directory of a Cell. Its path is the place for `sandbox/` and `env/` of a Cell that is kept.
#[derive(Debug)]
pub struct CellFilesDir {
    directory: StoreDir,
}

impl CellFilesDir {
    /// Opens the directory of `cell` in `cells`, and creates it if missing.
    pub(super) fn open(cells: &StoreDir, cell: &PlannedCell) -> Result<Self, CaseRunError> {
        Ok(Self { directory: cells.own_child(&cell.id)? })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file whole: a reader sees all of it or none.
    ///
    /// # Errors
    /// It is too long, or the disk refuses it.
    pub fn write(&self, file: CellFile, contents: &[u8]) -> Result<(), CaseRunError> {
        let bytes = u64::try_from(contents.len()).unwrap_or(u64::MAX);
        if bytes > file.bytes_max() {
            let reason = format!("{bytes} bytes, more than {}", file.bytes_max());
            let path = self.directory.path_of(file.name());
            return Err(StoreError::NotRecordable { path, reason }.into());
        }
        Ok(self.directory.replace(file.name(), contents)?)
    }

    /// Writes a value as a line of JSON.
    ///
    /// # Errors
    /// As of [`CellFilesDir::write`].
    pub fn write_json(&self, file: CellFile, value: &impl Serialize) -> Result<(), CaseRunError> {
        let line = self.json_line(file, value)?;
        self.write(file, &line)
    }

    /// Opens a file that grows while the Cell runs.
    ///
    /// # Errors
    /// It was written or opened before in this attempt, or the disk refuses it.
    pub fn open_log(&self, file: CellFile) -> Result<CellLog, CaseRunError> {
        let opened = self.directory.create_file(file.name())?;
        let growing = GrowingFile { file: opened, room_bytes: file.bytes_max(), dropped_bytes: 0 };
        Ok(CellLog { growing: Mutex::new(growing) })
    }

    fn json_line(&self, file: CellFile, value: &impl Serialize) -> Result<Vec<u8>, CaseRunError> {
        let mut line = serde_json::to_vec(value).map_err(|error| StoreError::NotRecordable {
            path: self.directory.path_of(file.name()),
            reason: error.to_string(),
        })?;
        line.push(b'\n');
        Ok(line)
    }

    /// Removes what earlier attempts have left, whole or not, except the result.
    pub(super) fn clear(&self) -> Result<(), CaseRunError> {
        for name in self.directory.names()? {
            if name != OsStr::new(RESULT) {
                remove_entry(&self.directory, &name)?;
            }
        }
        Ok(())
    }

    /// Writes the result, which is on the disk afterwards.
    pub(super) fn write_result(&self, result: &CellResult) -> Result<(), CaseRunError> {
        let line = result.to_line().map_err(|error| StoreError::NotRecordable {
            path: self.directory.path_of(RESULT),
            reason: error.to_string(),
        })?;
        self.directory.replace(RESULT, &line)?;
        Ok(self.directory.sync()?)
    }

    /// Writes the first result of a new run, which nothing is lost by.
    pub(super) fn write_pending(&self, cell: &PlannedCell) -> Result<(), CaseRunError> {
        let result = CellResult::of(cell, 0, CellStatus::Pending);
        let line = result.to_line().unwrap_or_default();
        let mut file = self.directory.create_file(RESULT)?;
        let written = file.write_all(&line);
        Ok(written.map_err(|error| self.directory.error("write", RESULT, errno_of(&error)))?)
    }
}

/// The result of `cell`, which is pending if it has none that was written whole.
pub(super) fn read_result(
    cells: &StoreDir,
    cell: &PlannedCell,
) -> Result<CellResult, CaseRunError> {
    let path = cells.path_of(&cell.id);
    let read = cells
        .child(&cell.id)
        .map_err(|errno| ReadFault::of("open", path.clone(), errno))
        .and_then(|directory| directory.read(RESULT, limit(RESULT_BYTES_MAX)));
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(ReadFault::System(error)) => return Err(error.into()),
        Err(ReadFault::Absent | ReadFault::Corrupt(_)) => Vec::new(),
    };
    let result = serde_json::from_slice::<CellResult>(&bytes).ok();
    let result = result.filter(|result| result.cell == *cell);
    Ok(result.unwrap_or_else(|| CellResult::of(cell, 0, CellStatus::Pending)))
}

/// The end of a file of `cell`, at most `bytes_max`, and its size; nothing if there is no such file.
pub(super) fn read_tail(
    cells: &StoreDir,
    cell: &PlannedCell,
    file: CellFile,
    bytes_max: u64,
) -> Option<(Vec<u8>, u64)> {
    use std::io::{Read, Seek, SeekFrom};
    let (mut opened, bytes) = cells.child(&cell.id).ok()?.open_file(file.name()).ok()?;
    opened.seek(SeekFrom::Start(bytes.saturating_sub(bytes_max))).ok()?;
    let mut tail = Vec::new();
    opened.take(bytes_max).read_to_end(&mut tail).ok()?;
    Some((tail, bytes))
}

/// Removes the file or tree `name` of `directory`.
pub(super) fn remove_entry(directory: &StoreDir, name: &OsStr) -> Result<(), CaseRunError> {
    let reason = match remove_tree(directory.fd(), name) {
        Ok(removed) if removed.left == 0 => return Ok(()),
        Ok(removed) => format!("{} entries cannot be removed", removed.left),
        Err(error) => error.to_string(),
    };
    Err(StoreError::NotRecordable { path: directory.path_of(name), reason }.into())
}

fn limit(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// A file that grows while the Cell runs, by several threads. What is beyond its limit is dropped and counted.
#[derive(Debug)]
pub struct CellLog {
    growing: Mutex<GrowingFile>,
}

#[derive(Debug)]
struct GrowingFile {
    file: File,
    room_bytes: u64,
    dropped_bytes: u64,
}

impl CellLog {
    /// Adds as much of `bytes` as there is room for.
    pub fn append(&self, bytes: &[u8]) {
        let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let room = usize::try_from(growing.room_bytes).unwrap_or(usize::MAX);
        let (kept, dropped) = bytes.split_at(room.min(bytes.len()));
        growing.write(kept);
        growing.dropped_bytes += limit(dropped.len());
    }

    /// Adds a value as a line of JSON, if there is room for all of it.
    pub fn append_line(&self, value: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(value) else { return };
        line.push(b'\n');
        let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if limit(line.len()) <= growing.room_bytes {
            growing.write(&line);
        } else {
            // Shorter lines would look as if nothing were missing between them.
            growing.room_bytes = 0;
            growing.dropped_bytes += limit(line.len());
        }
    }

    /// How many bytes are missing, because of the limit or the disk.
    pub fn dropped_bytes(&self) -> u64 {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner).dropped_bytes
    }
}

impl Write for CellLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl GrowingFile {
    fn write(&mut self, bytes: &[u8]) {
        self.room_bytes = self.room_bytes.saturating_sub(limit(bytes.len()));
        if self.file.write_all(bytes).is_err() {
            self.dropped_bytes += limit(bytes.len());
        }
    }
}
