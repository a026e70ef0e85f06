//! The layout of a workspace, and its file `metadata.json`.

use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, fstat};

use super::error::{FilesError, OnPath};
use super::location::{FileArea, FileLocation};
use super::read::{open_regular, read_at_most, size};
use super::resolve::{DIRECTORY_MODE, MissingParents, WorkspaceRoot};
use super::stage::private_dir::{Occupied, replace};
use super::write::TempFile;
use crate::status;

/// The directories of a workspace.
const DIRECTORIES: [&str; 4] = ["skills", "work", "runs", "out"];
/// The file with a workspace's records.
pub const METADATA_NAME: &str = "metadata.json";
/// The longest `metadata.json` that is read, bytes.
pub const METADATA_BYTES_MAX: usize = 1024 * 1024;
pub(super) const METADATA_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);
/// The mode of `/tmp`: 1777.
const TMP_MODE: Mode = Mode::S_IRWXU.union(Mode::S_IRWXG).union(Mode::S_IRWXO).union(Mode::S_ISVTX);

/// Makes the directories of a workspace that are missing: `workspace` with `skills`, `work`, `runs` and `out`, `tmp`
/// and `tmp/home`; and `metadata.json` with the contents `metadata`, if there is nothing by that name.
///
/// # Errors
/// [`FilesError::NotRegular`] if a file has the name of a directory, and those of writing.
pub fn ensure_layout(root: &WorkspaceRoot<'_>, metadata: &[u8]) -> Result<(), FilesError> {
    for (area, mode) in [(FileArea::Workspace, DIRECTORY_MODE), (FileArea::Tmp, TMP_MODE)] {
        let path = FileLocation::top(area).shown();
        let made = root.make_directory(root.directory, area.name().as_ref(), mode);
        let (opened, _) = made.on("mkdir", &path)?;
        check_directory(&opened, &path)?;
    }
    let in_workspace = DIRECTORIES.map(workspace_file);
    let home = FileLocation::top(FileArea::Tmp).join(Path::new("home"));
    for location in in_workspace.iter().chain([&home]) {
        let parent = root.parent(location, MissingParents::Refuse)?;
        let made = root.make_directory(parent.directory.as_fd(), &parent.name, DIRECTORY_MODE);
        let (opened, _) = made.on("mkdir", &parent.path)?;
        check_directory(&opened, &parent.path)?;
    }
    let location = metadata_location();
    let parent = root.parent(&location, MissingParents::Refuse)?;
    if parent.entry()?.is_none() {
        save_metadata(root, metadata)?;
    }
    Ok(())
}

fn check_directory(opened: impl AsFd, path: &Path) -> Result<(), FilesError> {
    let stat = fstat(opened).on("stat", path)?;
    match status::file_type(&stat) {
        SFlag::S_IFDIR => Ok(()),
        _ => Err(FilesError::not_regular(path)),
    }
}

/// The place of `metadata.json`.
pub(super) fn metadata_location() -> FileLocation {
    workspace_file(METADATA_NAME)
}

fn workspace_file(name: &str) -> FileLocation {
    FileLocation::top(FileArea::Workspace).join(Path::new(name))
}

/// Reads `metadata.json`. A link, a special file, a directory and a file of more than [`METADATA_BYTES_MAX`] count as
/// absent: programs may replace it.
///
/// # Errors
/// The file could not be read.
pub fn load_metadata(root: &WorkspaceRoot<'_>) -> Result<Option<Vec<u8>>, FilesError> {
    let location = metadata_location();
    let found = match root.find(&location, false) {
        Err(FilesError::NotFound { .. }) => return Ok(None),
        found => found?,
    };
    if found.file_type() != SFlag::S_IFREG {
        return Ok(None);
    }
    let ((file, stat), _) = open_regular(found)?;
    if size(&stat) > METADATA_BYTES_MAX as u64 {
        return Ok(None);
    }
    // One byte more, in case that it grows.
    let mut content = vec![0; METADATA_BYTES_MAX + 1];
    let count = read_at_most(&file, &mut content).on("read", &location.shown())?;
    content.truncate(count);
    content.shrink_to_fit();
    Ok((content.len() <= METADATA_BYTES_MAX).then_some(content))
}

/// Replaces `metadata.json`, whatever has the name, by a file with mode 0600.
///
/// # Errors
/// Those of writing. What was there is unchanged then.
pub fn save_metadata(root: &WorkspaceRoot<'_>, metadata: &[u8]) -> Result<(), FilesError> {
    let location = metadata_location();
    let parent = root.parent(&location, MissingParents::Refuse)?;
    let mut temp = TempFile::create(&parent)?;
    temp.fill(&mut &*metadata)?;
    temp.settle(METADATA_MODE, root.owner)?;
    temp.place(|name| match replace(&parent, name, Occupied::Rename) {
        // A directory has the name.
        Err(FilesError::NotRegular { .. }) => replace(&parent, name, Occupied::Remove),
        replaced => replaced,
    })
}
