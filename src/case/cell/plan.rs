//! What a Cell needs, as its Case says it.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::case::file::{Case, CaseLimits};

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
    /// The executor of the Cells of `case`: the one that was asked for, else a container if the Case has one.
    pub fn of(case: &Case, asked: Option<Self>) -> Self {
        asked.unwrap_or(match case.container {
            Some(_) => Self::Container,
            None => Self::Sandboxed,
        })
    }

    /// The executor with that name.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Sandboxed, Self::Local, Self::Container].into_iter().find(|kind| kind.word() == word)
    }

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

/// How long a Cell may take to be made or removed.
pub(super) const FILES_TIMEOUT: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::file::load_case;

    #[test]
    fn a_container_runs_the_cells_of_a_case_that_has_one_unless_another_executor_is_asked_for() {
        use CellExecutorKind::{Container, Local, Sandboxed};
        for (block, asked, wanted) in [
            ("", None, Sandboxed),
            ("", Some("local"), Local),
            ("container: {image: a}\n", None, Container),
            ("container: {image: a}\n", Some("sandboxed"), Sandboxed),
        ] {
            let place = tempfile::tempdir().unwrap();
            let head = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";
            std::fs::write(place.path().join("case.yaml"), format!("{head}{block}")).unwrap();
            let case = load_case(place.path()).unwrap().case;
            let asked = asked.map(|word| CellExecutorKind::parse(word).unwrap());
            assert_eq!(CellExecutorKind::of(&case, asked), wanted, "{block}");
        }
        assert_eq!(CellExecutorKind::parse("docker"), None);
    }
}
