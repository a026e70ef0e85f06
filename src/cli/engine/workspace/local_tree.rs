//! A directory of this host as an archive.

use std::fs::File;
use std::io::{self, BufWriter, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::{self, JoinHandle};

use nix::unistd::{Gid, Uid};

use crate::cli::failure::{Failure, error_words};
use cofferdam_tree::files::{FileArea, FileLocation, FilesError, PathRule, WorkspaceRoot, pack};
use cofferdam_tree::{Owner, StopCheck, TreeLimits};

/// Bytes written at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The archive of a directory, which a thread packs while it is read. A read fails if the directory cannot
/// be packed, so that no part of an archive looks like a whole one.
#[derive(Debug)]
pub struct LocalTree {
    name: String,
    archive: PipeReader,
    packing: Option<JoinHandle<Result<(), FilesError>>>,
    failure: Option<FilesError>,
}

impl LocalTree {
    /// Begins to pack the directory `path`.
    ///
    /// # Errors
    /// It is not a directory, or cannot be opened.
    pub fn pack(path: &Path) -> Result<Self, Failure> {
        Self::pack_within(path, TreeLimits::default())
    }

    fn pack_within(path: &Path, limits: TreeLimits) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let begin = || {
            let directory = File::open(path)?;
            if !directory.metadata()?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            let (archive, output) = io::pipe()?;
            let packing = thread::Builder::new().name("pack".to_owned());
            let packing = packing.spawn(move || pack_into(&directory, &limits, output))?;
            Ok((archive, packing))
        };
        let (archive, packing) = begin().map_err(|error: io::Error| {
            Failure::option("DIR", format!("{name}: {}", error_words(&error)))
        })?;
        Ok(Self { name, archive, packing: Some(packing), failure: None })
    }

    /// Fails if the directory could not be packed.
    ///
    /// # Errors
    /// The archive could not be made. A reader that stopped early is no error.
    pub fn finish(self) -> Result<(), Failure> {
        match self.failure {
            None | Some(FilesError::Output(_)) => Ok(()),
            Some(error) => Err(Failure::option("DIR", format!("{}: {error}", self.name))),
        }
    }
}

fn pack_into(directory: &File, limits: &TreeLimits, output: PipeWriter) -> Result<(), FilesError> {
    // The owner of new files; none are made.
    let owner = Owner { uid: Uid::effective().as_raw(), gid: Gid::effective().as_raw() };
    let rule = PathRule::default();
    let root = WorkspaceRoot { directory: directory.as_fd(), rule: &rule, owner };
    let top = FileLocation::top(FileArea::Whole);
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
    pack(&root, &top, limits, StopCheck::never(), &mut output)?;
    output.flush().map_err(FilesError::Output)
}

impl Read for LocalTree {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.archive.read(buffer)?;
        if count == 0
            && !buffer.is_empty()
            && let Some(packing) = self.packing.take()
        {
            let packed = packing.join().map_err(|_| io::Error::other("the archive broke off"))?;
            self.failure = packed.err();
        }
        match self.failure {
            Some(_) => Err(io::Error::other("the directory cannot be packed")),
            None => Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn no_part_of_an_archive_looks_like_a_whole_one() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        for (entries_max, is_whole) in [(2, true), (1, false)] {
            let limits = TreeLimits { entries_max, ..TreeLimits::default() };
            let mut tree = LocalTree::pack_within(directory.path(), limits).unwrap();
            let read = tree.read_to_end(&mut Vec::new());
            assert_eq!(read.is_ok(), is_whole, "{read:?}");
            assert_eq!(tree.finish().is_ok(), is_whole);
        }
    }
}
