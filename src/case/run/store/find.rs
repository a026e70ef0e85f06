//! Which run a user means: by its id, its directory, or its Case.

use std::path::{Path, PathBuf};

use super::error::CaseRunError;
use super::folder::RunFolder;
use super::locked_run::MANIFEST;
use cofferdam_core::job::JobId;

/// The name of a case file in its directory.
const CASE_FILE: &str = "case.yaml";

/// A run that is there.
#[derive(Debug)]
pub struct FoundRun {
    /// The directory that it is in.
    pub folder: RunFolder,
    /// The name of its own directory.
    pub name: String,
}

/// The run of the store `store` that `word` means: an id, else the directory of a run, else a Case, whose newest run
/// it is.
///
/// # Errors
/// There is no such run.
pub fn find_run(store: &Path, word: &Path) -> Result<FoundRun, CaseRunError> {
    let unknown = || CaseRunError::Unknown(word.display().to_string());
    let mut folder = RunFolder::open(store)?;
    let id = word.to_str().and_then(|word| JobId::parse(word).ok());
    let by_id = id.filter(|id| folder.as_ref().is_some_and(|folder| folder.has(id.as_str())));
    if let Some((folder, id)) = folder.take_if(|_| by_id.is_some()).zip(by_id) {
        return Ok(FoundRun { folder, name: id.to_string() });
    }
    // Before the Case: a run holds a copy of its case file.
    if word.join(MANIFEST).is_file() {
        return by_directory(word)?.ok_or_else(unknown);
    }
    let folder = folder.ok_or_else(unknown)?;
    let case_path = case_file(word).canonicalize().map_err(|_| unknown())?;
    let newest = folder.runs_of(&case_path)?.into_iter().next();
    newest.map(|name| FoundRun { folder, name }).ok_or_else(unknown)
}

fn by_directory(word: &Path) -> Result<Option<FoundRun>, CaseRunError> {
    let Ok(whole) = word.canonicalize() else { return Ok(None) };
    let (Some(above), Some(name)) =
        (whole.parent(), whole.file_name().and_then(|name| name.to_str()))
    else {
        return Ok(None);
    };
    let folder = RunFolder::at(above)?;
    Ok(folder.map(|folder| FoundRun { folder, name: name.to_owned() }))
}

/// The case file of a Case: the path itself, or `case.yaml` in a directory.
pub fn case_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(CASE_FILE) } else { path.to_owned() }
}
