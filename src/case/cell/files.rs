//! Files that are put into a Cell and read from it, while its commands may change them.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::{FileStat, SFlag, fstat};

use super::error::{ExecCode, ExecError};
use super::layout::{CellLayout, CellPlace};
use cofferdam_core::weakened::{self, Wall};
use cofferdam_tree::files::{
    EntryType, FileArea, FileInfo, FileLocation, FilesError, ListRange, PathRule, WorkspaceRoot,
    delete, list, put_file,
};
use cofferdam_tree::{Owner, open_scoped};

/// The longest file that is put or read, bytes.
pub const FILE_BYTES_MAX: u64 = 100 << 20;
/// The most entries of one directory that are listed.
pub const LIST_ENTRIES_MAX: usize = 200_000;
const OWNER_READ: u32 = 0o400;
const OWNER_WRITE: u32 = 0o200;

/// An entry of a directory of a Cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellEntry {
    /// Its name.
    pub name: String,
    /// Its type; links are not followed.
    pub entry_type: EntryType,
    /// The size of a regular file, bytes.
    pub bytes: u64,
}

/// The files of a Cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellFiles<'cell> {
    /// The directory with all of them.
    pub(super) root: BorrowedFd<'cell>,
    /// Where they are.
    pub(super) layout: &'cell CellLayout,
    /// Their owner.
    pub(super) owner: Owner,
}

impl CellFiles<'_> {
    /// Writes `content` to the file at `path`.
    pub(super) fn put(self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        if content.len() as u64 > FILE_BYTES_MAX {
            return Err(too_large(path));
        }
        let CellPlace { in_root, .. } = self.locate(path)?;
        match self.open(&in_root, OFlag::O_PATH | OFlag::O_NOFOLLOW, ResolveFlag::empty()) {
            Ok(there) => check_replaced(&stat(&there, path)?, path)?,
            // Nothing is there, or a link on the way, which writing refuses.
            Err(Errno::ENOENT | Errno::ELOOP | Errno::EXDEV | Errno::ENOTDIR) => {}
            Err(errno) => return Err(ExecError::of_errno(errno, path)),
        }
        let rule = PathRule::default();
        let root = WorkspaceRoot { directory: self.root, rule: &rule, owner: self.owner };
        let location = FileLocation::top(FileArea::Whole).join(&in_root);
        put_file(&root, &location, &mut &*content, mode)
            .map_err(|error| ExecError::of_files(&error, path))?;
        Ok(())
    }

    /// Removes what is at `path`, a directory with everything in it.
    pub(super) fn remove(self, path: &str) -> Result<(), ExecError> {
        let CellPlace { in_root, .. } = self.locate(path)?;
        if in_root.iter().count() < 2 {
            let words = "is a directory of the Cell itself";
            return Err(ExecError::of_path(ExecCode::UnsafePath, path, words));
        }
        let rule = PathRule::default();
        let root = WorkspaceRoot { directory: self.root, rule: &rule, owner: self.owner };
        let location = FileLocation::top(FileArea::Whole).join(&in_root);
        match delete(&root, &location, true) {
            Ok(()) | Err(FilesError::NotFound { .. }) => Ok(()),
            Err(error) => Err(ExecError::of_files(&error, path)),
        }
    }

    /// The entries of the directory at `path`, sorted by name.
    pub(super) fn list(self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        let CellPlace { in_root, .. } = self.locate(path)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let opened = self.open(&in_root, flags, ResolveFlag::RESOLVE_NO_SYMLINKS);
        let opened = opened.map_err(|errno| ExecError::of_errno(errno, path))?;
        let rule = PathRule::default();
        let root = WorkspaceRoot { directory: opened.as_fd(), rule: &rule, owner: self.owner };
        let range = ListRange { depth: 1, entries_max: LIST_ENTRIES_MAX, after: None };
        let page = list(&root, &FileLocation::top(FileArea::Whole), range)
            .map_err(|error| ExecError::of_files(&error, path))?;
        if page.next.is_some() {
            let words = format!("has more than {LIST_ENTRIES_MAX} entries");
            return Err(ExecError::of_path(ExecCode::TooLarge, path, words));
        }
        let entry = |info: FileInfo| {
            let name = info.location.name()?.to_str()?.to_owned();
            Some(CellEntry { name, entry_type: info.entry_type, bytes: info.bytes })
        };
        Ok(page.entries.into_iter().filter_map(entry).collect())
    }

    /// The content of the file at `path`.
    pub(super) fn get(self, path: &str) -> Result<Vec<u8>, ExecError> {
        let CellPlace { in_root, .. } = self.locate(path)?;
        let found = self.open(&in_root, OFlag::O_PATH, ResolveFlag::empty());
        let found = found.map_err(|errno| ExecError::of_errno(errno, path))?;
        check_regular(&stat(&found, path)?, OWNER_READ, path)?;
        // Not by its path, at which something else may be by now.
        let own = format!("/proc/self/fd/{}", found.as_raw_fd());
        let failed = |error: std::io::Error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            ExecError::of_errno(errno, path)
        };
        let mut content = Vec::new();
        let file = File::open(own).map_err(failed)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 > FILE_BYTES_MAX {
            return Err(too_large(path));
        }
        Ok(content)
    }

    fn locate(self, path: &str) -> Result<CellPlace, ExecError> {
        let outside = || ExecError::of_path(ExecCode::UnsafePath, path, "is not in the Cell");
        self.layout.locate(path).ok_or_else(outside)
    }

    /// Opens what is at `path` below the root. Links are followed that stay below, unless `resolve` forbids it.
    fn open(self, path: &Path, flags: OFlag, resolve: ResolveFlag) -> Result<OwnedFd, Errno> {
        let beneath = match weakened::lacks(Wall::Beneath) {
            true => ResolveFlag::empty(),
            false => ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        };
        let how = OpenHow::new().flags(OFlag::O_CLOEXEC | flags).resolve(beneath | resolve);
        open_scoped(self.root, path, how)
    }
}

fn stat(opened: &OwnedFd, path: &str) -> Result<FileStat, ExecError> {
    fstat(opened).map_err(|errno| ExecError::of_errno(errno, path))
}

/// Fails unless a file may replace what has this status.
fn check_replaced(there: &FileStat, path: &str) -> Result<(), ExecError> {
    match file_type(there) {
        SFlag::S_IFLNK => Ok(()),
        _ => check_regular(there, OWNER_WRITE, path),
    }
}

/// Fails unless this is a regular file whose owner has the permission `needed`. The supervisor could do more.
fn check_regular(there: &FileStat, needed: u32, path: &str) -> Result<(), ExecError> {
    match file_type(there) {
        SFlag::S_IFDIR => Err(ExecError::of_path(ExecCode::IsDirectory, path, "is a directory")),
        SFlag::S_IFREG if there.st_mode & needed != 0 => Ok(()),
        SFlag::S_IFREG => {
            Err(ExecError::of_path(ExecCode::PermissionDenied, path, "has not that permission"))
        }
        _ => Err(ExecError::of_path(ExecCode::UnsafePath, path, "is no regular file")),
    }
}

fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

fn too_large(path: &str) -> ExecError {
    let words = format!("is longer than {FILE_BYTES_MAX} bytes");
    ExecError::of_path(ExecCode::TooLarge, path, words)
}
