//! Errors of commands, and the exit codes of the contract.

use std::ffi::OsString;
use std::io;

use nix::errno::Errno;

use crate::check::run::CheckError;
use crate::config::Problems;
use cofferdam_core::{LimitKind, NotStarted, Outcome, SetupFailure};
use cofferdam_sandbox::host::host_kind::HostKind;
use cofferdam_sandbox::host::remedy::to_start;

/// A usage error: options, files or configuration.
pub const USAGE: u8 = 2;
/// The host prevents the service from starting: its port, its sandbox.
pub const NO_SERVICE: u8 = 1;
/// Killed for a limit other than time.
pub const OTHER_LIMIT: u8 = 123;
/// Killed for a time limit.
pub const TIME_LIMIT: u8 = 124;
/// The sandbox itself failed.
pub const SANDBOX: u8 = 125;
/// The program exists but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program does not exist.
pub const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the program.
pub const BY_SIGNAL: u8 = 128;

/// Why a command failed; printed in one line.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line, a file it names or the configuration is wrong.
    #[error("{0}")]
    Usage(String),
    /// The environment and the options are wrong; one line for each problem.
    #[error(transparent)]
    Configuration(#[from] Problems),
    /// No sandbox could be created.
    #[error("{0}; {advice}", advice = advice(.0))]
    Sandbox(#[from] SetupFailure),
    /// The program does not exist in the sandbox.
    #[error("{}: not found in the sandbox; give its path there or --bind it", .0.display())]
    NotFound(OsString),
    /// The program exists but cannot be executed.
    #[error("{}: cannot be executed: {errno:?}; it must be an executable file", program.display())]
    NotExecutable {
        /// The program as named.
        program: OsString,
        /// The error of exec.
        errno: Errno,
    },
    /// The language is not available on this host.
    #[error("language unavailable: {0}; `cofferdam langs` lists what is available")]
    LanguageUnavailable(String),
    /// Output or a report could not be written.
    #[error("cannot write {what}: {}", error_words(source))]
    Write {
        /// What could not be written.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// What a command changed was changed in the directory too; one line for each path.
    #[error("{}", conflict_lines(.0))]
    Conflict(Vec<String>),
    /// The service cannot listen on its address.
    #[error("cannot listen on {address}: {}; choose another with --addr", error_words(source))]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The error.
        source: io::Error,
    },
    /// The service cannot create a sandbox.
    #[error("{0}; {advice}", advice = advice(.0))]
    Refused(SetupFailure),
    /// A resource limit of this process is too low for the service.
    #[error("{0}")]
    Limits(String),
    /// The service failed.
    #[error("cannot serve: {}", error_words(.0))]
    Serve(io::Error),
}

fn conflict_lines(paths: &[String]) -> String {
    let lines: Vec<_> = paths.iter().map(|path| format!("conflict: {path}")).collect();
    lines.join("\n")
}

/// How to fix a sandbox that could not be created.
fn advice(failure: &SetupFailure) -> String {
    const DOCTOR: &str = "`cofferdam doctor` reports what this host can enforce";
    if failure.step.starts_with("workdir ") {
        return "it must be a directory in the sandbox".to_owned();
    }
    if failure.reason.contains("memory limit") {
        return "raise --memory".to_owned();
    }
    if failure.errno == Some(libc::EFBIG) {
        return "raise the hard limit of file sizes (ulimit -Hf, LimitFSIZE=)".to_owned();
    }
    // The flags of a container engine fix only refused calls.
    let is_refused = failure.errno == Some(libc::EPERM);
    match to_start(HostKind::detect()).filter(|_| is_refused) {
        Some(flags) => format!("{flags}; {DOCTOR}"),
        None => DOCTOR.to_owned(),
    }
}

impl Failure {
    /// The exit code of this failure.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Configuration(_) => USAGE,
            Self::Listen { .. } | Self::Refused(_) | Self::Limits(_) | Self::Serve(_) => NO_SERVICE,
            Self::Sandbox(_)
            | Self::LanguageUnavailable(_)
            | Self::Write { .. }
            | Self::Conflict(_) => SANDBOX,
            Self::NotExecutable { .. } => NOT_EXECUTABLE,
            Self::NotFound(_) => NOT_FOUND,
        }
    }

    /// A usage error in the value of `option`.
    pub fn option(option: &str, fault: impl std::fmt::Display) -> Self {
        Self::Usage(format!("{option}: {fault}"))
    }

    /// The failure of a `program` that did not start.
    pub fn not_started(program: OsString, why: NotStarted) -> Self {
        match why {
            NotStarted::Setup(failure) => Self::Sandbox(failure),
            NotStarted::Exec { errno: libc::ENOENT } => Self::NotFound(program),
            NotStarted::Exec { errno } => {
                Self::NotExecutable { program, errno: Errno::from_raw(errno) }
            }
        }
    }
}

impl From<CheckError> for Failure {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Invalid(fault) => Self::Usage(fault),
            CheckError::LanguageUnavailable(reason) => Self::LanguageUnavailable(reason),
            CheckError::Sandbox(failure) => Self::Sandbox(failure),
            // Not expected: a runner of a single check is never busy or draining.
            CheckError::Busy | CheckError::Draining => {
                Self::Sandbox(SetupFailure::from_words("admit", error.to_string()))
            }
        }
    }
}

/// The message of `error`, in lower case and without its number.
pub fn error_words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => Errno::from_raw(errno).desc().to_lowercase(),
        None => error.to_string().to_lowercase(),
    }
}

/// The exit code of `outcome`; `None` if the run was cancelled.
pub fn code_of(outcome: Outcome) -> Option<u8> {
    match outcome {
        Outcome::LimitHit { kind: LimitKind::WallTime | LimitKind::CpuTime, .. } => {
            Some(TIME_LIMIT)
        }
        Outcome::LimitHit { kind: LimitKind::Memory | LimitKind::Output, .. } => Some(OTHER_LIMIT),
        // The sandbox refused a call; the program's own exit code stands.
        Outcome::LimitHit { kind: LimitKind::Processes | LimitKind::Disk, .. }
        | Outcome::Exited { .. }
        | Outcome::Signaled { .. }
        | Outcome::Cancelled => outcome.shell_code(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_the_code_of_the_contract() {
        use LimitKind::{CpuTime, Disk, Memory, Output, Processes, WallTime};
        let limit = |kind, code| Outcome::LimitHit { kind, code };
        for (outcome, code) in [
            (Outcome::Exited { code: 0 }, Some(0)),
            (Outcome::Exited { code: 255 }, Some(255)),
            (Outcome::Signaled { signal: libc::SIGKILL }, Some(137)),
            (limit(WallTime, None), Some(124)),
            (limit(CpuTime, None), Some(124)),
            (limit(CpuTime, Some(152)), Some(124)),
            (limit(Memory, Some(1)), Some(123)),
            (limit(Output, None), Some(123)),
            (limit(Processes, Some(2)), Some(2)),
            (limit(Disk, Some(153)), Some(153)),
            (Outcome::Cancelled, None),
        ] {
            assert_eq!(code_of(outcome), code, "{outcome:?}");
        }
    }

    #[test]
    fn exec_errors_map_to_not_found_or_not_executable() {
        for (errno, code) in [
            (libc::ENOENT, NOT_FOUND),
            (libc::EACCES, NOT_EXECUTABLE),
            (libc::ENOEXEC, NOT_EXECUTABLE),
            (libc::EISDIR, NOT_EXECUTABLE),
        ] {
            let failure = Failure::not_started("prog".into(), NotStarted::Exec { errno });
            assert_eq!(failure.code(), code, "{failure}");
        }
        let setup = SetupFailure::from_errno("mount /proc", libc::EPERM);
        let failure = Failure::not_started("prog".into(), setup.into());
        assert_eq!(failure.code(), SANDBOX);
        assert!(failure.to_string().starts_with("sandbox: mount /proc: EPERM;"), "{failure}");
    }
}
