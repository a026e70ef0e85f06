//! The files of programs: found where boxes have them, and kept for the box that executes them.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2, readlink};
use nix::sys::stat::{Mode, SFlag, fstat};

use crate::files::sandbox_fs::SandboxFs;
use crate::launch::sandbox::Sandbox;
use cofferdam_core::{ProgramFile, SetupFailure};

/// The largest program that is copied for its box, which only one without a name is.
const KEPT_BYTES_MAX: u64 = 512 << 20;
/// What the kernel appends to the path of a file that has lost its name.
const NAMELESS: &[u8] = b" (deleted)";
/// What whoever may execute it needs.
const ANY_EXECUTE: u32 = 0o111;

/// An executable file of the boxes' root.
#[derive(Debug)]
pub struct LocatedProgram {
    /// Its path inside: absolute, links resolved.
    pub target: PathBuf,
    /// The file, open for reading.
    pub file: OwnedFd,
}

impl Sandbox {
    /// The file that `path`, absolute, leads to in a box that shows no more than every box: a
    /// regular file that somebody may execute. Links lead where they lead inside, and nothing
    /// else is ever opened. A path through what boxes do not show leads nowhere; a link on the
    /// way may, for it is the file it leads to that is executed.
    pub fn locate_program(&self, path: &Path) -> Result<Option<LocatedProgram>, SetupFailure> {
        let step = || format!("find {}", path.display());
        let failed = |errno: Errno| SetupFailure::from_errno(step(), errno as i32);
        let Some(found) = self.executable(path).map_err(failed)? else { return Ok(None) };
        let real = real_path(found.as_fd()).map_err(failed)?;
        let directory = self.directory_of(path).map_err(failed)?;
        let shown = |real: &Path| self.masked.place_inside(real);
        let (Some(_), Some(target)) =
            (directory.map(|real| shown(&real)).transpose()?.flatten(), shown(&real)?)
        else {
            return Ok(None);
        };
        if is_nameless(&real) {
            return Ok(None);
        }
        // Not by its path, which may lead to another one by now.
        let file = open_again(found.as_fd()).map_err(failed)?;
        Ok(Some(LocatedProgram { target, file: file.into() }))
    }

    /// The bytes that `program` takes of its box's file system: a file that has lost its name
    /// cannot be shown there, and is copied.
    pub fn copied_bytes(&self, program: &ProgramFile) -> Result<u64, SetupFailure> {
        let ProgramFile::Open { file, .. } = program else { return Ok(0) };
        let failed = |errno: Errno| SetupFailure::from_errno("open program", errno as i32);
        if !is_nameless(&real_path(file.as_fd()).map_err(failed)?) {
            return Ok(0);
        }
        let bytes = u64::try_from(fstat(file).map_err(failed)?.st_size).unwrap_or(0);
        if bytes > KEPT_BYTES_MAX { Err(failed(Errno::EFBIG)) } else { Ok(bytes) }
    }

    /// Copies into `fs` at most `bytes_max` of `program`, for which there is room, where it was to
    /// be copied; gives what is executed in its place.
    pub fn keep_program(
        &self,
        program: ProgramFile,
        bytes_max: u64,
        fs: &SandboxFs,
    ) -> Result<ProgramFile, SetupFailure> {
        match program {
            ProgramFile::Open { file, .. } if bytes_max > 0 => {
                // Read from its start, wherever whoever looked at it has got to.
                let file = open_again(file.as_fd())
                    .map_err(|errno| SetupFailure::from_errno("open program", errno as i32))?;
                Ok(ProgramFile::At(fs.keep_program(file.take(bytes_max))?))
            }
            program => Ok(program),
        }
    }

    /// What `path` leads to, to be looked at, if it is an executable.
    fn executable(&self, path: &Path) -> nix::Result<Option<OwnedFd>> {
        let Some(found) = self.look_up(path, OFlag::empty())? else { return Ok(None) };
        let stat = fstat(&found)?;
        let is_regular = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
        Ok((is_regular && stat.st_mode & ANY_EXECUTE != 0).then_some(found))
    }

    /// Where on the host the directory is that `path` is in.
    fn directory_of(&self, path: &Path) -> nix::Result<Option<PathBuf>> {
        let Some(directory) = path.parent() else { return Ok(None) };
        let found = self.look_up(directory, OFlag::O_DIRECTORY)?;
        found.map(|directory| real_path(directory.as_fd())).transpose()
    }

    /// What `path` leads to below the root, where there is something; nothing is opened by it.
    fn look_up(&self, path: &Path, flags: OFlag) -> nix::Result<Option<OwnedFd>> {
        let flags = flags | OFlag::O_PATH | OFlag::O_CLOEXEC;
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        match openat2(&self.root, path, OpenHow::new().flags(flags).resolve(resolve)) {
            Ok(found) => Ok(Some(found)),
            Err(
                Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP | Errno::ENAMETOOLONG,
            ) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// The path on the host of what `file` is open on.
fn real_path(file: BorrowedFd<'_>) -> nix::Result<PathBuf> {
    readlink(&descriptor_path(file)).map(PathBuf::from)
}

fn is_nameless(real: &Path) -> bool {
    real.as_os_str().as_bytes().ends_with(NAMELESS)
}

/// `file` once more, for reading, at its start.
fn open_again(file: BorrowedFd<'_>) -> nix::Result<File> {
    open(&descriptor_path(file), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
}

fn descriptor_path(file: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
