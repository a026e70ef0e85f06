//! How the end of a run becomes the outcome of a job. Pure.

use nix::errno::Errno;

use cofferdam_core::job::{ErrorCode, JobError, JobStatus};
use cofferdam_core::{LimitKind, NotStarted, Outcome, SetupFailure};

/// A shell adds this to the number of the signal that ended a program.
const BY_SIGNAL: u8 = 128;
/// The highest signal number.
const SIGNAL_MAX: u8 = 64;

/// How a job ended, as its result says it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOutcome {
    /// The last state.
    pub status: JobStatus,
    /// The exit code, if the program exited.
    pub exit_code: Option<u8>,
    /// The signal that ended the program.
    pub signal: Option<i32>,
    /// What went wrong.
    pub error: Option<JobError>,
}

impl JobOutcome {
    /// An outcome without an exit code or a signal.
    pub fn without_run(status: JobStatus, error: JobError) -> Self {
        Self { status, exit_code: None, signal: None, error: Some(error) }
    }

    /// The outcome of a canceled job.
    pub fn canceled() -> Self {
        let error = JobError::new(ErrorCode::Canceled, "the job was canceled");
        Self::without_run(JobStatus::Canceled, error)
    }

    /// The outcome of a job that the end of the service interrupted.
    pub fn interrupted() -> Self {
        let error = JobError::new(ErrorCode::Interrupted, "the service ended before the job");
        Self::without_run(JobStatus::Failed, error.with("reason", "interrupted"))
    }

    /// The outcome of a program that ran.
    pub fn of_run(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Exited { code: 0 } => {
                Self { status: JobStatus::Completed, exit_code: Some(0), signal: None, error: None }
            }
            Outcome::Exited { code } => {
                let error = format!("the program exited with {code}");
                let error = JobError::new(ErrorCode::ExitNonzero, error).with("exit_code", code);
                Self { exit_code: Some(code), ..Self::without_run(JobStatus::Failed, error) }
            }
            Outcome::Signaled { signal } => {
                let error = format!("signal {signal} ended the program");
                let error = JobError::new(ErrorCode::ExitNonzero, error).with("signal", signal);
                Self { signal: Some(signal), ..Self::without_run(JobStatus::Failed, error) }
            }
            Outcome::LimitHit { kind: LimitKind::WallTime, .. } => {
                let error = JobError::new(ErrorCode::TimedOut, "limits.timeout_ms was over");
                Self::without_run(JobStatus::TimedOut, error)
            }
            Outcome::LimitHit { kind, code } => {
                let error = JobError::new(
                    ErrorCode::LimitExceeded,
                    format!("the {} limit was met", kind.word()),
                );
                let (exit_code, signal) = code.map_or((None, None), exit_code_or_signal);
                let error = error.with("limit", kind.word());
                Self { exit_code, signal, ..Self::without_run(JobStatus::Failed, error) }
            }
            Outcome::Cancelled => Self::canceled(),
        }
    }

    /// The outcome of the program `argv0` that did not start.
    pub fn not_started(why: NotStarted, argv0: &str) -> Self {
        match why {
            NotStarted::Setup(failure) => Self::setup_failed(&failure),
            NotStarted::Exec { errno } => {
                let errno = Errno::from_raw(errno);
                Self::spawn_failed(argv0, &format!("{errno:?}"), errno.desc())
            }
        }
    }

    /// The outcome of a sandbox that could not be created.
    pub fn setup_failed(failure: &SetupFailure) -> Self {
        let error = JobError::new(ErrorCode::BackendSetupFailed, failure.to_string());
        let error = error.with("step", failure.step.as_str());
        let error = error.with("reason", failure.reason.as_str());
        Self::without_run(JobStatus::SetupFailed, error)
    }

    /// The outcome of a program that is missing or cannot be executed.
    pub fn spawn_failed(argv0: &str, reason: &str, words: &str) -> Self {
        let error = JobError::new(ErrorCode::SpawnFailed, format!("{argv0}: {words}"));
        let error = error.with("argv0", argv0).with("reason", reason);
        Self::without_run(JobStatus::SetupFailed, error)
    }

    /// Adds a failure outside the run, such as a full disk. It replaces a success only.
    pub fn with_failure(self, fault: Option<JobError>) -> Self {
        match fault {
            Some(error) if self.status == JobStatus::Completed => {
                Self { status: JobStatus::Failed, error: Some(error), ..self }
            }
            _ => self,
        }
    }
}

/// The exit code or the signal that a shell's code stands for.
fn exit_code_or_signal(code: u8) -> (Option<u8>, Option<i32>) {
    match code.checked_sub(BY_SIGNAL) {
        Some(signal @ 1..=SIGNAL_MAX) => (None, Some(i32::from(signal))),
        _ => (Some(code), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_status_and_its_code() {
        use ErrorCode::{Canceled, ExitNonzero, LimitExceeded, TimedOut};
        let limit = |kind, code| Outcome::LimitHit { kind, code };
        for (outcome, status, exit_code, signal, code) in [
            (Outcome::Exited { code: 0 }, JobStatus::Completed, Some(0), None, None),
            (Outcome::Exited { code: 3 }, JobStatus::Failed, Some(3), None, Some(ExitNonzero)),
            (Outcome::Signaled { signal: 9 }, JobStatus::Failed, None, Some(9), Some(ExitNonzero)),
            (limit(LimitKind::WallTime, None), JobStatus::TimedOut, None, None, Some(TimedOut)),
            (
                limit(LimitKind::Memory, Some(137)),
                JobStatus::Failed,
                None,
                Some(9),
                Some(LimitExceeded),
            ),
            (
                limit(LimitKind::Disk, Some(1)),
                JobStatus::Failed,
                Some(1),
                None,
                Some(LimitExceeded),
            ),
            (limit(LimitKind::CpuTime, None), JobStatus::Failed, None, None, Some(LimitExceeded)),
            (Outcome::Cancelled, JobStatus::Canceled, None, None, Some(Canceled)),
        ] {
            let ended = JobOutcome::of_run(outcome);
            assert_eq!((ended.status, ended.exit_code, ended.signal), (status, exit_code, signal));
            assert_eq!(ended.error.as_ref().map(|error| error.code), code, "{outcome:?}");
            if let Some(kind) = outcome.limit().filter(|kind| *kind != LimitKind::WallTime) {
                assert_eq!(ended.error.unwrap().details["limit"], kind.word());
            }
        }
    }

    #[test]
    fn a_missing_program_and_a_failed_setup_have_different_codes() {
        let outcome = JobOutcome::not_started(NotStarted::Exec { errno: libc::ENOENT }, "magic");
        let error = outcome.error.unwrap();
        assert_eq!((outcome.status, error.code), (JobStatus::SetupFailed, ErrorCode::SpawnFailed));
        assert_eq!(
            (&error.details["argv0"], &error.details["reason"]),
            (&"magic".into(), &"ENOENT".into())
        );
        let failure = SetupFailure::from_errno("mount /proc", libc::EPERM);
        let error = JobOutcome::not_started(failure.into(), "magic").error.unwrap();
        assert_eq!(error.code, ErrorCode::BackendSetupFailed);
        assert_eq!(error.details["step"], "mount /proc");
    }

    #[test]
    fn a_failure_outside_the_run_replaces_a_success_only() {
        let fault = || Some(JobError::new(ErrorCode::IoFailed, "disk full"));
        let failed_outside = JobOutcome::of_run(Outcome::Exited { code: 0 }).with_failure(fault());
        assert_eq!((failed_outside.status, failed_outside.exit_code), (JobStatus::Failed, Some(0)));
        assert_eq!(failed_outside.error.unwrap().code, ErrorCode::IoFailed);
        let failed = JobOutcome::of_run(Outcome::Exited { code: 3 }).with_failure(fault());
        assert_eq!(failed.error.unwrap().code, ErrorCode::ExitNonzero);
    }
}
