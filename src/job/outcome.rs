//! How a run's end is told of a job (pure).

use nix::errno::Errno;

use cofferdam_core::job::{ErrorCode, JobError, JobStatus};
use cofferdam_core::{LimitKind, NotStarted, Outcome, SetupFailure};

/// Added to the number of the signal that ended a program, in a shell's code.
const BY_SIGNAL: u8 = 128;
/// The highest number of a signal.
const SIGNAL_MAX: u8 = 64;

/// A job's end, in its result's words.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOutcome {
    /// The state it ends in.
    pub status: JobStatus,
    /// What the program ended with, where it did by itself.
    pub exit_code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What went wrong.
    pub error: Option<JobError>,
}

impl JobOutcome {
    /// An end before anything ran, or beside what ran.
    pub fn without_run(status: JobStatus, error: JobError) -> Self {
        Self { status, exit_code: None, signal: None, error: Some(error) }
    }

    /// Of a job somebody asked the end of.
    pub fn canceled() -> Self {
        let error = JobError::new(ErrorCode::Canceled, "the job was canceled");
        Self::without_run(JobStatus::Canceled, error)
    }

    /// Of a job that the service's own end cut short.
    pub fn interrupted() -> Self {
        let error = JobError::new(ErrorCode::Interrupted, "the service ended before the job");
        Self::without_run(JobStatus::Failed, error.with("reason", "interrupted"))
    }

    /// Of a program that ran and ended so.
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
                let (exit_code, signal) = code.map_or((None, None), by_itself_or_signal);
                let error = error.with("limit", kind.word());
                Self { exit_code, signal, ..Self::without_run(JobStatus::Failed, error) }
            }
            Outcome::Cancelled => Self::canceled(),
        }
    }

    /// Of a program that never ran, which `argv0` named.
    pub fn not_started(why: NotStarted, argv0: &str) -> Self {
        match why {
            NotStarted::Setup(failure) => Self::setup_failed(&failure),
            NotStarted::Exec { errno } => {
                let errno = Errno::from_raw(errno);
                Self::spawn_failed(argv0, &format!("{errno:?}"), errno.desc())
            }
        }
    }

    /// Of a box that could not be made.
    pub fn setup_failed(failure: &SetupFailure) -> Self {
        let error = JobError::new(ErrorCode::BackendSetupFailed, failure.to_string());
        let error = error.with("step", failure.step.as_str());
        let error = error.with("reason", failure.reason.as_str());
        Self::without_run(JobStatus::SetupFailed, error)
    }

    /// Of a program that is not there, or cannot be executed.
    pub fn spawn_failed(argv0: &str, reason: &str, words: &str) -> Self {
        let error = JobError::new(ErrorCode::SpawnFailed, format!("{argv0}: {words}"));
        let error = error.with("argv0", argv0).with("reason", reason);
        Self::without_run(JobStatus::SetupFailed, error)
    }

    /// The same, spoilt by what went wrong beside the run: told where the run itself went well.
    pub fn with_failure(self, fault: Option<JobError>) -> Self {
        match fault {
            Some(error) if self.status == JobStatus::Completed => {
                Self { status: JobStatus::Failed, error: Some(error), ..self }
            }
            _ => self,
        }
    }
}

/// A shell's code as what it stands for.
fn by_itself_or_signal(code: u8) -> (Option<u8>, Option<i32>) {
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
            let ending = JobOutcome::of_run(outcome);
            assert_eq!(
                (ending.status, ending.exit_code, ending.signal),
                (status, exit_code, signal)
            );
            assert_eq!(ending.error.as_ref().map(|error| error.code), code, "{outcome:?}");
            if let Some(kind) = outcome.limit().filter(|kind| *kind != LimitKind::WallTime) {
                assert_eq!(ending.error.unwrap().details["limit"], kind.word());
            }
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_told_from_a_box_that_could_not_be_made() {
        let ending = JobOutcome::not_started(NotStarted::Exec { errno: libc::ENOENT }, "magic");
        let error = ending.error.unwrap();
        assert_eq!((ending.status, error.code), (JobStatus::SetupFailed, ErrorCode::SpawnFailed));
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
    fn a_fault_beside_the_run_spoils_a_good_end_and_hides_no_bad_one() {
        let fault = || Some(JobError::new(ErrorCode::IoFailed, "disk full"));
        let spoilt = JobOutcome::of_run(Outcome::Exited { code: 0 }).with_failure(fault());
        assert_eq!((spoilt.status, spoilt.exit_code), (JobStatus::Failed, Some(0)));
        assert_eq!(spoilt.error.unwrap().code, ErrorCode::IoFailed);
        let failed = JobOutcome::of_run(Outcome::Exited { code: 3 }).with_failure(fault());
        assert_eq!(failed.error.unwrap().code, ErrorCode::ExitNonzero);
    }
}
