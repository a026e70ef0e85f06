//! A task from a directory: the description, the prompt, the tests.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::description::{
    DESCRIPTION, DESCRIPTION_BYTES_MAX, Description, Lined, parse_description,
};
use super::error::TaskError;
use super::fields;
use super::grading::{GradedId, Grading, JunitGrading, TestKind};
use super::harbor::{HARBOR, HarborTerms, harbor_terms};
use super::model::{InstallFailure, Task, TaskSource, TaskTest, TestRun};
use super::read::{list_files, read_text};
use super::solution::changed_paths;

/// The name of the list of ids of a converted task.
pub const IDS: &str = "swebench.json";
/// The script of a converted task, below `tests/`.
pub const ID_SCRIPT: &str = "run_ids.sh";
/// The longest prompt and list of checks, bytes.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// The longest solution and list of ids, bytes.
const LARGE_BYTES_MAX: u64 = 64 << 20;
const SOLUTION: &str = "solution.patch";
const SOLUTION_SCRIPT: &str = "solution/solve.sh";
const CHECKS: &str = "checks.txt";

/// A task that was read from a directory, with all its faults.
#[derive(Debug)]
pub struct ReadTask {
    /// The task. With faults it is not to be used, except to find more of them.
    pub task: Task,
    /// The description with its lines, if it could be parsed.
    pub description: Description,
    /// What is wrong, in the order of the steps of reading.
    pub faults: Vec<TaskError>,
}

/// Reads the task in the directory `root`.
pub fn read_task(root: &Path) -> ReadTask {
    let mut faults = Vec::new();
    let description = kept(&mut faults, description(root));
    let is_described = faults.is_empty();
    let read = &description;
    let (revision, base_commit, version) = kept(&mut faults, revision(read));
    let scripts = kept(&mut faults, list_files(root, "tests"));
    let grading = kept(&mut faults, grading(root));
    let (tests, test_files) = split(scripts, &grading);
    let tests = match tests.is_empty() {
        true => kept(&mut faults, other_tests(root, read)),
        false => tests,
    };
    let patch = kept(&mut faults, read_text(root, SOLUTION, LARGE_BYTES_MAX));
    let script = kept(&mut faults, read_text(root, SOLUTION_SCRIPT, LARGE_BYTES_MAX));
    let solution = match (&patch, script) {
        (Some(_), _) => Some(SOLUTION.into()),
        (None, Some(_)) => Some(SOLUTION_SCRIPT.into()),
        (None, None) => None,
    };
    let source = fields::source(read).and_then(|source| on_disk(root, read, source));
    let HarborTerms { mut bounds, tests_env, solution_env } = kept(&mut faults, harbor(root));
    let test_timeout = kept(&mut faults, fields::test_timeout(read));
    bounds.test_timeout_secs = test_timeout.or(bounds.test_timeout_secs);
    let task = Task {
        source: source.unwrap_or_else(|error| {
            // Without a description, nothing is said about its fields.
            faults.extend(Some(error).filter(|_| is_described));
            TaskSource::Files(PathBuf::new())
        }),
        revision,
        base_commit,
        version,
        language: read.language.as_ref().map(|language| language.value.clone()),
        install: kept(&mut faults, fields::commands("install", &read.install)),
        on_install_failure: kept::<InstallFailure>(&mut faults, fields::install_failure(read)),
        env: kept(&mut faults, fields::environment(read)),
        tests_env,
        solution_env,
        workdir: kept(&mut faults, fields::workdir(read)),
        prompt: kept(&mut faults, prompt(root)),
        tests,
        test_files,
        grading,
        verify: kept(&mut faults, fields::verify(read)),
        solution_paths: changed_paths(patch.as_deref().unwrap_or_default()),
        solution,
        bounds,
        warnings: warnings(read),
    };
    ReadTask { task, description, faults }
}

/// The value, or its default and one more fault.
fn kept<T: Default>(faults: &mut Vec<TaskError>, read: Result<T, TaskError>) -> T {
    read.unwrap_or_else(|fault| {
        faults.push(fault);
        T::default()
    })
}

fn description(root: &Path) -> Result<Description, TaskError> {
    let text = read_text(root, DESCRIPTION, DESCRIPTION_BYTES_MAX)?;
    let text = text.ok_or_else(|| TaskError::file(DESCRIPTION, "it is missing"))?;
    parse_description(text.as_bytes())
}

fn prompt(root: &Path) -> Result<String, TaskError> {
    read_text(root, "prompt.md", TEXT_BYTES_MAX)?
        .ok_or_else(|| TaskError::file("prompt.md", "it is missing"))
}

/// What is checked out, `base_commit` and `version`.
type Revision = (Option<String>, Option<String>, Option<String>);

fn revision(read: &Description) -> Result<Revision, TaskError> {
    let named = |name, value: &Option<Lined<String>>| {
        value.as_ref().map(|value| fields::reference(name, value)).transpose()
    };
    let version = named("version", &read.version)?;
    let base_commit = named("base_commit", &read.base_commit)?;
    let revision = base_commit.clone().or_else(|| version.clone());
    if let (Some(repo), None) = (&read.repo, &revision) {
        return Err(fields::fault(
            "base_commit",
            repo,
            "`repo` needs a `base_commit` or `version`",
        ));
    }
    Ok((revision, base_commit, version))
}

/// Checks that the directory of `files` exists.
fn on_disk(root: &Path, read: &Description, source: TaskSource) -> Result<TaskSource, TaskError> {
    let (TaskSource::Files(path), Some(files)) = (&source, &read.files) else {
        return Ok(source);
    };
    let mut at = root.to_owned();
    for part in path {
        at.push(part);
        if !at.symlink_metadata().is_ok_and(|status| status.is_dir()) {
            return Err(fields::fault("files", files, "there is no such directory in the task"));
        }
    }
    Ok(source)
}

/// The scripts of `tests/`, and the files that go into the repository. Where another file decides, all stay
/// in `tests/`.
fn split(files: Vec<String>, grading: &Grading) -> (Vec<TaskTest>, Vec<PathBuf>) {
    let is_script =
        |name: &String| Path::new(name).extension().is_some_and(|extension| extension == "sh");
    let (mut scripts, others): (Vec<_>, Vec<_>) = files.into_iter().partition(is_script);
    match grading {
        Grading::Reward => scripts.retain(|name| name == "test.sh"),
        Grading::Junit(_) => scripts.retain(|name| name == ID_SCRIPT),
        Grading::ExitCodes => {}
    }
    let tests = scripts.into_iter().map(|name| TaskTest {
        kind: TestKind::of_name(&name),
        name,
        run: TestRun::Script,
    });
    let written = match grading {
        Grading::ExitCodes => others.into_iter().map(PathBuf::from).collect(),
        Grading::Reward | Grading::Junit(_) => Vec::new(),
    };
    (tests.collect(), written)
}

/// The tests of a task without scripts.
fn other_tests(root: &Path, read: &Description) -> Result<Vec<TaskTest>, TaskError> {
    let listed = fields::listed_tests(read)?;
    if !listed.is_empty() {
        return Ok(listed);
    }
    let text = read_text(root, CHECKS, TEXT_BYTES_MAX)?.unwrap_or_default();
    let commands = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let command = line.trim();
        (!command.is_empty() && !command.starts_with('#')).then(|| TaskTest {
            name: format!("{CHECKS}:{number}"),
            kind: TestKind::Other,
            run: TestRun::Command(command.to_owned()),
        })
    });
    Ok(commands.collect())
}

/// The list of ids, as `task convert swebench` writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdsFile {
    instance_id: String,
    report: String,
    fail_to_pass: Vec<String>,
    pass_to_pass: Vec<String>,
}

fn grading(root: &Path) -> Result<Grading, TaskError> {
    let Some(text) = read_text(root, IDS, LARGE_BYTES_MAX)? else {
        let is_harbor = read_text(root, HARBOR, TEXT_BYTES_MAX)?.is_some();
        return Ok(if is_harbor { Grading::Reward } else { Grading::ExitCodes });
    };
    let file: IdsFile =
        serde_json::from_str(&text).map_err(|error| TaskError::file(IDS, error.to_string()))?;
    let report = Path::new(&file.report);
    let is_plain = report.iter().all(|part| part != "..");
    if !report.starts_with("/tmp") || !is_plain || report == Path::new("/tmp") {
        return Err(TaskError::field(IDS, "report", "it must be a path below /tmp"));
    }
    let of = |ids: Vec<String>, kind| ids.into_iter().map(move |id| GradedId { id, kind });
    let ids = of(file.fail_to_pass, TestKind::FailToPass)
        .chain(of(file.pass_to_pass, TestKind::PassToPass))
        .collect::<Vec<_>>();
    if ids.is_empty() {
        return Err(TaskError::NoTests);
    }
    let (instance_id, report) = (file.instance_id, file.report);
    Ok(Grading::Junit(JunitGrading { instance_id, report, ids }))
}

fn harbor(root: &Path) -> Result<HarborTerms, TaskError> {
    let text = read_text(root, HARBOR, TEXT_BYTES_MAX)?;
    Ok(text.map(|text| harbor_terms(&text)).transpose()?.unwrap_or_default())
}

fn warnings(read: &Description) -> Vec<String> {
    let words = |above: &str, key: &Lined<String>| {
        format!("{DESCRIPTION}:{}: unknown key {above}{}", key.line, key.value)
    };
    let top = read.unknown.iter().map(|key| words("", key));
    top.chain(read.verify.unknown.iter().map(|key| words("verify.", key))).collect()
}
