//! The directories of the host that clients may name files of.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};

use crate::error::{During, WorkspaceError};
use crate::files::error::{FilesError, OnPath};
use crate::files::location::parts;
use crate::status;
use crate::walk::open_beneath;
use cofferdam_core::weakened::{self, Wall};

/// Opened at the start of a service, so that it stays the directory that the operator named.
#[derive(Debug)]
struct HostRoot {
    path: PathBuf,
    directory: OwnedFd,
}

/// The directories below which clients may name files of the host.
#[derive(Debug, Default)]
pub struct HostRoots(Vec<HostRoot>);

/// What a path of the host names.
#[derive(Debug)]
pub enum HostEntry {
    /// A regular file, open for reading.
    File {
        /// The file.
        file: File,
        /// Its permissions.
        mode: u32,
        /// Its size, bytes.
        bytes: u64,
    },
    /// A directory.
    Directory(OwnedFd),
}

impl HostRoots {
    /// Opens the directories at these absolute paths.
    ///
    /// # Errors
    /// One is no directory, or has a link on its path.
    pub fn open(paths: &[PathBuf]) -> Result<Self, WorkspaceError> {
        let open = |path: &PathBuf| {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
            let opened = openat2(AT_FDCWD, path.as_path(), how).during("open");
            let directory = opened.map_err(|fault| fault.at(path))?;
            Ok(HostRoot { path: plain(path.as_os_str().as_bytes()), directory })
        };
        paths.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Opens the file or directory at the absolute path `path`.
    ///
    /// # Errors
    /// [`FilesError::PathEscape`] for a path that lies in no root or has `..`, [`FilesError::ThroughLink`] for a link
    /// anywhere on it, [`FilesError::NotFound`], and [`FilesError::NotRegular`] for a special file, which is not
    /// opened.
    pub fn entry(&self, path: &str) -> Result<HostEntry, FilesError> {
        let shown = Path::new(path);
        let escape = || FilesError::PathEscape { path: shown.to_owned() };
        let leaves = parts(path.as_bytes()).any(|part| part == b"..");
        if !path.starts_with('/') || path.contains('\0') || leaves {
            return Err(escape());
        }
        let whole = plain(path.as_bytes());
        let (root, below) = self.root_of(&whole).ok_or_else(escape)?;
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let resolve = match weakened::lacks(Wall::Beneath) {
            true => ResolveFlag::empty(),
            false => ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS,
        };
        let opened = openat2(&root.directory, below, OpenHow::new().flags(flags).resolve(resolve));
        let opened = match opened {
            // Nothing is found below a file.
            Err(Errno::ENOTDIR) => Err(Errno::ENOENT),
            opened => opened,
        };
        entry_of(opened.on("open", shown)?, shown)
    }

    /// The innermost root that `path` lies in, and the rest of the path.
    fn root_of<'a>(&self, path: &'a Path) -> Option<(&HostRoot, &'a Path)> {
        let around = |root| -> Option<(&HostRoot, &Path)> {
            let root: &HostRoot = root;
            Some((root, path.strip_prefix(&root.path).ok()?))
        };
        self.0.iter().filter_map(around).min_by_key(|(_, below)| below.as_os_str().len())
    }
}

fn entry_of(opened: OwnedFd, shown: &Path) -> Result<HostEntry, FilesError> {
    let stat = fstat(&opened).on("stat", shown)?;
    match status::file_type(&stat) {
        SFlag::S_IFDIR => Ok(HostEntry::Directory(opened)),
        SFlag::S_IFREG => {
            let file = open_beneath::reopen_for_reading(opened.as_fd()).on("open", shown)?;
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            Ok(HostEntry::File { file: File::from(file), mode: stat.st_mode & 0o777, bytes })
        }
        SFlag::S_IFLNK => Err(FilesError::of(Errno::ELOOP, "open", shown)),
        _ => Err(FilesError::not_regular(shown)),
    }
}

/// The absolute path without empty parts and `.`.
fn plain(path: &[u8]) -> PathBuf {
    let mut whole = PathBuf::from("/");
    whole.extend(parts(path).map(OsStr::from_bytes));
    whole
}
