//! Copies a directory tree into a fresh directory, everything owned by one owner.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{
    FileStat, Mode, SFlag, UtimensatFlags, fchmod, fstat, fstatat, futimens, mkdirat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Whence, fchownat, lseek, symlinkat};

use super::beneath;
use super::budget::{Budget, TreeLimits};
use super::descent::Descent;
use super::error::{During, Fault, WorkspaceError};
use super::owner::Owner;
use super::status;
use super::walk::{Event, Kind, Walk, as_path};

/// Bytes read and written at a time.
const BUFFER_BYTES: usize = 64 * 1024;
/// The unit of `st_blocks`.
const BLOCK_BYTES: i64 = 512;

/// What a copy holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files and symbolic links.
    pub files: u64,
    /// The contents of the regular files, holes not counted.
    pub bytes: u64,
    /// Fifos, sockets, devices and mount points of the source; the copy lacks them.
    pub skipped: u64,
}

/// Copies what is in the directory `source` into the directory `target`, which must be empty
/// and nobody else's yet; `target` itself takes the mode and time of `source`.
///
/// Regular files keep their permission bits, without setuid, setgid and sticky; directories
/// too, and their owner may always read, write and search them. Symbolic links are copied as
/// text, never followed. Modification times are kept. `.git` is passed over at any depth.
/// A file with several names becomes several files; extended attributes are not copied.
///
/// # Errors
/// The first operation that failed or limit that was crossed; `target` then holds a part.
pub fn copy_tree(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    owner: Owner,
    limits: &TreeLimits,
) -> Result<Copied, WorkspaceError> {
    let root = fstat(source).during("stat").map_err(|fault| fault.at("."))?;
    let mut walk =
        Walk::to_read(source, limits.entries_max).during("list").map_err(|fault| fault.at("."))?;
    let mut copy = Copy::new(target, owner, limits);
    while let Some(event) = walk.advance()? {
        copy.take(&walk, &event)?;
    }
    copy.settle(target, Attributes::of_directory(&root)).map_err(|fault| fault.at("."))?;
    Ok(Copied { bytes: copy.budget.bytes(), ..copy.copied })
}

/// The permission bits and the time a copy keeps.
#[derive(Debug, Clone, Copy)]
struct Attributes {
    mode: Mode,
    modified: TimeSpec,
}

impl Attributes {
    fn of_file(stat: &FileStat) -> Self {
        let modified = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
        Self { mode: status::file_mode(stat), modified }
    }

    fn of_directory(stat: &FileStat) -> Self {
        Self { mode: status::directory_mode(stat), ..Self::of_file(stat) }
    }
}

/// A copy in progress: the target's side, step by step with the walk over the source.
struct Copy<'target> {
    target: Descent<'target>,
    /// Those of the directories the copy is in: set on the way out, since every entry made in
    /// a directory changes its time.
    attributes: Vec<Attributes>,
    owner: Owner,
    budget: Budget,
    copied: Copied,
    buffer: Vec<u8>,
}

impl<'target> Copy<'target> {
    fn new(target: BorrowedFd<'target>, owner: Owner, limits: &TreeLimits) -> Self {
        Self {
            target: Descent::new(target),
            attributes: Vec::new(),
            owner,
            budget: Budget::new(*limits),
            copied: Copied::default(),
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    fn take(&mut self, walk: &Walk<'_>, event: &Event) -> Result<(), WorkspaceError> {
        let from = walk.directory();
        match event {
            Event::Enter { name, stat } => self
                .count(walk)
                .and_then(|()| self.enter(name, stat))
                .map_err(|fault| fault.at(walk.path())),
            Event::Leave { name } => {
                self.leave().map_err(|fault| fault.at(walk.path().join(as_path(name))))
            }
            Event::Entry { name, kind } => self
                .count(walk)
                .and_then(|()| match kind {
                    Kind::Regular => self.file(from, name),
                    Kind::Symlink => self.symlink(from, name),
                    Kind::Special => self.skip(),
                })
                .map_err(|fault| fault.at(walk.path().join(as_path(name)))),
            Event::Unopened { name, errno } => self
                .count(walk)
                .and_then(|()| self.unopened(*errno))
                .map_err(|fault| fault.at(walk.path().join(as_path(name)))),
        }
    }

    fn count(&mut self, walk: &Walk<'_>) -> Result<(), Fault> {
        Ok(self.budget.take_entry(walk.depth())?)
    }

    fn skip(&mut self) -> Result<(), Fault> {
        self.copied.skipped += 1;
        Ok(())
    }

    fn unopened(&mut self, errno: Errno) -> Result<(), Fault> {
        match errno {
            Errno::EXDEV => self.skip(),
            _ => Err(errno).during("open"),
        }
    }

    fn enter(&mut self, name: &CStr, stat: &FileStat) -> Result<(), Fault> {
        mkdirat(self.target.current(), name, Mode::S_IRWXU).during("mkdir")?;
        let made = beneath::open_directory(self.target.current(), name).during("open")?;
        let made_stat = fstat(&made).during("stat")?;
        self.target.descend(made, &made_stat);
        self.attributes.push(Attributes::of_directory(stat));
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Fault> {
        if let Some(attributes) = self.attributes.pop() {
            self.settle(self.target.current(), attributes)?;
        }
        self.target.ascend().during("return from")
    }

    fn file(&mut self, from: BorrowedFd<'_>, name: &CStr) -> Result<(), Fault> {
        let source = match beneath::open_for_reading(from, name) {
            Err(errno) => return self.unopened(errno),
            Ok(source) => File::from(source),
        };
        let stat = fstat(&source).during("stat")?;
        if status::file_type(&stat) != SFlag::S_IFREG {
            return self.skip();
        }
        let target = beneath::create_file(self.target.current(), name).during("create")?;
        let target = File::from(target);
        self.contents(&source, &target, &stat)?;
        self.settle(target.as_fd(), Attributes::of_file(&stat))?;
        self.copied.files += 1;
        Ok(())
    }

    /// Copies as many bytes as the file had when it was opened, its holes as holes.
    fn contents(&mut self, source: &File, target: &File, stat: &FileStat) -> Result<(), Fault> {
        if stat.st_blocks.saturating_mul(BLOCK_BYTES) >= stat.st_size {
            return self.range(source, target, 0, stat.st_size);
        }
        let mut end = 0;
        while let Some(start) = seek(source, end, Whence::SeekData)? {
            if start >= stat.st_size {
                break;
            }
            let hole = seek(source, start, Whence::SeekHole)?.unwrap_or(stat.st_size);
            end = hole.min(stat.st_size);
            self.range(source, target, start, end)?;
        }
        nix::unistd::ftruncate(target, stat.st_size).during("truncate")
    }

    /// Copies the bytes from `start` to `end`, or to the end of a file that has shrunk.
    fn range(&mut self, source: &File, target: &File, start: i64, end: i64) -> Result<(), Fault> {
        let mut at = u64::try_from(start).unwrap_or(0);
        let end = u64::try_from(end).unwrap_or(0);
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let wanted = left.min(self.buffer.len());
            let got = source.read_at(&mut self.buffer[..wanted], at).during("read")?;
            if got == 0 {
                break;
            }
            self.budget.take_bytes(got as u64)?;
            target.write_all_at(&self.buffer[..got], at).during("write")?;
            at += got as u64;
        }
        Ok(())
    }

    fn symlink(&mut self, from: BorrowedFd<'_>, name: &CStr) -> Result<(), Fault> {
        let stat = fstatat(from, name, AtFlags::AT_SYMLINK_NOFOLLOW).during("stat")?;
        let text = readlinkat(from, name).during("readlink")?;
        let target = self.target.current();
        let (uid, gid) = (self.owner.uid(), self.owner.gid());
        let modified = Attributes::of_file(&stat).modified;
        symlinkat(text.as_os_str(), target, name).during("symlink")?;
        fchownat(target, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
            .during("chown")?;
        let no_follow = UtimensatFlags::NoFollowSymlink;
        utimensat(target, name, &modified, &modified, no_follow).during("utimens")?;
        self.copied.files += 1;
        Ok(())
    }

    /// Gives a finished copy its owner, mode and time; in this order, since each call undoes
    /// what a later one sets.
    fn settle(&self, copy: BorrowedFd<'_>, attributes: Attributes) -> Result<(), Fault> {
        self.owner.take(copy).during("chown")?;
        fchmod(copy, attributes.mode).during("chmod")?;
        futimens(copy, &attributes.modified, &attributes.modified).during("utimens")
    }
}

/// The next data or hole of `file` from `offset` on; nothing when there is none before its end.
fn seek(file: &File, offset: i64, whence: Whence) -> Result<Option<i64>, Fault> {
    match lseek(file, offset, whence) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno).during("seek"),
    }
}

#[cfg(test)]
mod tests;
