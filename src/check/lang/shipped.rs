//! The workspaces that the binary carries, for a service with nothing beside it.
//!
//! They are the folders of `langs/`, without the recipes of the toolchains. A run gets a copy of a
//! workspace, so they have to be a directory before the first run: [`unpack_into`] writes them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// One file of the workspaces.
#[derive(Debug)]
struct ShippedFile {
    /// Its path below the directory of all workspaces.
    path: &'static str,
    /// Whether it may be executed.
    executable: bool,
    bytes: &'static [u8],
}

// The build script's: `FILES`, and `DIGEST`, a hash of all of it.
include!(concat!(env!("OUT_DIR"), "/langs.rs"));

/// Writes the workspaces to a directory of their own below `parent` and returns its path.
///
/// The name of the directory holds a digest of its content. Processes of one version therefore
/// share it, and another version has another. A directory that lacks a file is written again.
///
/// # Errors
///
/// Fails where `parent` cannot be written to.
pub fn unpack_into(parent: &Path) -> io::Result<PathBuf> {
    let directory = parent.join(format!("langs-{DIGEST:016x}"));
    if is_whole(&directory) {
        return Ok(directory);
    }
    // Written under a temporary name, so that no process ever sees a part of it.
    let temporary = parent.join(format!(".langs-{}", uuid::Uuid::new_v4()));
    let published = write_all(&temporary).and_then(|()| publish(&temporary, &directory));
    if published.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(&temporary);
    }
    published.map(|()| directory)
}

fn is_whole(directory: &Path) -> bool {
    let is_there = |file: &ShippedFile| {
        fs::symlink_metadata(directory.join(file.path))
            .is_ok_and(|metadata| metadata.len() == file.bytes.len() as u64)
    };
    FILES.iter().all(is_there)
}

fn write_all(directory: &Path) -> io::Result<()> {
    let mut folders = fs::DirBuilder::new();
    folders.mode(0o755).create(directory)?;
    folders.recursive(true);
    for file in &FILES {
        let path = directory.join(file.path);
        if let Some(folder) = path.parent() {
            folders.create(folder)?;
        }
        let mode = if file.executable { 0o755 } else { 0o644 };
        let mut to = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        to.write_all(file.bytes)?;
    }
    Ok(())
}

/// Gives `temporary` its name. A directory that another process published meanwhile stays.
fn publish(temporary: &Path, directory: &Path) -> io::Result<()> {
    if directory.exists() && !is_whole(directory) {
        fs::remove_dir_all(directory)?;
    }
    match fs::rename(temporary, directory) {
        Err(_) if is_whole(directory) => fs::remove_dir_all(temporary),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lang::{LanguageTable, Resolver};

    #[test]
    fn every_language_of_the_table_has_a_workspace_with_a_makefile() {
        let parent = tempfile::tempdir().unwrap();
        let langs = unpack_into(parent.path()).unwrap();
        let table = LanguageTable::load(&langs).unwrap();
        for language in table.iter() {
            let workspace = langs.join(&language.slug);
            assert!(Resolver::default().may_resolve(&workspace), "{}", language.slug);
            assert!(workspace.join(language.folder.as_str()).is_dir(), "{}", language.slug);
        }
        assert!(!langs.join("toolchains").exists());
    }

    #[test]
    fn they_are_written_once_and_again_where_a_file_is_missing() {
        let parent = tempfile::tempdir().unwrap();
        let langs = unpack_into(parent.path()).unwrap();
        let mark = langs.join("mark");
        fs::write(&mark, "").unwrap();
        assert_eq!(unpack_into(parent.path()).unwrap(), langs);
        assert!(mark.exists());
        fs::remove_file(langs.join("python/Makefile")).unwrap();
        assert_eq!(unpack_into(parent.path()).unwrap(), langs);
        assert!(is_whole(&langs) && !mark.exists());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_parent_that_is_not_there_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        assert!(unpack_into(&parent.path().join("missing")).is_err());
    }
}
