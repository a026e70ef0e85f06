//! Copies the contents of one file. Holes stay holes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::unistd::{Whence, lseek};

use crate::error::{During, WorkspaceFault};

/// Bytes read and written at a time.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;
/// The unit of `st_blocks`.
const BLOCK_BYTES: i64 = 512;

/// A part of a file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'buffer> {
    /// Bytes that were read. They are written after the callback returns.
    Data(&'buffer [u8]),
    /// The length of a hole in bytes.
    Hole(u64),
}

/// Copies files one after the other with one buffer.
#[derive(Debug)]
pub(crate) struct FileCopier {
    buffer: Vec<u8>,
}

impl Default for FileCopier {
    fn default() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES] }
    }
}

impl FileCopier {
    /// Copies as many bytes as the file had when it was opened, or fewer if it has shrunk. Calls
    /// `take` with each piece, in order.
    pub(crate) fn contents(
        &mut self,
        source: &File,
        target: &File,
        stat: &FileStat,
        mut take: impl FnMut(Piece<'_>) -> Result<(), WorkspaceFault>,
    ) -> Result<(), WorkspaceFault> {
        let size = stat.st_size;
        if stat.st_blocks.saturating_mul(BLOCK_BYTES) >= size {
            return self.range((source, target), 0, size, &mut take);
        }
        let mut end = 0;
        while let Some(start) = seek(source, end, Whence::SeekData)? {
            if start >= size {
                break;
            }
            take_hole(end, start, &mut take)?;
            let hole = seek(source, start, Whence::SeekHole)?.unwrap_or(size);
            end = hole.min(size);
            self.range((source, target), start, end, &mut take)?;
        }
        take_hole(end, size, &mut take)?;
        nix::unistd::ftruncate(target, size).during("truncate")
    }

    /// Copies the bytes from `start` to `end`, or to the end of the file if it has shrunk.
    fn range(
        &mut self,
        (source, target): (&File, &File),
        start: i64,
        end: i64,
        take: &mut impl FnMut(Piece<'_>) -> Result<(), WorkspaceFault>,
    ) -> Result<(), WorkspaceFault> {
        let mut at = u64::try_from(start).unwrap_or(0);
        let end = u64::try_from(end).unwrap_or(0);
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let wanted = left.min(self.buffer.len());
            let got = source.read_at(&mut self.buffer[..wanted], at).during("read")?;
            if got == 0 {
                break;
            }
            take(Piece::Data(&self.buffer[..got]))?;
            target.write_all_at(&self.buffer[..got], at).during("write")?;
            at += got as u64;
        }
        Ok(())
    }
}

fn take_hole(
    start: i64,
    end: i64,
    take: &mut impl FnMut(Piece<'_>) -> Result<(), WorkspaceFault>,
) -> Result<(), WorkspaceFault> {
    match u64::try_from(end.saturating_sub(start)) {
        Ok(0) | Err(_) => Ok(()),
        Ok(bytes) => take(Piece::Hole(bytes)),
    }
}

/// The next data or hole of `file` from `offset` on; `None` if its end comes first.
pub(crate) fn seek(
    file: &File,
    offset: i64,
    whence: Whence,
) -> Result<Option<i64>, WorkspaceFault> {
    match lseek(file, offset, whence) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno).during("seek"),
    }
}

/// The next piece without holes from `at` on, of a file of `size` bytes.
pub(crate) fn data_after(
    file: &File,
    at: i64,
    size: i64,
) -> Result<Option<(i64, i64)>, WorkspaceFault> {
    if at >= size {
        return Ok(None);
    }
    let Some(start) = seek(file, at, Whence::SeekData)?.filter(|start| *start < size) else {
        return Ok(None);
    };
    let end = seek(file, start, Whence::SeekHole)?.unwrap_or(size);
    Ok(Some((start, end.min(size))))
}
