//! Finds files of a Cell.

use crate::case::cell::{CellExecutor, ExecCode, ExecError};
use cofferdam_tree::files::EntryType;

/// The most entries that are visited.
const VISITED_MAX: usize = 1_000_000;
/// The most files that are found.
const FOUND_MAX: usize = 20_000;

/// A regular file of a Cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundFile {
    /// Its path in the sandbox.
    pub path: String,
    /// Its size, bytes.
    pub bytes: u64,
}

/// The regular files below the directory `top` of the sandbox whose paths are `wanted`, in no order. Links are not
/// followed. Directories whose names are not `entered`, that have disappeared or that may not be read have no files.
///
/// # Errors
/// [`ExecCode::TooLarge`] if there are too many, and whatever else the executor fails with.
pub fn find_files(
    cell: &dyn CellExecutor,
    top: &str,
    entered: &dyn Fn(&str) -> bool,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<FoundFile>, ExecError> {
    let (mut pending, mut found) = (vec![top.to_owned()], Vec::new());
    let mut left = VISITED_MAX;
    while let Some(directory) = pending.pop() {
        let entries = match cell.list(&directory) {
            Err(ExecError {
                code: ExecCode::NotFound | ExecCode::UnsafePath | ExecCode::PermissionDenied,
                ..
            }) => continue,
            entries => entries?,
        };
        left = left.checked_sub(entries.len()).ok_or_else(|| too_many(VISITED_MAX, "entries"))?;
        for entry in entries {
            let path = match directory.as_str() {
                "." => entry.name.clone(),
                directory => format!("{directory}/{}", entry.name),
            };
            match entry.entry_type {
                EntryType::Directory if entered(&entry.name) => pending.push(path),
                EntryType::File if wanted(&path) => {
                    found.push(FoundFile { path, bytes: entry.bytes });
                }
                _ => {}
            }
        }
        if found.len() > FOUND_MAX {
            return Err(too_many(FOUND_MAX, "files to read"));
        }
    }
    Ok(found)
}

fn too_many(max: usize, what: &str) -> ExecError {
    ExecError::new(ExecCode::TooLarge, format!("the sandbox has more than {max} {what}"))
}
