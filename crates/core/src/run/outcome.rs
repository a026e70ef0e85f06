//! How a run ended, or why it did not start.

use super::limits::LimitKind;

/// The highest signal number.
const SIGNAL_MAX: i32 = 64;

/// How a run ended. A limit that explains the end carries the program's own exit code, if it has
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The program exited with this code, 0 to 255.
    Exited {
        /// The low eight bits of its argument.
        code: u8,
    },
    /// A signal ended the program, and no limit explains it.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
    /// A limit ended the program, or refused a resource without which it failed.
    LimitHit {
        /// The limit.
        kind: LimitKind,
        /// The program's own exit code; `None` if the supervisor killed it.
        code: Option<u8>,
    },
    /// The run was cancelled.
    Cancelled,
}

impl Outcome {
    /// The word for it in `X-Run-Outcome` and in reports.
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

    /// The exit code as a shell reports it: 128+n for signal n. `None` if the program was killed
    /// before it had one.
    pub fn shell_code(self) -> Option<u8> {
        match self {
            Self::Exited { code } => Some(code),
            Self::Signaled { signal } => Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
            Self::LimitHit { code, .. } => code,
            Self::Cancelled => None,
        }
    }

    /// The signal that ended the program, also one that was sent because of a limit.
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Signaled { signal } => Some(signal),
            Self::LimitHit { code: Some(code), .. } => {
                Some(i32::from(code) - 128).filter(|signal| (1..=SIGNAL_MAX).contains(signal))
            }
            Self::Exited { .. } | Self::LimitHit { code: None, .. } | Self::Cancelled => None,
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

/// Why the sandbox could not be created. No user code has run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sandbox: {step}: {reason}")]
pub struct SetupFailure {
    /// The step of the plan that failed: `mount /proc`, `cgroup memory`.
    pub step: String,
    /// The errno's name (`EPERM`), or a short text if there is no errno.
    pub reason: String,
    /// The errno, if the kernel returned one.
    pub errno: Option<i32>,
}

impl SetupFailure {
    /// A failure with an errno.
    pub fn from_errno(step: impl Into<String>, errno: i32) -> Self {
        let name = format!("{:?}", nix::errno::Errno::from_raw(errno));
        Self { step: step.into(), reason: name, errno: Some(errno) }
    }

    /// A failure of a standard library call.
    pub fn from_io(step: impl Into<String>, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::from_errno(step, errno),
            None => Self::from_words(step, error.to_string()),
        }
    }

    /// A failure without an errno, described by `reason`.
    pub fn from_words(step: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { step: step.into(), reason: reason.into(), errno: None }
    }
}

/// Why a program did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// The sandbox could not be created.
    #[error(transparent)]
    Setup(#[from] SetupFailure),
    /// The sandbox was created, but exec of the program failed.
    #[error("sandbox: exec: {:?}", nix::errno::Errno::from_raw(*errno))]
    Exec {
        /// The errno of exec.
        errno: i32,
    },
}

impl NotStarted {
    /// Converts to a setup failure, for a sandbox whose program belongs to Cofferdam. `exec_step`
    /// names the step that started it.
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
