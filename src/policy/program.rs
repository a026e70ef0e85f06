//! ProgramFinder where the job would run, and what a word of a command line names there.

use std::collections::BTreeMap;

use crate::base::rel_path::RelPath;
use crate::spec::job::{ErrorCode, JobError, Sha256};

/// Where bare names are looked for, in this order, whatever PATH a request gives.
pub const PATH_DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The directory in which a job finds its workspace.
const WORKSPACE: &str = "/workspace";

/// Facts about programs where the job would run; the only thing that is asked of outside.
pub trait ProgramFinder {
    /// The program that `name` is: looked for in [`PATH_DIRECTORIES`] where it is a bare name, at
    /// its place where it is an absolute path. None where there is none; an error where that
    /// cannot be told.
    fn find(&self, name: &str) -> Result<Option<ResolvedProgram>, String>;
}

/// A program's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedProgram {
    /// Where it was found, absolute, in the box.
    pub path: String,
    /// Where it is, links resolved.
    pub target: String,
    /// What it holds.
    pub sha256: Sha256,
}

/// [`ProgramFinder`] that are asked once for each name: hashing a program takes time.
pub(super) struct ProgramCache<'a> {
    programs: &'a dyn ProgramFinder,
    known: BTreeMap<String, Option<ResolvedProgram>>,
}

impl<'a> ProgramCache<'a> {
    pub fn new(programs: &'a dyn ProgramFinder) -> Self {
        Self { programs, known: BTreeMap::new() }
    }

    /// The program that `name` is.
    pub fn find(&mut self, name: &str) -> Result<Option<ResolvedProgram>, JobError> {
        if let Some(known) = self.known.get(name) {
            return Ok(known.clone());
        }
        let found = self.programs.find(name).map_err(|fault| {
            let message = format!("programs could not be looked for: {fault}");
            JobError::new(ErrorCode::BackendSetupFailed, message)
        })?;
        self.known.insert(name.to_owned(), found.clone());
        Ok(found)
    }
}

/// What a command's first word names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgramName {
    /// A name to be looked for.
    Bare(String),
    /// An absolute path outside the workspace, without `.`, `..` and empty parts.
    Root(String),
    /// A file of the workspace.
    Workspace(RelPath),
}

/// What `word` names for a process in the directory `cwd` of the workspace; none where that is
/// no file, outside the workspace by `..`, or, for an absolute path, on a way through `..` that
/// links may bend.
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
    let mut way = Vec::new();
    for part in parts {
        match part {
            "" | "." => {}
            ".." => _ = way.pop()?,
            name => way.push(name),
        }
    }
    RelPath::parse(&way.join("/")).ok().map(ProgramName::Workspace)
}

/// The last part of a path, or of a name.
pub(super) fn basename(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// Whether `path` lies directly in one of the directories of the fixed PATH.
pub(super) fn is_in_path(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(directory, _)| PATH_DIRECTORIES.contains(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_what_the_kernel_would_open() {
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
    fn only_what_lies_directly_in_a_directory_of_the_path_is_in_it() {
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
