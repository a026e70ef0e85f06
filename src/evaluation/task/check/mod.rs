//! `task check`: what would fail, and what makes results differ from day to day.

mod unpinned;
mod withheld;

use std::fs::File;
use std::path::Path;

use serde::Serialize;

use super::description::{DESCRIPTION, Description};
use super::error::TaskError;
use super::grading::Grading;
use super::load::{ReadTask, read_task};
use super::model::{Task, TestRun};
use super::open::{ArchiveBounds, task_directory, task_root, unpack_task};
use super::read::read_bytes;
use cofferdam_tree::StopCheck;
use unpinned::unpinned_packages;
use withheld::withheld_paths;

/// The longest script that is searched for CRLF, bytes.
const SCRIPT_BYTES_MAX: u64 = 64 << 20;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// An evaluation of the task fails.
    Error,
    /// An evaluation may fail, or end differently another day.
    Warning,
}

/// What is to be said about a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskFinding {
    /// The file, by its path in the task, or the entry of the archive; `None` for the task as a whole.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u64>,
    /// How bad it is.
    pub level: FindingLevel,
    /// What it is.
    pub message: String,
}

impl TaskFinding {
    fn warning(file: &str, line: Option<u64>, message: String) -> Self {
        Self { file: Some(file.to_owned()), line, level: FindingLevel::Warning, message }
    }

    fn error(file: &str, line: Option<u64>, message: &str) -> Self {
        let (file, message) = (Some(file.to_owned()), message.to_owned());
        Self { file, line, level: FindingLevel::Error, message }
    }
}

impl From<&TaskError> for TaskFinding {
    fn from(error: &TaskError) -> Self {
        let (file, line, message) = match error {
            TaskError::Invalid { file, line, field, reason } => {
                let field = field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
                (file.clone(), *line, format!("{}: {field}{reason}", error.code()))
            }
            TaskError::RepositoryDenied { line, reason } => {
                let message = format!("{}: repo: {reason}", error.code());
                (Some(DESCRIPTION.to_owned()), *line, message)
            }
            TaskError::UnsafeArchive { entry, reason } => {
                let file = Some(entry.clone()).filter(|entry| !entry.is_empty());
                (file, None, format!("{}: {reason}", error.code()))
            }
            other => (None, None, format!("{}: {other}", other.code())),
        };
        Self { file, line, level: FindingLevel::Error, message }
    }
}

/// Checks the task in `path`, an archive or a directory. `scratch` is an empty directory that only this
/// process can reach; it may be written.
///
/// # Errors
/// [`TaskError`] if the task cannot be read at all: no such file, or no archive.
pub fn check_task(
    path: &Path,
    scratch: &Path,
    bounds: ArchiveBounds,
) -> Result<Vec<TaskFinding>, TaskError> {
    let unreadable = |error: std::io::Error| TaskError::Host(error.to_string());
    let opened = if path.metadata().map_err(unreadable)?.is_dir() {
        // It must be possible to list it.
        path.read_dir().map_err(unreadable)?;
        task_directory(path, scratch)
    } else {
        let file = File::open(path).map_err(unreadable)?;
        match unpack_task(file, scratch, bounds, StopCheck::never()) {
            Err(error @ (TaskError::Invalid { file: None, .. } | TaskError::Host(_))) => {
                return Err(error);
            }
            unpacked => unpacked.map(|()| scratch.to_owned()),
        }
    };
    let root = opened.and_then(|directory| task_root(&directory));
    match root {
        Ok(root) => findings(&root),
        Err(error @ TaskError::Host(_)) => Err(error),
        Err(error) => Ok(vec![TaskFinding::from(&error)]),
    }
}

fn findings(root: &Path) -> Result<Vec<TaskFinding>, TaskError> {
    let ReadTask { task, description, faults } = read_task(root);
    if let Some(error) = faults.iter().find(|fault| matches!(fault, TaskError::Host(_))) {
        return Err(error.clone());
    }
    let mut found: Vec<TaskFinding> = faults.iter().map(TaskFinding::from).collect();
    // Faulty lists of tests are no missing tests.
    let is_fault_of_tests = |fault: &TaskError| match fault {
        TaskError::Invalid { file: Some(file), field, .. } => {
            file.starts_with("tests")
                || field.as_deref().is_some_and(|field| field.contains("_to_pass"))
        }
        _ => false,
    };
    if let Err(none) = task.check_tests()
        && !faults.iter().any(is_fault_of_tests)
    {
        found.push(TaskFinding::from(&none));
    }
    found.extend(unknown_keys(&description));
    found.extend(moving_reference(&description));
    found.extend(unpinned(&description));
    found.extend(carriage_returns(root, &task)?);
    found.extend(solution(&task));
    Ok(found)
}

fn unknown_keys(read: &Description) -> Vec<TaskFinding> {
    let top = read.unknown.iter().map(|key| (String::new(), key));
    let verify = read.verify.unknown.iter().map(|key| ("verify.".to_owned(), key));
    let each = top.chain(verify).map(|(above, key)| {
        let message = format!("unknown key {above}{}", key.value);
        TaskFinding::warning(DESCRIPTION, Some(key.line), message)
    });
    each.collect()
}

/// A branch or tag that may lead to another commit another day.
fn moving_reference(read: &Description) -> Option<TaskFinding> {
    read.repo.as_ref()?;
    let reference = read.base_commit.as_ref().or(read.version.as_ref())?;
    let is_hash = (7..=64).contains(&reference.value.len())
        && reference.value.chars().all(|c| c.is_ascii_hexdigit());
    let message =
        format!("{:?} can move: give the full hash of a commit as base_commit", reference.value);
    (!is_hash).then(|| TaskFinding::warning(DESCRIPTION, Some(reference.line), message))
}

fn unpinned(read: &Description) -> Vec<TaskFinding> {
    let each = read.install.iter().flat_map(|command| {
        unpinned_packages(&command.value).into_iter().map(|package| {
            let message = format!("install: {package} has no fixed version");
            TaskFinding::warning(DESCRIPTION, Some(command.line), message)
        })
    });
    each.collect()
}

/// Scripts whose lines end with CR: bash takes it as part of the last word.
fn carriage_returns(root: &Path, task: &Task) -> Result<Vec<TaskFinding>, TaskError> {
    let scripts = task.tests.iter().filter(|test| test.run == TestRun::Script);
    let names = scripts.map(|test| format!("tests/{}", test.name));
    let mut found = Vec::new();
    for name in names.chain(["checks.txt".to_owned()]) {
        let bytes = read_bytes(root, &name, SCRIPT_BYTES_MAX)?.unwrap_or_default();
        let mut lines = bytes.split(|byte| *byte == b'\n');
        if let Some(index) = lines.position(|line| line.ends_with(b"\r")) {
            let line = Some(index as u64 + 1);
            found.push(TaskFinding::error(&name, line, "the lines end with CRLF"));
        }
    }
    Ok(found)
}

/// What the solution changes and the tests do not see, or what no patch may change.
fn solution(task: &Task) -> Vec<TaskFinding> {
    const FILE: &str = "solution.patch";
    let Ok(withheld) = withheld_paths() else { return Vec::new() };
    let mut found = Vec::new();
    for path in &task.solution_paths {
        let is_inside = path
            .split('/')
            .all(|part| !matches!(part, "" | "." | "..") && !part.eq_ignore_ascii_case(".git"));
        if !is_inside {
            let message = format!("patch.rejected: {path:?} is outside the repository or in .git");
            found.push(TaskFinding::error(FILE, None, &message));
        } else if task.grading == Grading::ExitCodes
            && task.test_files.iter().any(|file| file == Path::new(path))
        {
            let message = format!("{path} is replaced by the file of the tests");
            found.push(TaskFinding::warning(FILE, None, message));
        } else if withheld.is_match(path) {
            let message = format!("{path} decides how tests run: an agent's is kept too");
            found.push(TaskFinding::warning(FILE, None, message));
        }
    }
    found
}
