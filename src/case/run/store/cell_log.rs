//! A file that grows while its Cell runs.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

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
    /// The new `file`, with room for so many bytes.
    pub(super) fn new(file: File, room_bytes: u64) -> Self {
        Self { growing: Mutex::new(GrowingFile { file, room_bytes, dropped_bytes: 0 }) }
    }

    /// Adds as much of `bytes` as there is room for.
    pub fn append(&self, bytes: &[u8]) {
        let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let room = usize::try_from(growing.room_bytes).unwrap_or(usize::MAX);
        let (kept, dropped) = bytes.split_at(room.min(bytes.len()));
        growing.write(kept);
        growing.dropped_bytes += length(dropped.len());
    }

    /// Adds a value as a line of JSON, if there is room for all of it.
    pub fn append_line(&self, value: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(value) else { return };
        line.push(b'\n');
        let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if length(line.len()) <= growing.room_bytes {
            growing.write(&line);
        } else {
            // Shorter lines would look as if nothing were missing between them.
            growing.room_bytes = 0;
            growing.dropped_bytes += length(line.len());
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
        self.room_bytes = self.room_bytes.saturating_sub(length(bytes.len()));
        if self.file.write_all(bytes).is_err() {
            self.dropped_bytes += length(bytes.len());
        }
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_what_there_is_room_for_and_counts_the_rest() {
        let scene = tempfile::tempdir().unwrap();
        let path = scene.path().join("log");
        let log = CellLog::new(File::create(&path).unwrap(), 10);
        ["abcd", "efgh", "ijkl", "m"].iter().for_each(|piece| log.append(piece.as_bytes()));
        assert_eq!(std::fs::read(path).unwrap(), b"abcdefghij");
        assert_eq!(log.dropped_bytes(), 3);
    }

    #[test]
    fn a_log_of_lines_ends_with_the_last_line_that_fits() {
        let scene = tempfile::tempdir().unwrap();
        let path = scene.path().join("log");
        let log = CellLog::new(File::create(&path).unwrap(), 10);
        [1, 123_456_789, 2].iter().for_each(|value| log.append_line(value));
        assert_eq!(std::fs::read(path).unwrap(), b"1\n");
        assert_eq!(log.dropped_bytes(), 12);
    }
}
