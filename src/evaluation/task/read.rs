//! Bounded reads of a task's files. A link is no file: what it leads to is not the task's.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::TaskError;

/// Files and directories below `tests/`.
const ENTRIES_MAX: usize = 100_000;
/// Nested directories below `tests/`.
const DEPTH_MAX: usize = 64;

/// The contents of the file `name` of the task in `root`, if there is such a file.
///
/// # Errors
/// [`TaskError::Invalid`] if it is no regular file or longer than `bytes_max`.
pub fn read_bytes(root: &Path, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, TaskError> {
    let path = root.join(name);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(host("read", name, &error)),
        Ok(status) if !status.is_file() => {
            return Err(TaskError::file(name, "it is not a regular file"));
        }
        Ok(_) => {}
    }
    let file =
        File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
    let mut bytes = Vec::new();
    file.and_then(|file| file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(|error| host("read", name, &error))?;
    if bytes.len() as u64 > bytes_max {
        return Err(TaskError::file(name, format!("it is longer than {bytes_max} bytes")));
    }
    Ok(Some(bytes))
}

/// As [`read_bytes`], for text.
///
/// # Errors
/// As [`read_bytes`], and [`TaskError::Invalid`] if it is not UTF-8.
pub fn read_text(root: &Path, name: &str, bytes_max: u64) -> Result<Option<String>, TaskError> {
    let bytes = read_bytes(root, name, bytes_max)?;
    let text = bytes.map(String::from_utf8).transpose();
    text.map_err(|_| TaskError::file(name, "it is not UTF-8 text"))
}

/// The regular files below the directory `name` of the task, by their paths below it, sorted by bytes.
/// Empty if there is no such directory.
///
/// # Errors
/// [`TaskError::Invalid`] for a link or a special file, and for too many files.
pub fn list_files(root: &Path, name: &str) -> Result<Vec<String>, TaskError> {
    let top = root.join(name);
    match fs::symlink_metadata(&top) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(host("read", name, &error)),
        Ok(status) if !status.is_dir() => {
            return Err(TaskError::file(name, "it is not a directory"));
        }
        Ok(_) => {}
    }
    let mut found = Vec::new();
    let mut entries = 0;
    let mut pending = vec![PathBuf::new()];
    while let Some(directory) = pending.pop() {
        if directory.iter().count() > DEPTH_MAX {
            return Err(TaskError::file(name, format!("it has more than {DEPTH_MAX} levels")));
        }
        let listed =
            fs::read_dir(top.join(&directory)).map_err(|error| host("list", name, &error))?;
        for entry in listed {
            entries += 1;
            if entries > ENTRIES_MAX {
                return Err(TaskError::file(
                    name,
                    format!("it has more than {ENTRIES_MAX} entries"),
                ));
            }
            let entry = entry.map_err(|error| host("list", name, &error))?;
            let path = directory.join(entry.file_name());
            let shown = format!("{name}/{}", path.display());
            let text =
                path.to_str().ok_or_else(|| TaskError::file(&shown, "its name is not UTF-8"))?;
            let kind = entry.file_type().map_err(|error| host("read", &shown, &error))?;
            if kind.is_dir() {
                pending.push(path);
            } else if kind.is_file() {
                found.push(text.to_owned());
            } else {
                return Err(TaskError::file(&shown, "it is a link or no regular file"));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The error of this host in `operation` on `name`.
pub fn host(operation: &str, name: &str, error: &io::Error) -> TaskError {
    TaskError::Host(format!("cannot {operation} {name}: {error}"))
}
