//! How the source of a Case is prepared (pure).

use std::path::PathBuf;

use crate::case::cell::CellExecutorKind;
use crate::case::file::{Case, CaseFixtures, SourceIsolation, SourceOrigin};
use crate::evaluation::repository::{RepositoryRoots, RepositorySource};

/// What prepares a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePlan {
    /// The sandbox is empty.
    Nothing,
    /// A directory is copied.
    Copy(PathBuf),
    /// A local repository is cloned at its HEAD.
    LocalClone(PathBuf),
    /// Each Cell has a worktree of a local repository at its HEAD.
    Worktree(PathBuf),
    /// A repository is cloned at a commit.
    Clone(CommitPlan),
}

/// A commit to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPlan {
    /// A URL, or an absolute path.
    pub repository: String,
    /// The commit, as the Case names it.
    pub commit: String,
    /// The directory of it that is used.
    pub subdir: Option<PathBuf>,
    /// Whether it is used as a copy, without `.git`.
    pub is_copy: bool,
}

impl SourcePlan {
    /// The plan for the source of `case`, with the executor of its Cells.
    pub fn of(case: &Case, executor: CellExecutorKind) -> Self {
        let Some(source) = &case.source else { return Self::Nothing };
        match (&source.origin, source.isolation) {
            (None, _) => Self::Nothing,
            (Some(SourceOrigin::Path(path)), isolation) => match isolation {
                SourceIsolation::Auto | SourceIsolation::Copy => Self::Copy(path.clone()),
                SourceIsolation::Worktree if executor == CellExecutorKind::Local => {
                    Self::Worktree(path.clone())
                }
                SourceIsolation::Clone | SourceIsolation::Worktree => {
                    Self::LocalClone(path.clone())
                }
            },
            (Some(SourceOrigin::Repo { repo, commit, subdir }), isolation) => {
                Self::Clone(CommitPlan {
                    repository: repository_location(repo),
                    commit: commit.clone(),
                    subdir: subdir.clone(),
                    is_copy: isolation == SourceIsolation::Copy,
                })
            }
        }
    }

    /// Whether git clones something, in a sandbox.
    pub fn clones(&self) -> bool {
        matches!(self, Self::LocalClone(_) | Self::Clone(_))
    }
}

impl CommitPlan {
    /// The plan for the fixtures of the Case `id`.
    pub fn of_fixtures(fixtures: &CaseFixtures, id: &str) -> Self {
        let CaseFixtures { repo, commit, subdir } = fixtures;
        Self {
            repository: repository_location(repo),
            commit: commit.clone(),
            subdir: Some(subdir.clone().unwrap_or_else(|| id.into())),
            is_copy: true,
        }
    }
}

/// Where `owner/name` is; URLs and paths stay.
fn repository_location(repo: &str) -> String {
    let is_whole = repo.starts_with('/') || repo.contains("://");
    if is_whole { repo.to_owned() } else { format!("https://github.com/{repo}") }
}

/// The hosts of the repositories that `case` names, as entries of an allow-list. On the command line git reaches them
/// although their addresses may not be public.
pub fn repository_hosts(case: &Case) -> Vec<String> {
    let source = case.source.as_ref().and_then(|source| match &source.origin {
        Some(SourceOrigin::Repo { repo, .. }) => Some(repo),
        _ => None,
    });
    let named = source.into_iter().chain(case.fixtures.as_ref().map(|fixtures| &fixtures.repo));
    let located = named.filter_map(|repo| {
        RepositorySource::parse(&repository_location(repo), &RepositoryRoots::default()).ok()
    });
    located.flat_map(|repository| repository.allowed_hosts()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::case::file::load_case;

    fn case(yaml: &str) -> Case {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("src")).unwrap();
        let head = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";
        std::fs::write(place.path().join("case.yaml"), format!("{head}{yaml}")).unwrap();
        load_case(place.path()).unwrap().case
    }

    #[test]
    fn a_path_is_copied_a_repository_is_cloned_and_a_worktree_is_local() {
        use CellExecutorKind::{Container, Local, Sandboxed};
        let word = |yaml: &str, executor| {
            let plan = SourcePlan::of(&case(yaml), executor);
            let clones = plan.clones();
            let word = match plan {
                SourcePlan::Nothing => "nothing",
                SourcePlan::Copy(_) => "copy",
                SourcePlan::LocalClone(_) => "local clone",
                SourcePlan::Worktree(_) => "worktree",
                SourcePlan::Clone(CommitPlan { is_copy: true, .. }) => "clone without .git",
                SourcePlan::Clone(_) => "clone",
            };
            assert_eq!(clones, word.contains("clone"));
            word
        };
        for (yaml, executor, wanted) in [
            ("", Sandboxed, "nothing"),
            ("source: {path: src}", Sandboxed, "copy"),
            ("source: {path: src, isolation: copy}", Local, "copy"),
            ("source: {path: src, isolation: clone}", Local, "local clone"),
            ("source: {path: src, isolation: worktree}", Local, "worktree"),
            ("source: {path: src, isolation: worktree}", Sandboxed, "local clone"),
            ("source: {path: src, isolation: worktree}", Container, "local clone"),
            ("source: {repo: a/b, commit: abc1}", Local, "clone"),
            ("source: {repo: a/b, commit: abc1, isolation: clone}", Sandboxed, "clone"),
            ("source: {repo: a/b, commit: abc1, isolation: copy}", Sandboxed, "clone without .git"),
        ] {
            assert_eq!(word(yaml, executor), wanted, "{yaml}");
        }
    }

    #[test]
    fn a_slug_is_a_repository_of_github_and_fixtures_are_below_the_id() {
        let both = case(
            "source: {repo: a/b, commit: v1, subdir: d}\nfixtures: {repo: 'http://h:81/r', commit: c}\n",
        );
        let SourcePlan::Clone(plan) = SourcePlan::of(&both, CellExecutorKind::Sandboxed) else {
            panic!("a repository is cloned");
        };
        assert_eq!(plan.repository, "https://github.com/a/b");
        assert_eq!(plan.subdir.as_deref(), Some(Path::new("d")));
        let fixtures = CommitPlan::of_fixtures(both.fixtures.as_ref().unwrap(), &both.id);
        assert_eq!(fixtures.subdir.as_deref(), Some(Path::new("a")));
        assert_eq!(repository_hosts(&both), ["github.com:443", "h:81", "h:443"]);
        assert!(repository_hosts(&case("fixtures: {repo: /srv/r, commit: c}\n")).is_empty());
    }
}
