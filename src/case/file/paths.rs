//! Paths of a case file: below their directory, and there where they are local.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::block::{CaseField, CaseReading};
use super::finding::CaseCode;

/// The longest path, bytes.
const PATH_BYTES_MAX: usize = 4096;

/// What a path has to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedFile {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Either.
    Any,
}

/// A relative path without `..`, as in the sandbox or a repository; `./` is left out.
pub fn relative_path(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Option<PathBuf> {
    let text = field.text(reading)?;
    let path = Path::new(text);
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                let message = format!("'{text}' leaves its directory");
                field.error(reading, CaseCode::UnsafePath, message);
                return None;
            }
        }
    }
    if plain.as_os_str().is_empty() || text.len() > PATH_BYTES_MAX || text.contains('\0') {
        field.error(reading, CaseCode::InvalidValue, "this is no path of a file");
        return None;
    }
    Some(plain)
}

/// A path below the directory of the Case, which may not lead out of it through a link.
pub fn case_path(
    field: &CaseField<'_>,
    reading: &mut CaseReading<'_>,
    wanted: WantedFile,
) -> Option<PathBuf> {
    let path = relative_path(field, reading)?;
    let full = reading.directory.join(&path);
    let found = exists(field, reading, &full, wanted)?;
    let inside = fs::canonicalize(reading.directory).is_ok_and(|top| found.starts_with(top));
    if !inside {
        let message =
            format!("'{}' is a link that leaves the directory of the Case", path.display());
        field.error(reading, CaseCode::UnsafePath, message);
        return None;
    }
    Some(path)
}

/// A path of the host: absolute, or below the directory of the Case.
pub fn host_path(
    field: &CaseField<'_>,
    reading: &mut CaseReading<'_>,
    wanted: WantedFile,
) -> Option<PathBuf> {
    let text = field.text(reading)?;
    if text.is_empty() || text.len() > PATH_BYTES_MAX || text.contains('\0') {
        field.error(reading, CaseCode::InvalidValue, "this is no path of a file");
        return None;
    }
    let full = reading.directory.join(text);
    exists(field, reading, &full, wanted)
}

/// The path with every link followed, if the file is there and is what is wanted.
fn exists(
    field: &CaseField<'_>,
    reading: &mut CaseReading<'_>,
    full: &Path,
    wanted: WantedFile,
) -> Option<PathBuf> {
    let found = fs::canonicalize(full);
    let fits = found.as_ref().is_ok_and(|path| match wanted {
        WantedFile::File => path.is_file(),
        WantedFile::Directory => path.is_dir(),
        WantedFile::Any => path.is_file() || path.is_dir(),
    });
    if fits {
        return found.ok();
    }
    let wanted = match wanted {
        WantedFile::File => "file",
        WantedFile::Directory => "directory",
        WantedFile::Any => "file or directory",
    };
    let text = field.text(reading).unwrap_or_default();
    field.error(reading, CaseCode::NotFound, format!("there is no {wanted} '{text}'"));
    None
}
