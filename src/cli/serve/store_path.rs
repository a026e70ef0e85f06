//! Paths of stores, which need not exist, and of roots, which do.

use std::io;
use std::path::{Path, PathBuf};

use crate::cli::failure::{Failure, error_words};
use crate::config::Config;

/// A store of the service.
#[derive(Debug)]
pub struct ServedStore {
    /// Its directory, absolute.
    pub directory: PathBuf,
    /// Whether an option or variable names it.
    pub is_asked_for: bool,
}

impl ServedStore {
    /// The store at `store_dir`, or that of jobs. None if it is in `workspaces`, which are copied for every run, and
    /// nobody asked for it.
    pub fn beside(
        config: &Config,
        store_dir: Option<PathBuf>,
        workspaces: &Path,
    ) -> Result<Option<Self>, Failure> {
        let is_asked_for = store_dir.is_some() || config.jobs.store_is_asked_for();
        let store_dir = store_dir.unwrap_or_else(|| config.jobs.store_dir.clone());
        let directory = absolute(&store_dir).map_err(|error| {
            let words = error_words(&error);
            let words = format!("{}: {words}; want a directory for records", store_dir.display());
            Failure::option("--store-dir", words)
        })?;
        if !directory.starts_with(workspaces) {
            return Ok(Some(Self { directory, is_asked_for }));
        }
        if is_asked_for {
            let words =
                format!("{}: in a workspace, which is copied for every run", directory.display());
            return Err(Failure::option("--store-dir", words));
        }
        Ok(None)
    }
}

/// The roots that `variable` names, with links resolved; a missing root is an error.
pub fn canonical(variable: &'static str, roots: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let canonical = |root: &PathBuf| {
        let fault = |error: io::Error| format!("{}: {error}", root.display());
        root.canonicalize().map_err(|error| Failure::option(variable, fault(error)))
    };
    roots.iter().map(canonical).collect()
}

/// The absolute `path`, with links resolved in the part that exists.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if let Some(path) = resolved(&path)? {
        return Ok(path);
    }
    let (parent, name) = (path.parent().unwrap_or(&path), path.file_name());
    let parent = resolved(parent)?.unwrap_or_else(|| parent.to_owned());
    Ok(name.map_or_else(|| parent.clone(), |name| parent.join(name)))
}

/// `path` with links resolved; `None` if it does not exist. A loop of links or a file in the path is
/// an error.
fn resolved(path: &Path) -> io::Result<Option<PathBuf>> {
    match path.canonicalize() {
        Ok(path) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
