//! The executable files of programs: located in the root, and copied if they have no name.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, readlink};
use nix::sys::stat::{Mode, SFlag, fstat};

use crate::files::masked_paths::MaskedPaths;
use crate::files::root_directory::RootDirectory;
use crate::files::sandbox_fs::SandboxFs;
use cofferdam_core::{ProgramFile, SetupFailure};
use cofferdam_tree::open_scoped;

/// The largest program without a name, bytes: it is copied into its sandbox.
const COPIED_BYTES_MAX: u64 = 512 << 20;
/// What the kernel appends to the path of a file that has lost its name.
const NAMELESS: &[u8] = b" (deleted)";
/// A file with none of these bits cannot be executed by anybody.
const ANY_EXECUTE: u32 = 0o111;

/// An executable file of the sandboxes' root.
#[derive(Debug)]
pub struct LocatedProgram {
    /// Its path inside: absolute, links resolved.
    pub target: PathBuf,
    /// The file, open for reading.
    pub file: OwnedFd,
}

/// Locates the file that `path`, absolute, leads to in a sandbox without binds: a regular file with
/// an execute bit.
///
/// Links lead where they lead inside, and no other file is ever opened. Returns `None` if the path
/// or the file it leads to is in a directory that sandboxes do not show. A link on the way may be
/// in such a directory, since what is executed is the file it leads to.
pub fn locate_program(
    root: &RootDirectory,
    masked: &MaskedPaths,
    path: &Path,
) -> Result<Option<LocatedProgram>, SetupFailure> {
    let step = || format!("find {}", path.display());
    let failed = |errno: Errno| SetupFailure::from_errno(step(), errno as i32);
    let Some(found) = executable(root, path).map_err(failed)? else { return Ok(None) };
    let real = real_path(found.as_fd()).map_err(failed)?;
    let directory = directory_of(root, path).map_err(failed)?;
    let shown = |real: &Path| masked.path_inside(real);
    let (Some(_), Some(target)) =
        (directory.map(|real| shown(&real)).transpose()?.flatten(), shown(&real)?)
    else {
        return Ok(None);
    };
    if is_nameless(&real) {
        return Ok(None);
    }
    // By its descriptor: its path may lead to another file by now.
    let file = open_again(found.as_fd()).map_err(failed)?;
    Ok(Some(LocatedProgram { target, file: file.into() }))
}

/// Opens the regular file that `path`, absolute, leads to below the root, and returns its path there, links
/// resolved. Returns `None` if the file cannot be read.
pub fn open_file(root: &RootDirectory, path: &Path) -> Option<(PathBuf, File)> {
    let found = look_up(root, path, OFlag::empty()).ok().flatten()?;
    let is_regular = fstat(&found).ok()?.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    let real = real_path(found.as_fd()).ok().filter(|_| is_regular)?;
    let inside = Path::new("/").join(real.strip_prefix(root.path()).ok()?);
    Some((inside, open_again(found.as_fd()).ok()?))
}

/// The bytes that `program` takes of its sandbox's file system: a file that has lost its name
/// cannot be mounted there, and is copied.
pub fn copied_bytes(program: &ProgramFile) -> Result<u64, SetupFailure> {
    let ProgramFile::Open { file, .. } = program else { return Ok(0) };
    let failed = |errno: Errno| SetupFailure::from_errno("open program", errno as i32);
    if !is_nameless(&real_path(file.as_fd()).map_err(failed)?) {
        return Ok(0);
    }
    let bytes = u64::try_from(fstat(file).map_err(failed)?.st_size).unwrap_or(0);
    if bytes > COPIED_BYTES_MAX { Err(failed(Errno::EFBIG)) } else { Ok(bytes) }
}

/// Copies at most `bytes_max` of `program` into `fs`, unless that is 0; returns what to execute.
pub fn keep_program(
    program: ProgramFile,
    bytes_max: u64,
    fs: &SandboxFs,
) -> Result<ProgramFile, SetupFailure> {
    match program {
        ProgramFile::Open { file, .. } if bytes_max > 0 => {
            // From its start, wherever the offset of the given descriptor is.
            let file = open_again(file.as_fd())
                .map_err(|errno| SetupFailure::from_errno("open program", errno as i32))?;
            Ok(ProgramFile::At(fs.keep_program(file.take(bytes_max))?))
        }
        program => Ok(program),
    }
}

/// Opens what `path` leads to as a path only, if it is executable.
fn executable(root: &RootDirectory, path: &Path) -> nix::Result<Option<OwnedFd>> {
    let Some(found) = look_up(root, path, OFlag::empty())? else { return Ok(None) };
    let stat = fstat(&found)?;
    let is_regular = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    Ok((is_regular && stat.st_mode & ANY_EXECUTE != 0).then_some(found))
}

/// The path on the host of the directory that holds `path`.
fn directory_of(root: &RootDirectory, path: &Path) -> nix::Result<Option<PathBuf>> {
    let Some(directory) = path.parent() else { return Ok(None) };
    let found = look_up(root, directory, OFlag::O_DIRECTORY)?;
    found.map(|directory| real_path(directory.as_fd())).transpose()
}

/// A path descriptor for what `path` leads to below the root, if there is anything.
fn look_up(root: &RootDirectory, path: &Path, flags: OFlag) -> nix::Result<Option<OwnedFd>> {
    let flags = flags | OFlag::O_PATH | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    match open_scoped(root, path, OpenHow::new().flags(flags).resolve(resolve)) {
        Ok(found) => Ok(Some(found)),
        Err(
            Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP | Errno::ENAMETOOLONG,
        ) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The path on the host of the open `file`.
fn real_path(file: BorrowedFd<'_>) -> nix::Result<PathBuf> {
    readlink(&descriptor_path(file)).map(PathBuf::from)
}

fn is_nameless(real: &Path) -> bool {
    real.as_os_str().as_bytes().ends_with(NAMELESS)
}

/// Opens `file` once more for reading, at its start.
fn open_again(file: BorrowedFd<'_>) -> nix::Result<File> {
    open(&descriptor_path(file), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
}

fn descriptor_path(file: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
