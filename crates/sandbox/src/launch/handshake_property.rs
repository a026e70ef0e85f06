//! A property for the fuzzer: the supervisor reads any bytes on its status pipe as specified.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use cofferdam_core::{CapturedStream, Enforced, Limits, NotStarted, Outcome};

use super::handshake::StatusPipe;
use crate::cgroup::GroupUsage;
use crate::init::wire::{ENDED, FAILED, PREPARED, READY, RECORD_BYTES};
use crate::plan::ChildPlan;
use crate::plan::steps::Step;
use crate::plan::steps::identity::IdentityStep;
use crate::plan::steps::mount::MountStep;
use crate::plan::steps::start::ExecTarget;
use crate::plan::steps::start::StartStep;
use crate::supervise::io::pipe::pipe_from_sandbox;
use crate::supervise::observation::Observation;
use crate::supervise::report::FinishedRun;
use crate::sys::Rusage;

/// The most records of an init: prepared, ready, a failure of each of its two processes, an end.
const RECORDS_MAX: usize = 5;

/// The input is the size of a write, then the bytes to write.
pub fn check(input: &[u8]) {
    let Some((size, written)) = input.split_first() else { return };
    let Ok((ours, theirs)) = pipe_from_sandbox() else { return };
    let (mut pipe, mut init) = (StatusPipe::new(ours), File::from(theirs));
    let (mut observed, mut expected) = (Observation::default(), ExpectedRecords::default());
    for write in written.chunks(usize::from(*size).max(1)) {
        assert!(init.write_all(write).is_ok());
        expected.take(write);
        let listened = listen(&mut pipe, &mut observed);
        assert_eq!(listened.is_err(), expected.is_hostile, "{listened:?}");
        if expected.is_hostile {
            return;
        }
        expected.compare(&observed);
    }
    drop(init);
    assert!(listen(&mut pipe, &mut observed).is_ok());
    assert!(pipe.pipe().is_none(), "a pipe without a writer is still polled");
    expected.compare(&observed);
    expected.compare_report(observed);
}

/// Reads everything that has arrived, as the supervisor's loop does.
fn listen(pipe: &mut StatusPipe, observed: &mut Observation) -> std::io::Result<()> {
    let mut messages = 0;
    while let Some(message) = pipe.next()? {
        observed.record(message);
        messages += 1;
        assert!(messages <= RECORDS_MAX, "the loop listens and does nothing else");
    }
    Ok(())
}

/// What follows from the records so far, decoded independently.
#[derive(Debug, Default)]
struct ExpectedRecords {
    records: usize,
    /// Some bytes cannot come from an init.
    is_hostile: bool,
    started: bool,
    /// As first seen; it must not change.
    started_at: Option<Instant>,
    failed: Option<(u32, i32)>,
    ended: Option<i32>,
}

impl ExpectedRecords {
    fn take(&mut self, write: &[u8]) {
        for record in write.chunks(RECORD_BYTES) {
            self.records += 1;
            self.is_hostile |= record.len() < RECORD_BYTES || self.records > RECORDS_MAX;
            if self.is_hostile {
                return;
            }
            let word = |at: usize| {
                let bytes = [record[at], record[at + 1], record[at + 2], record[at + 3]];
                u32::from_ne_bytes(bytes)
            };
            match (word(0), self.ended) {
                (READY | FAILED | ENDED, Some(_)) | (PREPARED, _) => {}
                (READY, None) => self.started |= self.failed.is_none(),
                (FAILED, None) => {
                    self.failed.get_or_insert((word(4), word(8).cast_signed()));
                }
                (ENDED, None) => self.ended = Some(word(8).cast_signed()),
                _ => self.is_hostile = true,
            }
        }
    }

    fn compare(&mut self, observed: &Observation) {
        assert_eq!(observed.started.is_some(), self.started, "{self:?}");
        assert_eq!(observed.failed, self.failed, "{self:?}");
        assert_eq!(observed.ended.is_some(), self.ended.is_some(), "{self:?}");
        assert!(observed.started <= Some(Instant::now()), "it starts in the future");
        if self.started_at.is_none() {
            self.started_at = observed.started;
        }
        assert_eq!(observed.started, self.started_at, "a later record moves the time limit");
    }

    /// A program that was not ready, or that failed to start, has no outcome.
    fn compare_report(&self, observed: Observation) {
        let exec = Step::Start(StartStep::Exec(ExecTarget {
            fd: None,
            paths: Vec::new(),
            argv: Vec::new(),
            env: Vec::new(),
        }));
        let plan = ChildPlan {
            setup: vec![Step::Mount(MountStep::MountProc)],
            program: vec![Step::Start(StartStep::ReportReady), exec],
            guard: vec![Step::Identity(IdentityStep::MakeUndumpable)],
        };
        let now = Instant::now();
        let remains = FinishedRun {
            released: None,
            observed,
            group: GroupUsage::default(),
            rusage: Rusage::default(),
            disk_full: false,
            stdout: CapturedStream::default(),
            stderr: CapturedStream::default(),
            prepare_began: now,
            dead_at: now,
            looked: Duration::ZERO,
        };
        let report = remains.into_report(&plan, &Limits::default(), Enforced::default(), vec![]);
        match (report, self.failed) {
            (Err(NotStarted::Exec { errno }), failed) => assert_eq!(failed, Some((2, errno))),
            (Err(NotStarted::Setup(failure)), Some((_, errno))) => {
                assert_eq!(failure.errno, Some(errno));
            }
            (Err(NotStarted::Setup(failure)), None) => {
                assert!(!self.started, "{failure}");
                assert_eq!(failure.errno, None);
            }
            (Ok(report), _) => {
                assert!(self.started && self.failed.is_none(), "{report:?}");
                self.compare_outcome(report.outcome);
            }
        }
    }

    fn compare_outcome(&self, outcome: Outcome) {
        // An init that dies without a record was killed.
        let status = self.ended.unwrap_or(libc::SIGKILL);
        let code = match libc::WIFEXITED(status) {
            true => libc::WEXITSTATUS(status),
            false => 128 + (status & 0x7f),
        };
        let said = outcome.shell_code().map(i32::from);
        assert_eq!(said, Some(code), "{outcome:?} of wait status {status:#x}");
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_fixtures::kept_inputs;

    #[test]
    fn every_kept_input_holds() {
        kept_inputs::replay("handshake", super::check);
    }
}
