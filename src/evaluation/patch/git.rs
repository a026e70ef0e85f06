//! git of the root file system, in sandboxes over a copy of the base.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::path::PathBuf;

use super::error::PatchError;
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::repository::git_environment::isolated_environment;
use crate::evaluation::trees::PhaseTree;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    ExcessOutput, Outcome, RunReport, RunSpec, SetupFailure, StdinSource, Watch, WorkspacePath,
};

/// Bytes of what git says of an error that are kept.
const STDERR_BYTES_MAX: u64 = 16 << 10;
/// Bytes of the list of ignored paths.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Prints the paths of stdin that are ignored. git asks for a repository, even an empty one.
const IGNORED_SCRIPT: &str = "[ -e .git ] || git init -q . || exit
exec git check-ignore -z --stdin";
/// Settings of the calls here, besides [`isolated_environment`]: names of the base need not suit other systems.
const SETTINGS: [(&str, &str); 2] = [("core.protectHFS", "false"), ("core.protectNTFS", "false")];

/// Where git runs, and how long it may.
#[derive(Debug)]
pub struct GitPhase<'a> {
    /// A copy of the base, in which nothing of the agent's lies.
    pub tree: &'a PhaseTree,
    /// Where its sandboxes see the repository.
    pub place: &'a WorkspacePath,
    /// What each sandbox may use.
    pub bounds: PhaseBounds,
    /// Ends it.
    pub watch: &'a Watch,
    /// When all of it has to be over.
    pub deadline: Deadline,
}

impl GitPhase<'_> {
    /// Runs `script` with sh; `stdin` and up to `stdout_bytes_max` bytes of stdout are bytes.
    pub(super) fn run(
        &self,
        script: &str,
        stdin: StdinSource,
        stdout_bytes_max: u64,
    ) -> Result<RunReport, PatchError> {
        let spec = RunSpec {
            workdir: PathBuf::from(self.place.as_path()),
            limits: self.bounds.limits(self.deadline.remaining()),
            ..git_spec(script, stdin, stdout_bytes_max)
        };
        let watch = Watch::of(self.watch.cancel.clone());
        let report = self.tree.run(spec, self.place, &watch, None)?;
        match report.outcome {
            Outcome::Cancelled => Err(PatchError::Cancelled),
            Outcome::LimitHit { kind, .. } => {
                let words = format!("the comparison went over the limit {}", kind.word());
                Err(PatchError::Rejected(words))
            }
            Outcome::Exited { .. } | Outcome::Signaled { .. } => Ok(report),
        }
    }
}

/// A run of `script` with sh, in which git reads no configuration but ours.
pub fn git_spec(script: &str, stdin: StdinSource, stdout_bytes_max: u64) -> RunSpec {
    let variables = environment();
    let variables = variables.iter().map(|(name, value)| text(&format!("{name}={value}")));
    RunSpec {
        argv: ["sh", "-c", script].map(text).into(),
        env: variables.collect(),
        workdir: PathBuf::from("/workspace"),
        stdin,
        excess_output: ExcessOutput::Dropped {
            stdout_bytes_max,
            stderr_bytes_max: STDERR_BYTES_MAX,
        },
        ..RunSpec::default()
    }
}

/// Which of `paths` the ignore files of the base ignore. What its index has is not ignored; a base that is no
/// repository has none. The result is in no order.
///
/// # Errors
/// git failed or took too long.
pub fn ignored_paths(git: &GitPhase<'_>, paths: &[&[u8]]) -> Result<BTreeSet<Vec<u8>>, PatchError> {
    const NONE_IGNORED: u8 = 1;
    if paths.is_empty() {
        return Ok(BTreeSet::new());
    }
    let list = paths.iter().flat_map(|path| [b"./", *path, b"\0"].concat()).collect();
    let stdin = StdinSource::Bytes(list);
    let report = git.run(IGNORED_SCRIPT, stdin, LIST_BYTES_MAX)?;
    match report.outcome {
        Outcome::Exited { code: 0 | NONE_IGNORED } if !report.stdout.truncated => {}
        _ => return Err(failed("check-ignore", &report)),
    }
    let listed = report.stdout.bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(listed.map(|path| path.strip_prefix(b"./").unwrap_or(path).to_vec()).collect())
}

/// Applies a ready patch to the repository.
///
/// # Errors
/// [`PatchError::Rejected`] with git's words if it does not apply.
pub fn apply_ready_patch(git: &GitPhase<'_>, patch: Vec<u8>) -> Result<(), PatchError> {
    // An empty one is no patch for git.
    if patch.trim_ascii().is_empty() {
        return Ok(());
    }
    let script = "exec git apply --whitespace=nowarn -";
    let report = git.run(script, StdinSource::Bytes(patch), STDERR_BYTES_MAX)?;
    match report.outcome {
        Outcome::Exited { code: 0 } => Ok(()),
        _ => Err(PatchError::Rejected(format!("the patch does not apply: {}", words(&report)))),
    }
}

/// git did not succeed.
pub(super) fn failed(command: &str, report: &RunReport) -> PatchError {
    PatchError::Sandbox(SetupFailure::from_words(format!("git {command}"), words(report)))
}

fn words(report: &RunReport) -> String {
    let said = report.stderr.text();
    match said.trim() {
        "" => format!("it ended with {}", report.outcome.word()),
        said => said.to_owned(),
    }
}

fn environment() -> BTreeMap<String, String> {
    let mut all = isolated_environment(SETTINGS.map(|(name, value)| (name.to_owned(), value)));
    all.insert("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned());
    all
}

/// As the kernel takes it; our own texts hold no NUL.
fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}
