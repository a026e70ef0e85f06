//! What a Cell needs, as its Case says it.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::error::{ExecCode, ExecError};
use crate::case::file::{Case, CaseLimits, SourceIsolation, SourceOrigin};

/// Which executor a Cell has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellExecutorKind {
    /// A sandbox for each command.
    Sandboxed,
    /// The host itself.
    Local,
    /// A container.
    Container,
}

impl CellExecutorKind {
    /// Its name in results and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sandboxed => "sandboxed",
            Self::Local => "local",
            Self::Container => "container",
        }
    }
}

/// What a Cell is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellSettings {
    /// The directory that is copied into the sandbox, if any.
    pub source: Option<PathBuf>,
    /// The copy of the Case's directory that provisioning and setup see, if any.
    pub case_dir: Option<PathBuf>,
    /// What each command may use.
    pub limits: StepLimits,
}

/// What one command may use besides its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Bytes of memory.
    pub memory_bytes_max: u64,
    /// Processes and threads.
    pub processes_max: u64,
    /// Bytes on the disk of the Cell, besides its source.
    pub disk_bytes_max: u64,
    /// Kept bytes of stdout.
    pub stdout_bytes_max: u64,
    /// Kept bytes of stderr.
    pub stderr_bytes_max: u64,
}

impl Default for StepLimits {
    /// Those of a Case that names none.
    fn default() -> Self {
        Self::of(&CaseLimits::default())
    }
}

impl StepLimits {
    /// Those of a Case.
    pub fn of(limits: &CaseLimits) -> Self {
        // A case file has no number below 1 here.
        let amount = |value: i64| u64::try_from(value).unwrap_or(1);
        Self {
            memory_bytes_max: amount(limits.memory_bytes),
            processes_max: amount(limits.processes),
            disk_bytes_max: amount(limits.disk_bytes),
            stdout_bytes_max: amount(limits.stdout_bytes),
            stderr_bytes_max: amount(limits.stderr_bytes),
        }
    }
}

impl CellSettings {
    /// The settings of a Cell of `case`, and its executor: the one that was asked for, or the one that the Case
    /// chooses.
    ///
    /// # Errors
    /// The Case needs what is not built yet, or names no image for the container that was asked for.
    pub fn of(
        case: &Case,
        asked: Option<CellExecutorKind>,
    ) -> Result<(Self, CellExecutorKind), ExecError> {
        let chosen = match case.container {
            Some(_) => CellExecutorKind::Container,
            None => CellExecutorKind::Sandboxed,
        };
        let kind = asked.unwrap_or(chosen);
        if kind == CellExecutorKind::Container && case.container.is_none() {
            let words = "container: the Case names no image";
            let error = ExecError::new(ExecCode::BackendUnavailable, words);
            return Err(error.with("part", "container"));
        }
        if case.environment.as_ref().is_some_and(|environment| environment.venv) {
            return Err(not_built("environment"));
        }
        for (part, is_empty) in
            [("setup.stub", case.setup.stub.is_empty()), ("setup.run", case.setup.run.is_empty())]
        {
            if !is_empty {
                return Err(not_built(part));
            }
        }
        let source = match &case.source {
            None => None,
            Some(source) => match (&source.origin, source.isolation) {
                (_, SourceIsolation::Clone | SourceIsolation::Worktree) => {
                    return Err(not_built("source.isolation"));
                }
                (Some(SourceOrigin::Repo { .. }), _) => return Err(not_built("source.repo")),
                (Some(SourceOrigin::Path(path)), _) => Some(path.clone()),
                (None, _) => None,
            },
        };
        Ok((Self { source, case_dir: None, limits: StepLimits::of(&case.limits) }, kind))
    }
}

/// The refusal of a Case that has `part`.
fn not_built(part: &'static str) -> ExecError {
    let words = format!("'{part}' is not supported yet: this Cell cannot be set up");
    ExecError::new(ExecCode::BackendUnavailable, words).with("part", part)
}

/// How long a Cell may take to be made or removed.
pub(super) const FILES_TIMEOUT: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::file::load_case;

    fn settings(
        yaml: &str,
        asked: Option<CellExecutorKind>,
    ) -> Result<(CellSettings, CellExecutorKind), String> {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("src")).unwrap();
        let head = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";
        std::fs::write(place.path().join("case.yaml"), format!("{head}{yaml}")).unwrap();
        let case = load_case(place.path()).unwrap().case;
        CellSettings::of(&case, asked).map_err(|error| {
            assert_eq!(error.code, ExecCode::BackendUnavailable);
            error.details["part"].clone()
        })
    }

    #[test]
    fn a_case_without_a_container_is_sandboxed_and_its_limits_are_those_of_each_command() {
        let yaml = "source: {path: src}\nlimits: {memory_bytes: 5, stdout_bytes: 7}\n";
        let (made, kind) = settings(yaml, None).unwrap();
        assert_eq!(kind, CellExecutorKind::Sandboxed);
        assert!(made.source.unwrap().ends_with("src"));
        let limits =
            StepLimits { memory_bytes_max: 5, stdout_bytes_max: 7, ..StepLimits::default() };
        assert_eq!(made.limits, limits);
        let local = settings("", Some(CellExecutorKind::Local)).unwrap();
        assert_eq!(local, (CellSettings::default(), CellExecutorKind::Local));
        settings("environment: {venv: false}\n", None).unwrap();
    }

    #[test]
    fn what_is_not_built_yet_is_refused_by_its_name() {
        let commit = "0".repeat(40);
        for (yaml, part) in [
            ("environment: {}\n", "environment"),
            ("environment: {kind: command, commands: [make]}\n", "environment"),
            ("setup: {run: [make]}\n", "setup.run"),
            ("setup: {stub: [{file: a.py, function: f}]}\n", "setup.stub"),
            ("source: {path: src, isolation: clone}\n", "source.isolation"),
            ("source: {path: src, isolation: worktree}\n", "source.isolation"),
            (&format!("source: {{repo: a/b, commit: '{commit}'}}\n"), "source.repo"),
        ] {
            assert_eq!(settings(yaml, None).unwrap_err(), part, "{yaml}");
        }
        assert_eq!(settings("", Some(CellExecutorKind::Container)).unwrap_err(), "container");
        let (_, kind) = settings("container: {image: a}\n", None).unwrap();
        assert_eq!(kind, CellExecutorKind::Container);
    }
}
