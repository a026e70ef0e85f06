//! The target side of a collection.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::copy::copy_file::BUFFER_BYTES;
use crate::error::{During, WorkspaceFault};
use crate::status;
use crate::walk::dir_stack::DirStack;
use crate::walk::open_beneath;
use crate::walk::path_stack::PathStack;
use cofferdam_core::job::OmittedReason;
use cofferdam_core::values::digest::Digest;

/// A regular file of a workspace, open.
pub(super) struct OpenedArtifact {
    file: File,
    /// Its length when it was opened, bytes.
    pub(super) bytes: u64,
}

impl OpenedArtifact {
    /// Opens `name` if it is a regular file, whatever type the directory listed.
    pub(super) fn regular(directory: BorrowedFd<'_>, name: &CStr) -> Result<Self, OmittedReason> {
        let file = match open_beneath::open_for_reading_quietly(directory, name) {
            Ok(file) => File::from(file),
            // A mount, a link or a socket.
            Err(Errno::EXDEV | Errno::ELOOP | Errno::ENXIO) => {
                return Err(OmittedReason::NotARegularFile);
            }
            Err(_) => return Err(OmittedReason::Unreadable),
        };
        let stat = fstat(&file).map_err(|_| OmittedReason::Unreadable)?;
        if status::file_type(&stat) != SFlag::S_IFREG {
            return Err(OmittedReason::NotARegularFile);
        }
        Ok(Self { file, bytes: u64::try_from(stat.st_size).unwrap_or(0) })
    }
}

/// The target tree. Directories are created when a file is kept in them.
pub(super) struct ArtifactStore<'into> {
    into: DirStack<'into>,
    buffer: Vec<u8>,
}

impl<'into> ArtifactStore<'into> {
    pub(super) fn new(into: BorrowedFd<'into>) -> Self {
        Self { into: DirStack::new(into), buffer: vec![0; BUFFER_BYTES] }
    }

    /// Returns to the directory `path`, if it was created.
    pub(super) fn leave(&mut self, path: &PathStack) -> Result<(), WorkspaceFault> {
        if self.into.depth() > path.depth() {
            self.into.ascend().during("return from")?;
        }
        Ok(())
    }

    /// Keeps the first `wanted` bytes of `opened` as `name`, the last part of `path`. Returns their
    /// number and digest, or `None` if the file cannot be read.
    pub(super) fn keep(
        &mut self,
        path: &PathStack,
        name: &CStr,
        opened: &OpenedArtifact,
        wanted: u64,
    ) -> Result<Option<(u64, String)>, WorkspaceFault> {
        self.make_directories(path)?;
        let target = open_beneath::create_file(self.into.current(), name).during("create")?;
        let kept = self.contents(opened, &mut File::from(target), wanted)?;
        if kept.is_none() {
            let no_directory = UnlinkatFlags::NoRemoveDir;
            unlinkat(self.into.current(), name, no_directory).during("unlink")?;
        }
        Ok(kept)
    }

    /// Creates the directories above `path`.
    fn make_directories(&mut self, path: &PathStack) -> Result<(), WorkspaceFault> {
        for level in self.into.depth()..path.depth().saturating_sub(1) {
            let part = path.part(level);
            mkdirat(self.into.current(), part, Mode::S_IRWXU).during("mkdir")?;
            let made = open_beneath::open_directory(self.into.current(), part).during("open")?;
            let stat = fstat(&made).during("stat")?;
            self.into.descend(made, &stat);
        }
        Ok(())
    }

    fn contents(
        &mut self,
        opened: &OpenedArtifact,
        target: &mut File,
        wanted: u64,
    ) -> Result<Option<(u64, String)>, WorkspaceFault> {
        let mut digest = Digest::default();
        let mut at = 0;
        while at < wanted {
            let left = usize::try_from(wanted - at).unwrap_or(usize::MAX);
            let piece = left.min(self.buffer.len());
            let Ok(got) = opened.file.read_at(&mut self.buffer[..piece], at) else {
                return Ok(None);
            };
            if got == 0 {
                break;
            }
            digest.update(&self.buffer[..got]);
            target.write_all(&self.buffer[..got]).during("write")?;
            at += got as u64;
        }
        Ok(Some((at, digest.finish())))
    }
}
