//! The new files of a commit, written beside a directory's own entries before the first step.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{
    FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, mkdirat, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, Whence, fchownat, linkat, lseek, symlinkat};

use super::part::{CommitPart, open_parent};
use super::plan::{CommitPlan, NewContents, StagedFile};
use crate::cli::check::exec::overlay::changes::text_at;
use crate::cli::check::exec::overlay::states::NodeKind;
use crate::evaluation::patch::entry::{open_file, split};
use cofferdam_sandbox::engine::copy_own_attributes;
use cofferdam_tree::{StopCheck, remove_tree};

/// Every temporary name in a directory begins with this.
pub const PREFIX: &str = ".cofferdam-";
/// The permission bits and the sticky bit.
const MODE_BITS: u32 = 0o1777;

/// The directory with the new files, at the top of the directory that is changed. It is removed when this is
/// dropped, unless a journal needs it.
#[derive(Debug)]
pub struct Staging<'a> {
    top: BorrowedFd<'a>,
    name: String,
    directory: OwnedFd,
    is_needed: bool,
}

impl<'a> Staging<'a> {
    /// Writes the new files of `plan`.
    pub fn fill(
        part: &CommitPart<'a>,
        plan: &CommitPlan,
        stop: StopCheck<'_>,
    ) -> Result<Self, Errno> {
        let top = part.directory.as_fd();
        let name = format!("{PREFIX}{}", random_id().map_err(|error| errno_of(&error))?);
        mkdirat(top, name.as_str(), Mode::S_IRWXU)?;
        let directory = open_parent(top, name.as_bytes())?;
        let staging = Self { top, name, directory, is_needed: false };
        for (number, file) in plan.staged.iter().enumerate() {
            if stop.is_set() {
                return Err(Errno::ECANCELED);
            }
            staging.write(part, number, file, stop)?;
        }
        Ok(staging)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Says whether a journal needs it.
    pub fn set_needed(&mut self, is_needed: bool) {
        self.is_needed = is_needed;
    }

    fn write(
        &self,
        part: &CommitPart<'_>,
        number: usize,
        file: &StagedFile,
        stop: StopCheck<'_>,
    ) -> Result<(), Errno> {
        let (name, all) = (number.to_string(), AtFlags::empty());
        match &file.source {
            NewContents::NameOfStaged(first) => {
                let first = first.to_string();
                linkat(&self.directory, first.as_str(), &self.directory, name.as_str(), all)
            }
            NewContents::NameOf(path) => {
                let (parent, last) = split(path);
                let parent = open_parent(self.top, parent)?;
                linkat(&parent, OsStr::from_bytes(last), &self.directory, name.as_str(), all)
            }
            NewContents::Copied => {
                self.make(part, &name, file, stop)?;
                let (seconds, nanoseconds) = file.state.modified;
                let time = TimeSpec::new(seconds, nanoseconds);
                let itself = UtimensatFlags::NoFollowSymlink;
                utimensat(&self.directory, name.as_str(), &time, &time, itself)
            }
        }
    }

    fn make(
        &self,
        part: &CommitPart<'_>,
        name: &str,
        file: &StagedFile,
        stop: StopCheck<'_>,
    ) -> Result<(), Errno> {
        let merged = part.overlaid.merged();
        let mode = Mode::from_bits_truncate(file.state.mode & MODE_BITS);
        let special = |kind| {
            mknodat(&self.directory, name, kind, Mode::S_IRUSR, 0)?;
            self.own(name, file)?;
            fchmodat(&self.directory, name, mode, FchmodatFlags::FollowSymlink)
        };
        match file.state.kind {
            NodeKind::File => {
                let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
                let private = Mode::S_IRUSR | Mode::S_IWUSR;
                let mut made = File::from(openat(&self.directory, name, flags, private)?);
                let mut source = open_file(merged, &file.path)?;
                copy_sparse(&mut source, &mut made, stop).map_err(|error| errno_of(&error))?;
                keep_attributes(part, file, &made)?;
                self.own(name, file)?;
                // After the owner, whose change clears bits, and after the access list, whose mask is one of them.
                fchmod(&made, mode)
            }
            NodeKind::Link => {
                let text = text_at(merged, &file.path)?;
                symlinkat(OsStr::from_bytes(&text), &self.directory, name)?;
                self.own(name, file)
            }
            NodeKind::Fifo => special(SFlag::S_IFIFO),
            NodeKind::Socket => special(SFlag::S_IFSOCK),
            NodeKind::Directory | NodeKind::Device => Err(Errno::EINVAL),
        }
    }

    fn own(&self, name: &str, file: &StagedFile) -> Result<(), Errno> {
        let (uid, gid) = (Uid::from_raw(file.owner.0), Gid::from_raw(file.owner.1));
        fchownat(&self.directory, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        if !self.is_needed {
            // What stays is removed by the next commit.
            let _ = remove_tree(self.top, OsStr::new(&self.name));
        }
    }
}

/// Gives `made` the access list and attributes of the file that it replaces, as if that were written in place.
fn keep_attributes(part: &CommitPart<'_>, file: &StagedFile, made: &File) -> Result<(), Errno> {
    match open_file(part.overlaid.base(), &file.path) {
        Ok(replaced) if replaced.metadata().is_ok_and(|metadata| metadata.is_file()) => {
            copy_own_attributes(replaced.as_fd(), made.as_fd()).map_err(|error| errno_of(&error))
        }
        // It is new, or replaces what is no file.
        _ => Ok(()),
    }
}

/// Whether `name` is one of ours.
pub fn is_staging(name: &[u8]) -> bool {
    let id = name.strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
    id.len() == 16 && id.iter().all(u8::is_ascii_hexdigit)
}

/// Copies what `from` holds; holes stay holes.
fn copy_sparse(from: &mut File, to: &mut File, stop: StopCheck<'_>) -> io::Result<()> {
    let length = from.metadata()?.len();
    let mut at = 0;
    while at < length {
        let offset = i64::try_from(at).map_err(io::Error::other)?;
        let start = match lseek(&*from, offset, Whence::SeekData) {
            Ok(start) => u64::try_from(start).unwrap_or(length),
            // Only a hole is left.
            Err(Errno::ENXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let offset = i64::try_from(start).map_err(io::Error::other)?;
        let end = u64::try_from(lseek(&*from, offset, Whence::SeekHole)?).unwrap_or(length);
        from.seek(SeekFrom::Start(start))?;
        to.seek(SeekFrom::Start(start))?;
        stop.copy(&mut from.by_ref().take(end.saturating_sub(start)), to)?;
        at = end.max(start + 1);
    }
    to.set_len(length)
}

fn random_id() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::ECANCELED, Errno::from_raw)
}
