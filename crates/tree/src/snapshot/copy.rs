//! The target side of a snapshot.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};

use super::manifest::Manifest;
use super::selection::{Selection, SnapshotStep};
use crate::copy::attributes::{Attributes, make_link};
use crate::copy::copy_file::{FileCopier, Piece};
use crate::error::{During, WorkspaceError, WorkspaceFault};
use crate::status;
use crate::walk::dir_stack::DirStack;
use crate::walk::open_beneath;
use crate::walk::path_stack::PathStack;
use crate::walk::stop_check::StopCheck;
use cofferdam_core::job::ExcludedGroup;
use cofferdam_core::values::digest::Digest;
use cofferdam_core::values::owner::Owner;

const ZEROS: [u8; 4096] = [0; 4096];

/// A snapshot in progress: the target side of the selection.
pub(super) struct SnapshotCopy<'target> {
    target: DirStack<'target>,
    /// The attributes of the directories that the copy is in. They are set when a directory is left,
    /// because each new entry changes its time.
    attributes: Vec<Attributes>,
    path: PathStack,
    owner: Owner,
    copier: FileCopier,
    manifest: Manifest,
}

impl<'target> SnapshotCopy<'target> {
    pub(super) fn new(target: BorrowedFd<'target>, owner: Owner) -> Self {
        Self {
            target: DirStack::new(target),
            attributes: Vec::new(),
            path: PathStack::default(),
            owner,
            copier: FileCopier::default(),
            manifest: Manifest::default(),
        }
    }

    /// The digest of all copied entries.
    pub(super) fn finish(self) -> String {
        self.manifest.finish()
    }

    pub(super) fn take(
        &mut self,
        selection: &mut Selection<'_>,
        step: &SnapshotStep,
    ) -> Result<(), WorkspaceError> {
        match step {
            SnapshotStep::Directory { name, stat } => {
                self.path.enter(name);
                self.directory(name, stat).map_err(|fault| fault.at(self.path.shown()))
            }
            SnapshotStep::File { name } => {
                self.path.enter(name);
                let taken = self.file(selection, name);
                self.come_back(taken)
            }
            SnapshotStep::Link { name, stat, text } => {
                self.path.enter(name);
                let taken = self.link(selection, name, stat, text);
                self.come_back(taken)
            }
            SnapshotStep::Leave => {
                let left = self.leave();
                self.come_back(left)
            }
        }
    }

    /// Leaves the current entry, and adds its path to an error.
    fn come_back(&mut self, taken: Result<(), WorkspaceFault>) -> Result<(), WorkspaceError> {
        let taken = taken.map_err(|fault| fault.at(self.path.shown()));
        self.path.leave();
        taken
    }

    fn directory(&mut self, name: &CStr, stat: &FileStat) -> Result<(), WorkspaceFault> {
        mkdirat(self.target.current(), name, Mode::S_IRWXU).during("mkdir")?;
        let made = open_beneath::open_directory(self.target.current(), name).during("open")?;
        let made_stat = fstat(&made).during("stat")?;
        self.target.descend(made, &made_stat);
        let attributes = Attributes::of_directory(stat);
        self.attributes.push(attributes);
        self.manifest.directory(attributes.mode, self.path.bytes());
        Ok(())
    }

    fn leave(&mut self) -> Result<(), WorkspaceFault> {
        if let Some(attributes) = self.attributes.pop() {
            attributes.settle(self.target.current(), self.owner)?;
        }
        self.target.ascend().during("return from")
    }

    fn file(&mut self, selection: &mut Selection<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        let source = match open_beneath::open_for_reading_quietly(selection.directory(), name) {
            // A file with another mounted over it.
            Err(Errno::EXDEV) => {
                selection.leave_out(ExcludedGroup::Special);
                return Ok(());
            }
            Err(errno) => return selection.changed(errno, "open"),
            Ok(opened) => File::from(opened),
        };
        let stat = fstat(&source).during("stat")?;
        if status::file_type(&stat) != SFlag::S_IFREG {
            selection.leave_out(ExcludedGroup::Special);
            return Ok(());
        }
        selection.count_file(u64::try_from(stat.st_size).unwrap_or(0))?;
        let target = open_beneath::create_file(self.target.current(), name).during("create")?;
        let target = File::from(target);
        let digest = self.contents((&source, &target), &stat, selection.stop())?;
        let attributes = Attributes::of_file(&stat);
        attributes.settle(target.as_fd(), self.owner)?;
        self.manifest.file(attributes.mode, self.path.bytes(), &digest);
        Ok(())
    }

    /// Copies a file's contents and returns their digest. Fails if the file has shrunk.
    fn contents(
        &mut self,
        (source, target): (&File, &File),
        stat: &FileStat,
        stop: StopCheck<'_>,
    ) -> Result<String, WorkspaceFault> {
        let mut digest = Digest::default();
        let mut bytes: u64 = 0;
        self.copier.contents(source, target, stat, |piece| {
            stop.check()?;
            bytes += match piece {
                Piece::Data(data) => {
                    digest.update(data);
                    data.len() as u64
                }
                Piece::Hole(hole) => {
                    update_with_zeros(&mut digest, hole);
                    hole
                }
            };
            Ok(())
        })?;
        match u64::try_from(stat.st_size) {
            Ok(size) if size == bytes => Ok(digest.finish()),
            _ => Err(Errno::ESTALE).during("read"),
        }
    }

    fn link(
        &mut self,
        selection: &mut Selection<'_>,
        name: &CStr,
        stat: &FileStat,
        text: &OsStr,
    ) -> Result<(), WorkspaceFault> {
        selection.count_file(0)?;
        make_link(self.target.current(), name, text, stat, self.owner)?;
        self.manifest.link(self.path.bytes(), text.as_bytes());
        Ok(())
    }
}

fn update_with_zeros(digest: &mut Digest, mut bytes: u64) {
    while bytes > 0 {
        let piece = usize::try_from(bytes).map_or(ZEROS.len(), |bytes| bytes.min(ZEROS.len()));
        digest.update(&ZEROS[..piece]);
        bytes -= piece as u64;
    }
}
