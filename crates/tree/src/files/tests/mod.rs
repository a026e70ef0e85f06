//! Tests of a workspace's files on a real file system.

mod changing;
mod collecting;
mod generated;
mod racing;
mod reading;
mod staging;
mod writing;

use std::borrow::Borrow;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::{FileLocation, FilesError, PathRule, StageBatch, WorkspaceRoot, ensure_layout};
use crate::testing::{TENANT, chmod, directory, in_memory};

/// A workspace with a directory beside it that nothing may reach.
pub(super) struct TestWorkspace {
    directory: TempDir,
    root: OwnedFd,
    rule: PathRule,
}

impl TestWorkspace {
    pub(super) fn new() -> Self {
        Self::shown_at("/workspace")
    }

    pub(super) fn shown_at(path: &str) -> Self {
        Self::in_directory(in_memory(), path)
    }

    pub(super) fn in_directory(workspace: TempDir, path: &str) -> Self {
        fs::create_dir(workspace.path().join("root")).unwrap();
        fs::create_dir(workspace.path().join("outside")).unwrap();
        fs::write(workspace.path().join("outside/secret"), "secret").unwrap();
        let root = directory(&workspace.path().join("root"));
        let workspace =
            Self { directory: workspace, root, rule: PathRule::shown_at(path).unwrap() };
        ensure_layout(&workspace.root(), b"{}").unwrap();
        workspace
    }

    pub(super) fn root(&self) -> WorkspaceRoot<'_> {
        WorkspaceRoot { directory: self.root.as_fd(), rule: &self.rule, owner: TENANT }
    }

    pub(super) fn at(&self, path: &str) -> FileLocation {
        self.rule.locate(path.as_bytes()).unwrap()
    }

    /// The path on the host of a path in the workspace.
    pub(super) fn host(&self, path: &str) -> PathBuf {
        self.directory.path().join("root").join(self.at(path).path_in_root())
    }

    pub(super) fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    /// Writes as a program of the workspace would.
    pub(super) fn plant(&self, path: &str, content: &str) {
        let host = self.host(path);
        let above = host.parent().unwrap();
        if !above.exists() {
            fs::create_dir_all(above).unwrap();
            self.give_away(above);
        }
        fs::write(&host, content).unwrap();
        chown(&host, Some(TENANT.uid), Some(TENANT.gid)).unwrap();
    }

    fn give_away(&self, directory: &Path) {
        let mut here = Some(directory);
        while let Some(path) =
            here.filter(|path| path.starts_with(self.directory.path().join("root")))
        {
            chown(path, Some(TENANT.uid), Some(TENANT.gid)).unwrap();
            here = path.parent();
        }
    }

    pub(super) fn link(&self, path: &str, text: impl AsRef<Path>) {
        symlink(text, self.host(path)).unwrap();
    }

    /// Makes a fifo, a socket and a device.
    pub(super) fn specials(&self) -> [&'static str; 3] {
        mkfifo(&self.host("work/fifo"), Mode::S_IRWXU).unwrap();
        let (mode, null) = (Mode::S_IRWXU, makedev(1, 3));
        mknod(&self.host("work/device"), SFlag::S_IFCHR, mode, null).unwrap();
        mknod(&self.host("work/socket"), SFlag::S_IFSOCK, mode, 0).unwrap();
        ["work/fifo", "work/device", "work/socket"]
    }

    /// Makes a read-only tree as staging does.
    pub(super) fn read_only(&self, path: &str) {
        fs::create_dir_all(self.host(path).join("inner")).unwrap();
        fs::write(self.host(path).join("inner/file"), "kept").unwrap();
        for (below, mode) in [("inner/file", 0o444), ("inner", 0o555), ("", 0o555)] {
            chmod(&self.host(path).join(below), mode);
            chown(self.host(path).join(below), Some(0), Some(0)).unwrap();
        }
    }

    pub(super) fn content(&self, path: &str) -> String {
        let mut text = String::new();
        let mut opened = super::get(&self.root(), &self.at(path)).unwrap();
        opened.file.read_to_string(&mut text).unwrap();
        text
    }

    pub(super) fn put(&self, path: &str, content: &str) -> Result<bool, FilesError> {
        super::put_file(&self.root(), &self.at(path), &mut content.as_bytes(), 0)
    }

    /// The names in a directory, sorted; temporary ones too.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let names = fs::read_dir(self.host(path)).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(super) fn assert_outside_untouched(&self) {
        let names: Vec<_> = fs::read_dir(self.outside()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(fs::read(self.outside().join("secret")).unwrap(), b"secret");
    }
}

/// Installs a batch that `fill` has filled.
pub(super) fn staged<T>(
    root: &WorkspaceRoot<'_>,
    fill: impl FnOnce(&mut StageBatch<'_>) -> Result<T, FilesError>,
) -> Result<T, FilesError> {
    let mut batch = StageBatch::new(root);
    let filled = fill(&mut batch)?;
    batch.install()?;
    Ok(filled)
}

/// The variant of an error, for comparisons.
pub(super) fn word<T>(result: impl Borrow<Result<T, FilesError>>) -> &'static str {
    match result.borrow() {
        Ok(_) => "ok",
        Err(FilesError::PathEscape { .. }) => "path_escape",
        Err(FilesError::PathTooLong { .. }) => "path_too_long",
        Err(FilesError::NotFound { .. }) => "not_found",
        Err(FilesError::ThroughLink { .. }) => "through_link",
        Err(FilesError::NotRegular { .. }) => "not_regular",
        Err(FilesError::Exists { .. }) => "exists",
        Err(FilesError::ReadOnly { .. }) => "read_only",
        Err(FilesError::NotEmpty { .. }) => "not_empty",
        Err(FilesError::IntoItself { .. }) => "into_itself",
        Err(FilesError::DiskFull { .. }) => "disk_full",
        Err(FilesError::TooLarge { .. }) => "too_large",
        Err(FilesError::ArchiveUnsafe { .. }) => "archive_unsafe",
        Err(FilesError::BadPattern { .. }) => "bad_pattern",
        Err(FilesError::Stopped) => "stopped",
        Err(FilesError::Input(_)) => "input",
        Err(FilesError::Output(_)) => "output",
        Err(FilesError::Io { .. }) => "io",
    }
}
