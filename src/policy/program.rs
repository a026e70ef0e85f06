//! Finds programs in the root file system of a job, and tells which file a command names.

use std::collections::BTreeMap;

use cofferdam_core::job::{ErrorCode, JobError, Sha256};
use cofferdam_core::values::rel_path::RelPath;

/// The directories in which bare names are looked up, in this order. A request's PATH does not count.
pub(super) const PATH_DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Where a job sees its workspace.
const WORKSPACE: &str = "/workspace";

/// Finds programs in the root file system of a job. The policy depends on nothing else outside the
/// request and the configuration.
pub trait ProgramFinder {
    /// Finds a bare name in the fixed PATH, and an absolute path at that path. Returns `None` if
    /// there is no such program, and an error if the lookup fails.
    fn find(&self, name: &str) -> Result<Option<ResolvedProgram>, String>;
}

/// A program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedProgram {
    /// The absolute path in the sandbox at which it was found.
    pub path: String,
    /// The same path with all links resolved.
    pub target: String,
    /// The digest of its contents.
    pub sha256: Sha256,
}

/// Looks up each name once, because the finder hashes the program.
pub(super) struct ProgramCache<'a> {
    finder: &'a dyn ProgramFinder,
    known: BTreeMap<String, Option<ResolvedProgram>>,
}

impl<'a> ProgramCache<'a> {
    pub fn new(finder: &'a dyn ProgramFinder) -> Self {
        Self { finder, known: BTreeMap::new() }
    }

    /// Finds the program `name`. A failed lookup is `backend.setup_failed`.
    pub fn find(&mut self, name: &str) -> Result<Option<ResolvedProgram>, JobError> {
        if let Some(known) = self.known.get(name) {
            return Ok(known.clone());
        }
        let found = self.finder.find(name).map_err(|reason| {
            let message = format!("cannot look up the program {name}: {reason}");
            JobError::new(ErrorCode::BackendSetupFailed, message)
        })?;
        self.known.insert(name.to_owned(), found.clone());
        Ok(found)
    }
}

/// The file that a command names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgramName {
    /// A name without a slash, to look up in the fixed PATH.
    Bare(String),
    /// An absolute path outside the workspace, without `.`, `..` and empty components.
    Root(String),
    /// A file of the workspace.
    Workspace(RelPath),
}

/// Returns the file that `word` names for a process in the directory `cwd` of the workspace, or
/// `None` if `word` cannot name a file, leaves the workspace through `..`, or is an absolute path
/// with `..`, which the kernel resolves after links.
pub(super) fn parse_name(word: &str, cwd: &str) -> Option<ProgramName> {
    if !word.contains('/') {
        let is_name = !matches!(word, "" | "." | "..");
        return is_name.then(|| ProgramName::Bare(word.to_owned()));
    }
    if !word.starts_with('/') {
        return in_workspace(cwd.split('/').chain(word.split('/')));
    }
    let parts: Vec<&str> = word.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() || parts.contains(&"..") {
        return None;
    }
    let path = format!("/{}", parts.join("/"));
    match path.strip_prefix(WORKSPACE) {
        Some("") => None,
        Some(below) if below.starts_with('/') => in_workspace(below.split('/')),
        _ => Some(ProgramName::Root(path)),
    }
}

fn in_workspace<'a>(parts: impl Iterator<Item = &'a str>) -> Option<ProgramName> {
    let mut components = Vec::new();
    for part in parts {
        match part {
            "" | "." => {}
            ".." => _ = components.pop()?,
            name => components.push(name),
        }
    }
    RelPath::parse(&components.join("/")).ok().map(ProgramName::Workspace)
}

/// Returns the last component of a path.
pub(super) fn basename(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// Whether `path` lies directly in a directory of the fixed PATH.
pub(super) fn is_in_path(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(directory, _)| PATH_DIRECTORIES.contains(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_the_file_that_the_kernel_opens() {
        let workspace = |path| Some(ProgramName::Workspace(RelPath::parse(path).unwrap()));
        let root = |path: &str| Some(ProgramName::Root(path.to_owned()));
        for (word, cwd, expected) in [
            ("python3", "sub", Some(ProgramName::Bare("python3".to_owned()))),
            ("./python3", ".", workspace("python3")),
            ("./python3", "a/b", workspace("a/b/python3")),
            ("bin/python3", ".", workspace("bin/python3")),
            ("../x", "a/b", workspace("a/x")),
            ("a/../x", ".", workspace("x")),
            ("../x", ".", None),
            ("../../x", "a", None),
            ("a/../../workspace/x", ".", None),
            ("./", ".", None),
            ("/workspace/x", "a", workspace("x")),
            ("//workspace/./x", "a", workspace("x")),
            ("/workspace", ".", None),
            ("/workspace/", ".", None),
            ("/workspacex/y", ".", root("/workspacex/y")),
            ("/usr//bin/./ls", ".", root("/usr/bin/ls")),
            ("/usr/bin/../bin/ls", ".", None),
            ("/", ".", None),
            ("", ".", None),
            (".", ".", None),
            ("..", ".", None),
        ] {
            assert_eq!(parse_name(word, cwd), expected, "{word:?} in {cwd:?}");
        }
    }

    #[test]
    fn only_a_file_directly_in_a_path_directory_is_in_the_path() {
        for (path, expected) in [
            ("/bin/ls", true),
            ("/usr/local/bin/ls", true),
            ("/usr/bin/a/ls", false),
            ("/opt/ls", false),
            ("/ls", false),
            ("ls", false),
        ] {
            assert_eq!(is_in_path(path), expected, "{path}");
        }
    }
}
