//! Unpacks an archive that was judged.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, fstat};

use super::judge::{ArchiveContents, LinkReach, judge, path_in_archive};
use super::reader::{ArchiveLimits, ArchivedEntry, ArchivedKind, EntryStream, TarReader};
use super::spool::Spool;
use crate::files::error::{FilesError, OnPath};
use crate::files::location::{FileArea, FileLocation, PathRule};
use crate::files::read::open_regular;
use crate::files::resolve::{MissingParents, WorkspaceRoot};
use crate::files::stage::copy::service_owner;
use crate::files::stage::link::put_link;
use crate::files::stage::private_dir::Occupied;
use crate::files::write::{TempFile, check_replaceable};
use crate::status;
use cofferdam_core::values::owner::Owner;
use cofferdam_core::weakened::{self, Wall};

/// Unpacks `spool` into the directory `to`, which is made if it is missing. It merges: directories that exist stay as
/// they are, files and links are replaced. Set-id bits are dropped, a hard link becomes a copy.
///
/// # Errors
/// [`FilesError::ArchiveUnsafe`] and [`FilesError::TooLarge`] for the archive, [`FilesError::ThroughLink`],
/// [`FilesError::NotRegular`] and [`FilesError::ReadOnly`] for its place: nothing is written then.
/// [`FilesError::DiskFull`] can leave whole files.
pub fn unpack(
    root: &WorkspaceRoot<'_>,
    to: &FileLocation,
    spool: &Spool,
    limits: ArchiveLimits,
) -> Result<ArchiveContents, FilesError> {
    let contents = match weakened::lacks(Wall::Archive) {
        true => ArchiveContents::default(),
        false => judge(root, to, spool, LinkReach::Workspace, limits)?,
    };
    write(root, to, spool, limits)?;
    Ok(contents)
}

/// What `spool` contains, as [`unpack_tree`] judges it. Nothing is written.
///
/// # Errors
/// [`FilesError::ArchiveUnsafe`] and [`FilesError::TooLarge`].
pub fn judge_tree(
    target: BorrowedFd<'_>,
    spool: &Spool,
    limits: ArchiveLimits,
) -> Result<ArchiveContents, FilesError> {
    let rule = PathRule::default();
    let root = WorkspaceRoot { directory: target, rule: &rule, owner: service_owner() };
    judge(&root, &FileLocation::top(FileArea::Whole), spool, LinkReach::Tree, limits)
}

/// Unpacks `spool` into the empty directory `target`, which no program can reach. All links must stay in it.
/// Everything belongs to `owner`.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_tree(
    target: BorrowedFd<'_>,
    spool: &Spool,
    owner: Owner,
    limits: ArchiveLimits,
) -> Result<ArchiveContents, FilesError> {
    let rule = PathRule::default();
    let root = WorkspaceRoot { directory: target, rule: &rule, owner };
    let top = FileLocation::top(FileArea::Whole);
    let contents = judge(&root, &top, spool, LinkReach::Tree, limits)?;
    write(&root, &top, spool, limits)?;
    Ok(contents)
}

fn write(
    root: &WorkspaceRoot<'_>,
    to: &FileLocation,
    spool: &Spool,
    limits: ArchiveLimits,
) -> Result<(), FilesError> {
    let mut reader = TarReader::new(spool, limits);
    if to.name().is_some() {
        write_directory(root, to, 0o755)?;
    }
    while let Some(entry) = reader.advance()? {
        write_entry(root, to, &entry, &mut reader, limits.depth_max)?;
    }
    Ok(())
}

/// Writes one entry, whose contents `contents` reads, below `to`.
pub(super) fn write_entry(
    root: &WorkspaceRoot<'_>,
    to: &FileLocation,
    entry: &ArchivedEntry,
    contents: &mut dyn EntryStream,
    depth_max: usize,
) -> Result<(), FilesError> {
    let refuse = |reason| FilesError::archive(reason, entry.shown());
    let place =
        |path: &[u8]| path_in_archive(path, depth_max).map(|path| to.join(&path)).map_err(refuse);
    let location = place(&entry.path)?;
    match &entry.kind {
        _ if &location == to => Ok(()),
        ArchivedKind::Directory => write_directory(root, &location, entry.mode),
        ArchivedKind::File => write_file(root, &location, entry, contents),
        ArchivedKind::Symlink(text) => {
            let parent = root.parent(&location, MissingParents::Make(&mut Vec::new()))?;
            check_replaceable(&parent)?;
            put_link(root, &parent, OsStr::from_bytes(text), Occupied::Rename)
        }
        ArchivedKind::HardLink(target) => copy_linked(root, &place(target)?, &location),
        ArchivedKind::Special(reason) => Err(refuse(reason)),
    }
}

fn write_directory(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    mode: u32,
) -> Result<(), FilesError> {
    let parent = root.parent(location, MissingParents::Make(&mut Vec::new()))?;
    if parent.entry()?.is_none() {
        parent.check_writable()?;
    }
    let mode = Mode::from_bits_truncate(mode & 0o777) | Mode::S_IRWXU;
    let made = root.make_directory(parent.directory.as_fd(), &parent.name, mode);
    let (opened, _) = made.on("mkdir", &parent.path)?;
    match status::file_type(&fstat(opened).on("stat", &parent.path)?) {
        SFlag::S_IFDIR => Ok(()),
        SFlag::S_IFLNK => Err(FilesError::of(Errno::ELOOP, "mkdir", &parent.path)),
        _ => Err(FilesError::not_regular(&parent.path)),
    }
}

fn write_file(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    entry: &ArchivedEntry,
    mut contents: &mut dyn EntryStream,
) -> Result<(), FilesError> {
    let parent = root.parent(location, MissingParents::Make(&mut Vec::new()))?;
    check_replaceable(&parent)?;
    let mut temp = TempFile::create(&parent)?;
    temp.fill(&mut contents).map_err(of_contents)?;
    temp.set_modified(entry.modified)?;
    temp.settle(Mode::from_bits_truncate(entry.mode & 0o777), root.owner)?;
    temp.install().map(|_| ())
}

/// An error of the archive, which came as one of its contents.
fn of_contents(error: FilesError) -> FilesError {
    match error {
        FilesError::Input(error) => match error.downcast::<FilesError>() {
            Ok(error) => error,
            Err(error) => FilesError::Input(error),
        },
        error => error,
    }
}

/// Copies the file that a hard link names.
fn copy_linked(
    root: &WorkspaceRoot<'_>,
    target: &FileLocation,
    location: &FileLocation,
) -> Result<(), FilesError> {
    let ((mut file, stat), _) = open_regular(root.find(target, false)?)?;
    let parent = root.parent(location, MissingParents::Make(&mut Vec::new()))?;
    check_replaceable(&parent)?;
    let mut temp = TempFile::create(&parent)?;
    temp.fill(&mut file)?;
    temp.set_modified(u64::try_from(stat.st_mtime).unwrap_or(0))?;
    temp.settle(status::file_mode(&stat), root.owner)?;
    temp.install().map(|_| ())
}
