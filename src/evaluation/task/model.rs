//! The values of a task, as all later steps read them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::TaskError;
use super::grading::{Grading, TestKind};
use cofferdam_core::WorkspacePath;

/// A task that was read and validated. Paths are relative to the task's directory if not said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Where the repository comes from.
    pub source: TaskSource,
    /// The hash, branch or tag that is checked out: `base_commit`, or `version` without it. `None` only for
    /// [`TaskSource::Files`]. It does not begin with `-`.
    pub revision: Option<String>,
    /// `base_commit` as written.
    pub base_commit: Option<String>,
    /// `version` as written.
    pub version: Option<String>,
    /// The programming language, for information.
    pub language: Option<String>,
    /// Commands of the install step, each for `sh -c`.
    pub install: Vec<String>,
    /// What a failed command of `install` means.
    pub on_install_failure: InstallFailure,
    /// The environment of install and tests.
    pub env: BTreeMap<String, String>,
    /// Variables that only tests get, beside `env`.
    pub tests_env: BTreeMap<String, String>,
    /// Variables that only the solution gets, beside `env`.
    pub solution_env: BTreeMap<String, String>,
    /// Where sandboxes show the repository.
    pub workdir: WorkspacePath,
    /// The contents of `prompt.md`.
    pub prompt: String,
    /// The tests in their order. Empty if the task has none.
    pub tests: Vec<TaskTest>,
    /// The other files of `tests/`, by their paths below it, sorted by bytes. They are written into the
    /// repository at these paths before each test.
    pub test_files: Vec<PathBuf>,
    /// How the tests' results become verdicts.
    pub grading: Grading,
    /// What the comparison restores from the base, and what it keeps of the agent's.
    pub verify: VerifyRules,
    /// Paths in the repository that `solution.patch` changes; sorted, without duplicates.
    pub solution_paths: Vec<String>,
    /// The solution, for `--oracle`: `solution.patch` or `solution/solve.sh`.
    pub solution: Option<PathBuf>,
    /// Bounds that the task asks for, below those of the service.
    pub bounds: TaskBounds,
    /// What was ignored, in words: unknown keys.
    pub warnings: Vec<String>,
}

impl Task {
    /// Checks that there is a test: otherwise the verdict is `no_tests`.
    ///
    /// # Errors
    /// [`TaskError::NoTests`].
    pub fn check_tests(&self) -> Result<(), TaskError> {
        if self.tests.is_empty() { Err(TaskError::NoTests) } else { Ok(()) }
    }
}

/// Where a task's repository comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskSource {
    /// An `http` or `https` URL without user info.
    Url(String),
    /// An absolute path on this host. It is refused unless it lies below EVAL_REPO_ROOTS.
    HostPath(PathBuf),
    /// A directory of the task, which becomes the only commit.
    Files(PathBuf),
}

/// What a failed install command means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InstallFailure {
    /// The evaluation ends with `install.failed`.
    #[default]
    Fail,
    /// The next command runs.
    Continue,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTest {
    /// Its name in results: the path of a script below `tests/`, `fail_to_pass_1`, or `checks.txt:3`.
    pub name: String,
    /// What its failure says.
    pub kind: TestKind,
    /// How it is run.
    pub run: TestRun,
}

/// How a test is run in the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestRun {
    /// `bash /tests/PATH`, where the path below `tests/` is the test's name.
    Script,
    /// `bash -ec COMMAND`.
    Command(String),
}

/// Patterns beside those that are built in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyRules {
    /// Restored from the base too.
    pub restore: Vec<String>,
    /// Not restored.
    pub keep: Vec<String>,
}

/// What a task asks for at most. `None` leaves the service's bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskBounds {
    /// For each test, seconds.
    pub test_timeout_secs: Option<u64>,
    /// For the agent, seconds.
    pub agent_timeout_secs: Option<u64>,
    /// For the install step, seconds.
    pub install_timeout_secs: Option<u64>,
    /// CPUs of each sandbox, thousandths.
    pub milli_cpus: Option<u64>,
    /// Memory of each sandbox, bytes.
    pub memory_bytes: Option<u64>,
}
