//! The root file systems that evaluations can have: the service's own, and those below one directory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::phase_tree::EvaluationTrees;
use cofferdam_core::SetupFailure;

/// The most names that an error lists.
const NAMES_MAX: usize = 64;

/// A root file system, and what makes file systems for its sandboxes. Clones are the same one.
#[derive(Debug, Clone)]
pub struct EvaluationRoot {
    /// Names it in digests.
    pub name: String,
    /// Makes the file systems.
    pub trees: EvaluationTrees,
}

/// Opens the root file system in a directory.
pub type RootOpener = Box<dyn Fn(&Path) -> Result<EvaluationTrees, SetupFailure> + Send + Sync>;

/// The root file systems that requests can name.
pub struct EvaluationRoots {
    own: EvaluationRoot,
    others: Option<(PathBuf, RootOpener)>,
    opened: Mutex<BTreeMap<String, EvaluationRoot>>,
}

/// Why a request does not get the root file system that it names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// No root file system has that name.
    #[error("no root file system has this name")]
    Unknown {
        /// Those that are there.
        known: Vec<String>,
    },
    /// This host cannot use it.
    #[error(transparent)]
    Unusable(SetupFailure),
}

impl EvaluationRoots {
    /// `own`, and no other.
    pub fn only(own: EvaluationRoot) -> Self {
        Self { own, others: None, opened: Mutex::default() }
    }

    /// Also those that are directories of `directory`; `open` opens each at its first use.
    #[must_use]
    pub fn with_directory(self, directory: PathBuf, open: RootOpener) -> Self {
        Self { others: Some((directory, open)), ..self }
    }

    /// The one with that name, or the service's own.
    ///
    /// # Errors
    /// It is missing, or this host cannot use it.
    pub fn find(&self, name: Option<&str>) -> Result<EvaluationRoot, RootError> {
        let Some(name) = name else { return Ok(self.own.clone()) };
        let unknown = || RootError::Unknown { known: self.names() };
        let (directory, open) = self.others.as_ref().ok_or_else(unknown)?;
        let path = directory.join(name);
        if !is_name(name) || !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return Err(unknown());
        }
        // Held while one is opened, so that none is opened twice.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = opened.get(name) {
            return Ok(root.clone());
        }
        let trees = open(&path).map_err(RootError::Unusable)?;
        let root = EvaluationRoot { name: path.display().to_string(), trees };
        opened.insert(name.to_owned(), root.clone());
        Ok(root)
    }

    fn names(&self) -> Vec<String> {
        let Some((directory, _)) = &self.others else { return Vec::new() };
        let entries = directory.read_dir().into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = directories.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| is_name(name)).take(NAMES_MAX).collect();
        names.sort();
        names
    }
}

/// Whether `name` can be that of a directory below another, and is not hidden.
fn is_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
        && !name.starts_with('.')
}

impl fmt::Debug for EvaluationRoots {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("EvaluationRoots").field("own", &self.own).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leads_out_of_the_directory() {
        for (name, is_one) in [
            ("debian-12", true),
            ("a b", true),
            ("", false),
            (".", false),
            ("..", false),
            (".hidden", false),
            ("a/b", false),
            ("a/", false),
            ("/a", false),
            ("../a", false),
        ] {
            assert_eq!(is_name(name), is_one, "{name:?}");
        }
    }
}
