//! Why a command did not do its work, and the exit codes of the contract.

use std::ffi::OsString;
use std::io;

use nix::errno::Errno;

use crate::check::run::CheckError;
use crate::config::Problems;
use cofferdam_core::{LimitKind, NotStarted, Outcome, SetupFailure};
use cofferdam_sandbox::host::host_kind::HostKind;
use cofferdam_sandbox::host::remedy::to_start;

/// Usage: options, files and configuration.
pub const USAGE: u8 = 2;
/// Something of the host's is in the way of the service: its port, its sandbox.
pub const NO_SERVICE: u8 = 1;
/// Killed for another limit than time.
pub const OTHER_LIMIT: u8 = 123;
/// Killed for a time limit.
pub const TIME_LIMIT: u8 = 124;
/// The sandbox itself failed.
pub const SANDBOX: u8 = 125;
/// The program is there and cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program is not there.
pub const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended something.
pub const BY_SIGNAL: u8 = 128;

/// Why a command did not do its work; shown in one line.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line, a file it names or the configuration is at fault.
    #[error("{0}")]
    Usage(String),
    /// The environment and the options together are; one problem a line.
    #[error(transparent)]
    Configuration(#[from] Problems),
    /// No box could be made.
    #[error("{0}; {advice}", advice = advice(.0))]
    Sandbox(#[from] SetupFailure),
    /// The program is not in the box.
    #[error("{}: not found inside the box; give its path there or --bind it", .0.display())]
    NotFound(OsString),
    /// The program is there and cannot be executed.
    #[error("{}: cannot be executed: {errno:?}; it has to be an executable file", program.display())]
    NotExecutable {
        /// The program as named.
        program: OsString,
        /// What exec said.
        errno: Errno,
    },
    /// The language cannot be run here.
    #[error("language unavailable: {0}; `cofferdam langs` lists what is there")]
    LanguageUnavailable(String),
    /// Output or a report could not be written.
    #[error("cannot write {what}: {}", error_words(source))]
    Write {
        /// Which.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The service cannot have its address.
    #[error("cannot listen on {address}: {}; choose another with --addr", error_words(source))]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The service has no box to run anything in.
    #[error("{0}; {advice}", advice = advice(.0))]
    Refused(SetupFailure),
    /// A limit of this process is too low for the service.
    #[error("{0}")]
    Limits(String),
    /// The service broke.
    #[error("cannot serve: {}", error_words(.0))]
    Serve(io::Error),
}

/// What to do about a box that could not be made.
fn advice(failure: &SetupFailure) -> String {
    const DOCTOR: &str = "`cofferdam doctor` says what this host can enforce";
    if failure.step.starts_with("workdir ") {
        return "it has to be a directory inside the box".to_owned();
    }
    if failure.reason.contains("memory limit") {
        return "raise --memory".to_owned();
    }
    if failure.errno == Some(libc::EFBIG) {
        return "raise the hard limit of file sizes (ulimit -Hf, LimitFSIZE=)".to_owned();
    }
    // Other failures are not what an engine's flags are about.
    let is_refused = failure.errno == Some(libc::EPERM);
    match to_start(HostKind::detect()).filter(|_| is_refused) {
        Some(flags) => format!("{flags}; {DOCTOR}"),
        None => DOCTOR.to_owned(),
    }
}

impl Failure {
    /// The exit code it has.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Configuration(_) => USAGE,
            Self::Listen { .. } | Self::Refused(_) | Self::Limits(_) | Self::Serve(_) => NO_SERVICE,
            Self::Sandbox(_) | Self::LanguageUnavailable(_) | Self::Write { .. } => SANDBOX,
            Self::NotExecutable { .. } => NOT_EXECUTABLE,
            Self::NotFound(_) => NOT_FOUND,
        }
    }

    /// Something said of `option` that does not hold.
    pub fn option(option: &str, fault: impl std::fmt::Display) -> Self {
        Self::Usage(format!("{option}: {fault}"))
    }

    /// `program` did not run.
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
            // A runner of one run's own is neither; said all the same.
            CheckError::Busy | CheckError::Draining => {
                Self::Sandbox(SetupFailure::from_words("admit", error.to_string()))
            }
        }
    }
}

/// What went wrong, in lower case and without a number.
pub fn error_words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => Errno::from_raw(errno).desc().to_lowercase(),
        None => error.to_string().to_lowercase(),
    }
}

/// The exit code that tells of `outcome`; none where somebody else ended the run.
pub fn code_of(outcome: Outcome) -> Option<u8> {
    match outcome {
        Outcome::LimitHit { kind: LimitKind::WallTime | LimitKind::CpuTime, .. } => {
            Some(TIME_LIMIT)
        }
        Outcome::LimitHit { kind: LimitKind::Memory | LimitKind::Output, .. } => Some(OTHER_LIMIT),
        // Refused inside, and the program's own code says what it made of that.
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
    fn a_program_that_did_not_run_is_missing_or_not_executable() {
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
