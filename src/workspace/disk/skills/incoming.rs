//! An archive that is being received.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use nix::unistd::{fsync, getegid, geteuid};
use uuid::Uuid;

use crate::store::{StoreDir, errno_of};
use crate::workspace::disk::store_quota::{
    DIRECTORY_CHARGE, StoreQuota, StoreReservation, file_charge,
};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::files::error::engine_error;
use cofferdam_tree::files::{
    ArchiveLimits, DirectoryDigest, Spool, digest_directory, judge_tree, unpack_tree,
};
use cofferdam_tree::{Owner, StopCheck, TreeLimits, remove_tree};

/// Bytes copied at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// The end of the name of an unpacked archive.
const TREE: &str = ".tree";

/// An archive that is being received. Dropping it leaves nothing.
#[derive(Debug)]
pub(super) struct IncomingSkill<'store> {
    directory: &'store StoreDir,
    pub(super) name: String,
    pub(super) room: StoreReservation,
}

/// An unpacked archive. Dropping it leaves nothing.
#[derive(Debug)]
struct UnpackedSkill<'store> {
    directory: &'store StoreDir,
    name: String,
    tree: StoreDir,
}

impl<'store> IncomingSkill<'store> {
    /// Receives `source`, of at most `bytes_max` bytes, and writes it to the disk.
    pub(super) fn receive(
        directory: &'store StoreDir,
        quota: &StoreQuota,
        source: &mut dyn Read,
        bytes_max: u64,
    ) -> Result<Self, EngineError> {
        let name = Uuid::new_v4().simple().to_string();
        let mut file = directory.create_file(&name)?;
        let mut incoming = Self { directory, name, room: quota.reservation() };
        incoming.copy(source, &mut file, bytes_max)?;
        fsync(&file).map_err(|errno| directory.error("fsync", &incoming.name, errno))?;
        Ok(incoming)
    }

    fn copy(
        &mut self,
        source: &mut dyn Read,
        file: &mut File,
        bytes_max: u64,
    ) -> Result<(), EngineError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bytes = 0_u64;
        loop {
            let count = match source.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let words = format!("the archive cannot be received: {error}");
                    return Err(EngineError::new(EngineCode::IoFailed, words));
                }
            };
            bytes = bytes.saturating_add(count as u64);
            if bytes > bytes_max {
                let words = format!("an archive of more than {bytes_max} bytes");
                let error = EngineError::new(EngineCode::TooLarge, words);
                return Err(error.with("bytes_max", bytes_max));
            }
            self.room.raise_to(file_charge(bytes))?;
            let piece = buffer.get(..count).unwrap_or_default();
            file.write_all(piece)
                .map_err(|error| self.directory.error("write", &self.name, errno_of(&error)))?;
        }
    }

    /// The digest of the archive's files, which are unpacked for it.
    pub(super) fn digest(
        &self,
        quota: &StoreQuota,
        limits: ArchiveLimits,
    ) -> Result<DirectoryDigest, EngineError> {
        let opened = self.directory.open_file(&self.name);
        let (file, _) = opened.map_err(|fault| fault.at(self.directory.path_of(&self.name)))?;
        let spool = Spool::of(file).map_err(engine_error)?;
        let unpacked = UnpackedSkill::make(self.directory, format!("{}{TREE}", self.name))?;
        let contents = judge_tree(unpacked.fd(), &spool, limits).map_err(engine_error)?;
        let mut room = quota.reservation();
        // The files, and for each the rest of its last block. The limits bound the directories.
        let blocks = contents.files.saturating_add(1).saturating_mul(DIRECTORY_CHARGE);
        room.raise_to(contents.bytes.saturating_add(blocks))?;
        let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        unpack_tree(unpacked.fd(), &spool, owner, limits).map_err(engine_error)?;
        let limits = TreeLimits { bytes_max: u64::MAX, ..TreeLimits::default() };
        digest_directory(unpacked.fd(), ".".as_ref(), &limits, StopCheck::never())
            .map_err(engine_error)
    }
}

impl Drop for IncomingSkill<'_> {
    fn drop(&mut self) {
        // A published archive has moved away.
        let _ = self.directory.unlink(&self.name);
    }
}

impl<'store> UnpackedSkill<'store> {
    fn make(directory: &'store StoreDir, name: String) -> Result<Self, EngineError> {
        let tree = directory.own_child(&name)?;
        Ok(Self { directory, name, tree })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.tree.fd()
    }
}

impl Drop for UnpackedSkill<'_> {
    fn drop(&mut self) {
        let removed = remove_tree(self.directory.fd(), OsStr::new(&self.name));
        if !removed.is_ok_and(|removal| removal.left == 0) {
            log::warn!("an unpacked skill stays until the next start");
        }
    }
}
