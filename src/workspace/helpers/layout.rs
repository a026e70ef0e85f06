//! The directories of a workspace.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::constants::{DIR_OUT, DIR_RUNS, DIR_SKILLS, DIR_WORK, META_FILE_NAME};
use super::metadata::{WorkspaceMetadata, save_metadata};
use crate::workspace::error::{EngineCode, EngineError};

/// Creates the directories of a workspace in `root`, and its metadata, where they are missing.
/// Returns the absolute path of each directory by its name.
///
/// # Errors
/// A directory cannot be created, as where a file has its name.
pub fn ensure_layout(root: &Path) -> Result<BTreeMap<String, PathBuf>, EngineError> {
    let root = std::path::absolute(root).map_err(|error| cannot(root, &error))?;
    let mut paths = BTreeMap::new();
    for name in [DIR_SKILLS, DIR_WORK, DIR_RUNS, DIR_OUT] {
        let path = root.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&path);
        made.map_err(|error| cannot(&path, &error))?;
        paths.insert(name.to_owned(), path);
    }
    let file = root.join(META_FILE_NAME);
    match file.symlink_metadata() {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            save_metadata(&root, &WorkspaceMetadata::new(SystemTime::now()))?;
        }
        Err(error) => return Err(cannot(&file, &error)),
    }
    Ok(paths)
}

/// Refuses a root that is no directory.
pub(super) fn check_root(root: &Path) -> Result<(), EngineError> {
    let words = || format!("{}: not a directory", root.display());
    if root.is_dir() { Ok(()) } else { Err(EngineError::invalid("root", words())) }
}

fn cannot(path: &Path, error: &io::Error) -> EngineError {
    EngineError::new(EngineCode::IoFailed, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::tempdir;

    use super::*;

    #[test]
    fn the_directories_and_the_metadata_are_made_where_they_are_missing() {
        let parent = tempdir().unwrap();
        let root = parent.path().join("a/b");
        let paths = ensure_layout(&root).unwrap();
        let names: Vec<&str> = paths.keys().map(String::as_str).collect();
        assert_eq!(names, ["out", "runs", "skills", "work"]);
        for (name, path) in &paths {
            assert_eq!(*path, root.join(name));
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o755);
        }
        let metadata = fs::read(root.join(META_FILE_NAME)).unwrap();
        fs::write(root.join("out/kept"), "").unwrap();
        assert_eq!(ensure_layout(&root).unwrap(), paths);
        assert!(root.join("out/kept").exists());
        assert_eq!(fs::read(root.join(META_FILE_NAME)).unwrap(), metadata);
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let root = tempdir().unwrap();
        fs::write(root.path().join("work"), "").unwrap();
        assert_eq!(ensure_layout(root.path()).unwrap_err().code, EngineCode::IoFailed);
        let file = root.path().join("work");
        assert_eq!(ensure_layout(&file).unwrap_err().code, EngineCode::IoFailed);
    }
}
