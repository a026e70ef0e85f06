//! `source`, `fixtures` and `oracle`: where files come from.

use std::path::PathBuf;

use super::block::{CaseBlock, CaseField, CaseReading};
use super::finding::CaseCode;
use super::paths::{WantedFile, case_path, host_path, relative_path};
use cofferdam_core::values::names::is_git_reference;

/// The longest URL or reference, bytes.
const WORD_BYTES_MAX: usize = 2048;

/// How a Cell gets its own source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceIsolation {
    /// A copy for a path, a clone for a repository.
    Auto,
    /// A copy of the files.
    Copy,
    /// A clone.
    Clone,
    /// A worktree of a local repository.
    Worktree,
}

/// Where the source comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceOrigin {
    /// A directory.
    Path(PathBuf),
    /// A repository.
    Repo {
        /// `owner/name` or a URL.
        repo: String,
        /// The commit.
        commit: String,
        /// The directory of the repository that is the source.
        subdir: Option<PathBuf>,
    },
}

/// `source`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseSource {
    /// Where it comes from; `None` after an error.
    pub origin: Option<SourceOrigin>,
    /// How a Cell gets it.
    pub isolation: SourceIsolation,
}

impl CaseSource {
    /// Reads the block.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Self {
        let block = field.block(reading, &["path", "repo", "commit", "subdir", "isolation"]);
        let words = [
            ("auto", SourceIsolation::Auto),
            ("copy", SourceIsolation::Copy),
            ("clone", SourceIsolation::Clone),
            ("worktree", SourceIsolation::Worktree),
        ];
        let isolation = block.word(reading, "isolation", &words, SourceIsolation::Auto);
        let subdir = block.get("subdir").and_then(|field| relative_path(field, reading));
        let origin = match (block.get("path"), block.get("repo")) {
            (Some(_), Some(_)) => {
                block.error(reading, CaseCode::Conflict, "'path' and 'repo' exclude each other");
                None
            }
            (None, None) => {
                block.error(reading, CaseCode::Conflict, "one of 'path' and 'repo' is required");
                None
            }
            (Some(path), None) => {
                if let Some(field) = block.get("subdir") {
                    field.error(reading, CaseCode::Conflict, "'subdir' needs 'repo'");
                }
                if let Some(field) = block.get("commit") {
                    field.warn(reading, CaseCode::NoEffect, "'commit' needs 'repo'");
                }
                host_path(path, reading, WantedFile::Directory).map(SourceOrigin::Path)
            }
            (None, Some(repo)) => {
                let repo = repository(repo, reading);
                let commit =
                    block.required(reading, "commit").and_then(|field| reference(field, reading));
                repo.zip(commit).map(|(repo, commit)| SourceOrigin::Repo { repo, commit, subdir })
            }
        };
        check_worktree(&block, reading, isolation);
        Self { origin, isolation }
    }
}

fn check_worktree(
    block: &CaseBlock<'_>,
    reading: &mut CaseReading<'_>,
    isolation: SourceIsolation,
) {
    let written = block.written("isolation").filter(|_| isolation == SourceIsolation::Worktree);
    let Some(field) = written else { return };
    if block.get("repo").is_some() {
        field.error(reading, CaseCode::Conflict, "a worktree needs a local repository: 'path'");
    } else {
        let message = "a worktree is made with --executor local only; elsewhere it is a clone";
        field.warn(reading, CaseCode::NoEffect, message);
    }
}

/// `fixtures`: a repository with hidden files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseFixtures {
    /// `owner/name` or a URL.
    pub repo: String,
    /// The commit.
    pub commit: String,
    /// The directory with the files of this Case; its id by default.
    pub subdir: Option<PathBuf>,
}

impl CaseFixtures {
    /// Reads the block.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Self {
        let block = field.block(reading, &["repo", "commit", "subdir"]);
        let repo = block.required(reading, "repo").and_then(|field| repository(field, reading));
        let commit = block.required(reading, "commit").and_then(|field| reference(field, reading));
        Self {
            repo: repo.unwrap_or_default(),
            commit: commit.unwrap_or_default(),
            subdir: block.get("subdir").and_then(|field| relative_path(field, reading)),
        }
    }
}

/// `oracle`: what solves the Case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseOracle {
    /// A patch, below the directory of the Case.
    Patch(PathBuf),
    /// Shell commands.
    Run(Vec<String>),
}

impl CaseOracle {
    /// Reads the block.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Option<Self> {
        let block = field.block(reading, &["patch", "run"]);
        match (block.get("patch"), block.get("run")) {
            (Some(_), Some(_)) => {
                block.error(reading, CaseCode::Conflict, "'patch' and 'run' exclude each other");
                None
            }
            (None, None) => {
                block.error(reading, CaseCode::Missing, "one of 'patch' and 'run' is required");
                None
            }
            (Some(patch), None) => case_path(patch, reading, WantedFile::File).map(Self::Patch),
            (None, Some(run)) => Some(Self::Run(run.texts(reading))),
        }
    }
}

/// A repository: `owner/name`, an http(s) URL without user info, or an absolute path.
fn repository(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Option<String> {
    let text = field.text(reading)?;
    let is_word = !text.is_empty()
        && text.len() <= WORD_BYTES_MAX
        && !text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\\');
    let lower = text.to_ascii_lowercase();
    let scheme = ["https://", "http://"].iter().find_map(|scheme| lower.strip_prefix(scheme));
    let is_fine = match scheme {
        Some(rest) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            !authority.is_empty() && !authority.starts_with(':') && !authority.contains('@')
        }
        None => is_slug(text) || is_plain_path(text),
    };
    if is_word && is_fine {
        return Some(text.to_owned());
    }
    let message =
        "a repository is owner/name, an http or https URL without user info, or an absolute path";
    field.error(reading, CaseCode::InvalidValue, message);
    None
}

/// Whether the text is an absolute path without `..`.
fn is_plain_path(text: &str) -> bool {
    text.starts_with('/') && text.split('/').all(|part| part != "..")
}

/// Whether the text is `owner/name`, as on GitHub.
fn is_slug(text: &str) -> bool {
    let is_name = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !name.is_empty() && !name.starts_with(['-', '.']) && name.bytes().all(is_plain)
    };
    text.split_once('/').is_some_and(|(owner, name)| is_name(owner) && is_name(name))
}

/// A commit, branch or tag.
fn reference(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Option<String> {
    let text = field.text(reading)?;
    let is_fine = is_git_reference(text);
    if !is_fine {
        field.error(reading, CaseCode::InvalidValue, "this is no commit, branch or tag");
    }
    is_fine.then(|| text.to_owned())
}
