//! The hidden files of a Case, which may change while they are read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag};
use nix::unistd::{getegid, geteuid};

use crate::case::cell::FILE_BYTES_MAX;
use crate::case::grade::grader::GradeError;
use cofferdam_tree::files::{
    EntryType, FileArea, FileLocation, ListRange, PathRule, WorkspaceRoot, list,
};
use cofferdam_tree::{Owner, open_scoped};

/// The most files of one directory.
const FILES_MAX: usize = 10_000;
/// How deep they lie.
const DEPTH_MAX: usize = 64;
const EXECUTE: u32 = 0o111;
const EXECUTABLE_MODE: u32 = 0o755;
const PLAIN_MODE: u32 = 0o644;

/// The directory with the hidden files. Nothing outside of it is read, whatever links lie in it.
#[derive(Debug)]
pub struct HiddenFiles {
    directory: File,
}

/// A hidden file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenFile {
    /// Its bytes.
    pub content: Vec<u8>,
    /// Its permissions in a Cell: 0755 if it can be executed, else 0644.
    pub mode: u32,
}

impl HiddenFiles {
    /// Those in `directory`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(directory: &Path) -> Result<Self, GradeError> {
        let opened = File::open(directory);
        let directory = opened.map_err(|error| hidden(Path::new("."), error.to_string()))?;
        Ok(Self { directory })
    }

    /// Reads the file at `path`. A link is followed if it stays in the directory.
    ///
    /// # Errors
    /// There is no regular file of at most [`FILE_BYTES_MAX`] bytes.
    pub fn read(&self, path: &Path) -> Result<HiddenFile, GradeError> {
        use std::os::unix::fs::PermissionsExt;

        // A fifo does not block.
        let file = self.open_at(path, OFlag::O_NONBLOCK)?;
        let failed = |error: io::Error| hidden(path, error.to_string());
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(hidden(path, "is no regular file"));
        }
        let mut content = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 > FILE_BYTES_MAX {
            return Err(hidden(path, format!("is longer than {FILE_BYTES_MAX} bytes")));
        }
        let is_executable = metadata.permissions().mode() & EXECUTE != 0;
        let mode = if is_executable { EXECUTABLE_MODE } else { PLAIN_MODE };
        Ok(HiddenFile { content, mode })
    }

    /// The paths below `path` of the files of that directory, sorted; `None` if it is no directory. A link counts as a
    /// file.
    ///
    /// # Errors
    /// It cannot be listed, or has too many files.
    pub fn below(&self, path: &Path) -> Result<Option<Vec<PathBuf>>, GradeError> {
        let opened = self.open_at(path, OFlag::O_NONBLOCK)?;
        if !opened.metadata().map_err(|error| hidden(path, error.to_string()))?.is_dir() {
            return Ok(None);
        }
        let rule = PathRule::default();
        let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let root = WorkspaceRoot { directory: opened.as_fd(), rule: &rule, owner };
        let range = ListRange { depth: DEPTH_MAX, entries_max: FILES_MAX, after: None };
        let page = list(&root, &FileLocation::top(FileArea::Whole), range);
        let page = page.map_err(|error| hidden(path, error.to_string()))?;
        if page.next.is_some() {
            return Err(hidden(path, format!("has more than {FILES_MAX} entries")));
        }
        let is_file = |kind| matches!(kind, EntryType::File | EntryType::Link);
        let files = page.entries.into_iter().filter(|entry| is_file(entry.entry_type));
        Ok(Some(files.map(|entry| entry.location.relative().to_owned()).collect()))
    }

    fn open_at(&self, path: &Path, flags: OFlag) -> Result<File, GradeError> {
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | flags).resolve(resolve);
        let opened: Result<OwnedFd, _> = open_scoped(&self.directory, path, how);
        opened.map(File::from).map_err(|errno| hidden(path, errno.desc()))
    }
}

/// The error about the hidden file at `path`.
pub(super) fn hidden(path: &Path, reason: impl Into<String>) -> GradeError {
    GradeError::Hidden { path: path.display().to_string(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn hidden_files_are_read_inside_their_directory_only() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("case");
        fs::create_dir_all(top.join("d/e")).unwrap();
        fs::write(place.path().join("outside"), "x").unwrap();
        fs::write(top.join("d/plain"), "plain").unwrap();
        fs::write(top.join("d/e/run"), "run").unwrap();
        fs::set_permissions(top.join("d/e/run"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink("d/plain", top.join("link")).unwrap();
        symlink("../outside", top.join("out")).unwrap();
        symlink(place.path().join("outside"), top.join("d/absolute")).unwrap();
        nix::unistd::mkfifo(&top.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let hidden = HiddenFiles::open(&top).unwrap();
        for (path, wanted) in [
            ("d/plain", Some(("plain", 0o644))),
            ("d/e/run", Some(("run", 0o755))),
            ("link", Some(("plain", 0o644))),
            ("out", None),
            ("d/absolute", None),
            ("../outside", None),
            ("fifo", None),
            ("d", None),
            ("gone", None),
        ] {
            let found = hidden.read(Path::new(path)).ok();
            let wanted =
                wanted.map(|(text, mode): (&str, _)| HiddenFile { content: text.into(), mode });
            assert_eq!(found, wanted, "{path}");
        }
        let below = hidden.below(Path::new("d")).unwrap().unwrap();
        assert_eq!(below, ["absolute", "e/run", "plain"].map(PathBuf::from));
        assert_eq!(hidden.below(Path::new("d/plain")).unwrap(), None);
        hidden.below(Path::new("gone")).unwrap_err();
        HiddenFiles::open(&top.join("gone")).unwrap_err();
    }
}
