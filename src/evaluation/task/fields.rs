//! The fields of `workspace.yaml`: what each may be.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::description::{DESCRIPTION, Description, Lined};
use super::error::TaskError;
use super::grading::TestKind;
use super::model::{InstallFailure, TaskSource, TaskTest, TestRun, VerifyRules};
use cofferdam_core::values::names::is_git_reference;
use cofferdam_core::{WorkspacePath, WorkspacePathError};

/// The longest URL, path or reference, bytes.
const WORD_BYTES_MAX: usize = 2048;
/// Commands of one list, variables and patterns.
const ITEMS_MAX: usize = 10_000;

/// A fault of the field `name` with its line.
pub fn fault<T>(name: &str, at: &Lined<T>, reason: impl Into<String>) -> TaskError {
    let (file, field) = (Some(DESCRIPTION.to_owned()), Some(name.to_owned()));
    TaskError::Invalid { file, field, line: Some(at.line), reason: reason.into() }
}

/// Where the repository comes from.
///
/// # Errors
/// [`TaskError::RepositoryDenied`] for what is no URL that may be used, [`TaskError::Invalid`] otherwise.
pub fn source(read: &Description) -> Result<TaskSource, TaskError> {
    match (&read.repo, &read.files) {
        (Some(_), Some(files)) => {
            Err(fault("files", files, "`repo` is given too: only one may be"))
        }
        (Some(repo), None) => repository(repo),
        (None, Some(files)) => files_path(files).map(TaskSource::Files),
        (None, None) => Err(TaskError::field(DESCRIPTION, "repo", "it is missing")),
    }
}

fn repository(repo: &Lined<String>) -> Result<TaskSource, TaskError> {
    let denied = |reason: &str| {
        let (line, reason) = (Some(repo.line), reason.to_owned());
        Err(TaskError::RepositoryDenied { line, reason })
    };
    let text = repo.value.as_str();
    if text.len() > WORD_BYTES_MAX || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return denied("it is too long, or contains blanks or control characters");
    }
    if text.starts_with('/') {
        return match is_plain(Path::new(text)) {
            true => Ok(TaskSource::HostPath(text.into())),
            false => denied("a path may not contain `..`"),
        };
    }
    let lower = text.to_ascii_lowercase();
    let scheme = ["https://", "http://"].iter().find(|scheme| lower.starts_with(**scheme));
    let Some(rest) = scheme.and_then(|scheme| text.get(scheme.len()..)) else {
        return denied("it must be an http or https URL, or an absolute path");
    };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    if authority.contains('@') {
        return denied("it may not contain user info");
    }
    match authority.is_empty() || authority.starts_with(':') {
        true => denied("it has no host"),
        false => Ok(TaskSource::Url(text.to_owned())),
    }
}

/// Whether the path has no `..`.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| !matches!(part, Component::ParentDir))
}

/// The path of `files`: a directory of the task beside `tests/`.
///
/// # Errors
/// [`TaskError::Invalid`].
pub fn files_path(files: &Lined<String>) -> Result<PathBuf, TaskError> {
    let text = files.value.as_str();
    let path: PathBuf =
        Path::new(text).components().filter(|part| *part != Component::CurDir).collect();
    let names = path.components().all(|part| matches!(part, Component::Normal(_)));
    if text.contains('\0') || text.len() > WORD_BYTES_MAX || !names || path.as_os_str().is_empty() {
        return Err(fault("files", files, "it must name a directory of the task"));
    }
    let first = path.iter().next().and_then(|first| first.to_str()).unwrap_or_default();
    match first {
        "tests" | "solution" => Err(fault("files", files, "it may not lie in tests/ or solution/")),
        _ => Ok(path),
    }
}

/// A commit, branch or tag.
///
/// # Errors
/// [`TaskError::Invalid`].
pub fn reference(name: &str, value: &Lined<String>) -> Result<String, TaskError> {
    let text = value.value.as_str();
    match is_git_reference(text) {
        true => Ok(text.to_owned()),
        false => Err(fault(name, value, "it must be a commit, a branch or a tag")),
    }
}

/// Commands.
///
/// # Errors
/// [`TaskError::Invalid`] with the command's index.
pub fn commands(name: &str, list: &[Lined<String>]) -> Result<Vec<String>, TaskError> {
    if let Some(beyond) = list.get(ITEMS_MAX) {
        return Err(fault(name, beyond, format!("it has more than {ITEMS_MAX} items")));
    }
    let each = list.iter().enumerate().map(|(index, item)| {
        match item.value.trim().is_empty() || item.value.contains('\0') {
            true => Err(fault(&format!("{name}[{index}]"), item, "it is empty or contains NUL")),
            false => Ok(item.value.clone()),
        }
    });
    each.collect()
}

/// The tests that lists of the description give.
///
/// # Errors
/// As [`commands`].
pub fn listed_tests(read: &Description) -> Result<Vec<TaskTest>, TaskError> {
    let mut tests = Vec::new();
    for (name, list, kind) in [
        ("fail_to_pass", &read.fail_to_pass, TestKind::FailToPass),
        ("pass_to_pass", &read.pass_to_pass, TestKind::PassToPass),
    ] {
        let numbered = (1..).zip(commands(name, list)?);
        tests.extend(numbered.map(|(number, command)| TaskTest {
            name: format!("{name}_{number}"),
            kind,
            run: TestRun::Command(command),
        }));
    }
    Ok(tests)
}

/// `on_install_failure`.
///
/// # Errors
/// [`TaskError::Invalid`].
pub fn install_failure(read: &Description) -> Result<InstallFailure, TaskError> {
    match &read.on_install_failure {
        None => Ok(InstallFailure::default()),
        Some(word) if word.value == "fail" => Ok(InstallFailure::Fail),
        Some(word) if word.value == "continue" => Ok(InstallFailure::Continue),
        Some(word) => Err(fault("on_install_failure", word, "it must be `fail` or `continue`")),
    }
}

/// What a variable must be.
pub const VARIABLE_WANTED: &str =
    "a name must be [A-Za-z_][A-Za-z0-9_]*, a value must not contain NUL";

/// Whether a variable can have this name.
pub fn is_variable_name(name: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_start) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `env`.
///
/// # Errors
/// [`TaskError::Invalid`] naming the variable.
pub fn environment(read: &Description) -> Result<BTreeMap<String, String>, TaskError> {
    let each = read.env.iter().map(|(name, value)| {
        match is_variable_name(name) && !value.value.contains('\0') {
            true => Ok((name.clone(), value.value.clone())),
            false => Err(fault(&format!("env.{name}"), value, VARIABLE_WANTED)),
        }
    });
    each.collect()
}

/// `workdir`.
///
/// # Errors
/// [`TaskError::Invalid`].
pub fn workdir(read: &Description) -> Result<WorkspacePath, TaskError> {
    let Some(value) = &read.workdir else { return Ok(WorkspacePath::default()) };
    parse_workdir(&value.value).map_err(|error| fault("workdir", value, format!("it {error}")))
}

/// Where sandboxes can show a repository. Slashes at the end do not count.
///
/// # Errors
/// What is wrong with it.
pub fn parse_workdir(text: &str) -> Result<WorkspacePath, WorkspacePathError> {
    let shorter = text.trim_end_matches('/');
    WorkspacePath::parse_outside_system(if shorter.is_empty() { text } else { shorter })
}

/// `test_timeout_secs`.
///
/// # Errors
/// [`TaskError::Invalid`].
pub fn test_timeout(read: &Description) -> Result<Option<u64>, TaskError> {
    match &read.test_timeout_secs {
        Some(secs) if secs.value == 0 => {
            Err(fault("test_timeout_secs", secs, "it must be 1 or more"))
        }
        secs => Ok(secs.as_ref().map(|secs| secs.value)),
    }
}

/// `verify`.
///
/// # Errors
/// [`TaskError::Invalid`] naming the pattern.
pub fn verify(read: &Description) -> Result<VerifyRules, TaskError> {
    let patterns = |name: &str, list: &[Lined<String>]| {
        let patterns = commands(name, list)?;
        for (index, (pattern, at)) in patterns.iter().zip(list).enumerate() {
            globset::Glob::new(pattern)
                .map_err(|error| fault(&format!("{name}[{index}]"), at, error.to_string()))?;
        }
        Ok(patterns)
    };
    Ok(VerifyRules {
        restore: patterns("verify.restore", &read.verify.restore)?,
        keep: patterns("verify.keep", &read.verify.keep)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lined(text: &str) -> Lined<String> {
        Lined { value: text.to_owned(), line: 3 }
    }

    #[test]
    fn only_http_urls_without_user_info_and_absolute_paths_are_repositories() {
        for (text, is_fine) in [
            ("https://github.com/psf/requests", true),
            ("HTTP://host:8080/x.git", true),
            ("http://[::1]:80/x", true),
            ("/srv/repos/a", true),
            ("https://user@host/x", false),
            ("https://u:p@host/x", false),
            ("https://host@evil/x", false),
            ("https://", false),
            ("https://:80/x", false),
            ("ssh://host/x", false),
            ("git@host:x", false),
            ("file:///etc", false),
            ("ext::sh -c id", false),
            ("--upload-pack=x", false),
            ("relative/path", false),
            ("/srv/../etc", false),
            ("https://host/\u{1}x", false),
            ("", false),
        ] {
            let found = repository(&lined(text));
            assert_eq!(found.is_ok(), is_fine, "{text}: {found:?}");
            if let Err(error) = found {
                assert_eq!(error.code(), "repo.url_denied", "{text}");
            }
        }
    }

    #[test]
    fn a_reference_is_no_option_and_no_expression() {
        for (text, is_fine) in [
            ("v2.31.0", true),
            ("main", true),
            ("feature/x", true),
            ("0123456789abcdef0123456789abcdef01234567", true),
            ("-f", false),
            ("--upload-pack=x", false),
            ("HEAD~1", false),
            ("a..b", false),
            ("a b", false),
            ("main@{1}", false),
            ("a:b", false),
            ("", false),
        ] {
            assert_eq!(reference("base_commit", &lined(text)).is_ok(), is_fine, "{text}");
        }
    }

    #[test]
    fn files_is_a_directory_of_the_task_and_workdir_none_of_the_sandbox() {
        for (text, want) in [
            ("files", Some("files")),
            ("./a//b/", Some("a/b")),
            (".", None),
            ("", None),
            ("..", None),
            ("a/../b", None),
            ("/a", None),
            ("tests", None),
            ("tests/x", None),
        ] {
            assert_eq!(files_path(&lined(text)).ok(), want.map(PathBuf::from), "{text}");
        }
        for (text, is_fine) in [
            ("/testbed", true),
            ("/app/", true),
            ("/srv", true),
            ("/usr/src/app", false),
            ("/", false),
            ("/etc", false),
            ("/tests/x", false),
            ("/a/../etc", false),
            ("app", false),
        ] {
            let read = Description { workdir: Some(lined(text)), ..Description::default() };
            assert_eq!(workdir(&read).is_ok(), is_fine, "{text}");
        }
    }
}
