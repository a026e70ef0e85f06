//! The directory of a Cell: the files of its last attempt.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::cell_log::CellLog;
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
        Ok(CellLog::new(opened, file.bytes_max()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> (tempfile::TempDir, CellFilesDir) {
        let scene = tempfile::tempdir().unwrap();
        let directory = StoreDir::open(scene.path()).unwrap();
        (scene, CellFilesDir { directory })
    }

    #[test]
    fn a_file_is_written_whole_or_not_at_all() {
        let (scene, files) = scene();
        files.write(CellFile::Metrics, b"{}").unwrap();
        let too_long = vec![b'x'; usize::try_from(MIB).unwrap() + 1];
        assert!(files.write(CellFile::Metrics, &too_long).is_err());
        assert_eq!(std::fs::read(scene.path().join("metrics.json")).unwrap(), b"{}");
    }

    #[test]
    fn an_attempt_begins_without_what_others_have_left() {
        let (scene, files) = scene();
        for name in ["result.json", "output.txt", ".result.json.new", "sandbox/deep/file"] {
            let path = scene.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        files.clear().unwrap();
        assert_eq!(files.directory.names().unwrap(), ["result.json"]);
    }
}
