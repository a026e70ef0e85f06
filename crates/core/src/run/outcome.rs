//! How a run ended, said once.

use super::limits::LimitKind;

/// How a run ended. The program's own status, where it has one, stands beside
/// the limit that explains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The program called exit with this code, 0..=255.
    Exited {
        /// The low eight bits of its argument.
        code: u8,
    },
    /// A signal ended the program, and no limit of ours explains it.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
    /// A limit ended it, or refused it something it then failed without.
    LimitHit {
        /// The limit.
        kind: LimitKind,
        /// The code the program itself ended with; none when we killed it.
        code: Option<u8>,
    },
    /// Somebody asked for its end.
    Cancelled,
}

impl Outcome {
    /// The word of `X-Run-Outcome` and of reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::Signaled { .. } => "signaled",
            Self::Cancelled => "cancelled",
            Self::LimitHit { kind, .. } => match kind {
                LimitKind::WallTime => "timed_out",
                LimitKind::CpuTime => "cpu_limit",
                LimitKind::Memory => "memory_limit",
                LimitKind::Processes => "process_limit",
                LimitKind::Disk => "disk_limit",
                LimitKind::Output => "output_limit",
            },
        }
    }

    /// The exit code as a shell would give it: 128+n for signal n, none when
    /// the program was ended before it had one.
    pub fn shell_code(self) -> Option<u8> {
        match self {
            Self::Exited { code } => Some(code),
            Self::Signaled { signal } => Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
            Self::LimitHit { code, .. } => code,
            Self::Cancelled => None,
        }
    }

    /// The limit that ended the run, if one did.
    pub fn limit(self) -> Option<LimitKind> {
        match self {
            Self::LimitHit { kind, .. } => Some(kind),
            Self::Exited { .. } | Self::Signaled { .. } | Self::Cancelled => None,
        }
    }
}

/// Why the box could not be made. User code has not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sandbox: {step}: {reason}")]
pub struct SetupFailure {
    /// The step, in the words of the plan: `mount /proc`, `cgroup memory`.
    pub step: String,
    /// The errno's name (`EPERM`), or a few words where no errno fits.
    pub reason: String,
    /// The errno, when the kernel gave one.
    pub errno: Option<i32>,
}

impl SetupFailure {
    /// A failure the kernel named.
    pub fn from_errno(step: impl Into<String>, errno: i32) -> Self {
        let name = format!("{:?}", nix::errno::Errno::from_raw(errno));
        Self { step: step.into(), reason: name, errno: Some(errno) }
    }

    /// A failure of a call of the standard library.
    pub fn from_io(step: impl Into<String>, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::from_errno(step, errno),
            None => Self::from_words(step, error.to_string()),
        }
    }

    /// A failure without an errno.
    pub fn from_words(step: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { step: step.into(), reason: reason.into(), errno: None }
    }
}

/// Why a program never ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// The box could not be made.
    #[error(transparent)]
    Setup(#[from] SetupFailure),
    /// The box stood, but the program could not be executed in it.
    #[error("sandbox: exec: {:?}", nix::errno::Errno::from_raw(*errno))]
    Exec {
        /// What exec said.
        errno: i32,
    },
}

impl NotStarted {
    /// The failure of a box whose program is ours too; `exec_step` names its start.
    pub fn into_failure(self, exec_step: &str) -> SetupFailure {
        match self {
            Self::Setup(failure) => failure,
            Self::Exec { errno } => SetupFailure::from_errno(exec_step, errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_codes_are_those_of_a_shell() {
        assert_eq!(Outcome::Exited { code: 3 }.shell_code(), Some(3));
        assert_eq!(Outcome::Signaled { signal: 9 }.shell_code(), Some(137));
        let memory = Outcome::LimitHit { kind: LimitKind::Memory, code: Some(137) };
        assert_eq!((memory.shell_code(), memory.word()), (Some(137), "memory_limit"));
        assert_eq!(Outcome::Cancelled.shell_code(), None);
    }

    #[test]
    fn a_setup_failure_names_step_and_errno() {
        assert_eq!(
            SetupFailure::from_errno("mount /proc", libc::EPERM).to_string(),
            "sandbox: mount /proc: EPERM"
        );
    }

    #[test]
    fn a_program_of_our_own_that_does_not_start_is_a_step_that_failed() {
        let setup = SetupFailure::from_errno("mount /proc", libc::EPERM);
        assert_eq!(NotStarted::from(setup.clone()).into_failure("exec sh"), setup);
        let exec = NotStarted::Exec { errno: libc::ENOENT };
        assert_eq!(exec.into_failure("exec sh").to_string(), "sandbox: exec sh: ENOENT");
    }
}
