//! Classifies the outcome of a run (pure).

use std::time::Duration;

use crate::launch::handshake::ProgramStatus;
use cofferdam_core::{LimitKind, Outcome};

/// Why the supervisor killed a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    /// The wall-clock time limit passed.
    WallTime,
    /// The sandbox used all of its CPU time.
    CpuTime,
    /// An output stream crossed its limit.
    Output,
    /// The run was cancelled.
    Cancelled,
}

/// What is known about a dead sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeInput {
    /// How the program ended by itself. `None` if it was killed, or died together with the init.
    pub status: Option<ProgramStatus>,
    /// Why the supervisor killed it, if it did.
    pub killed: Option<KillReason>,
    /// Processes that the OOM killer ended.
    pub oom_kills: u64,
    /// Whether the sandbox reached its limit of processes.
    pub processes_at_limit: bool,
    /// Whether its writable file system was full at the end.
    pub disk_full: bool,
    /// CPU time of all its processes.
    pub cpu: Duration,
    /// The CPU seconds each process may use.
    pub cpu_seconds_max: u64,
}

/// Returns the outcome. An action of the supervisor outweighs what the program did. A program that
/// exits with 0 has met no limit.
pub fn classify(input: &OutcomeInput) -> Outcome {
    match input.killed {
        Some(KillReason::Cancelled) => return Outcome::Cancelled,
        Some(KillReason::WallTime) => return limit(LimitKind::WallTime, None),
        Some(KillReason::CpuTime) => return limit(LimitKind::CpuTime, None),
        Some(KillReason::Output) => return limit(LimitKind::Output, None),
        None => {}
    }
    // Without a status the init died too. Only SIGKILL ends it.
    let status = input.status.unwrap_or(ProgramStatus::Signaled(libc::SIGKILL));
    let own = match status {
        ProgramStatus::Exited(code) => Outcome::Exited { code },
        ProgramStatus::Signaled(signal) => Outcome::Signaled { signal },
    };
    if status == ProgramStatus::Exited(0) {
        return own;
    }
    match cause(input, status) {
        Some(kind) => limit(kind, own.shell_code()),
        None => own,
    }
}

/// The limit that explains why a program failed, if there is one.
fn cause(input: &OutcomeInput, status: ProgramStatus) -> Option<LimitKind> {
    if input.oom_kills > 0 {
        return Some(LimitKind::Memory);
    }
    // A process that ignores SIGXCPU is killed one second later, so the CPU time used must confirm
    // it. The kernel counts ticks for that limit and time here: the two differ by up to a fifth.
    let cpu_is_up = input.cpu * 5 >= Duration::from_secs(input.cpu_seconds_max) * 4;
    if ended_by(status, libc::SIGXCPU) || (ended_by(status, libc::SIGKILL) && cpu_is_up) {
        return Some(LimitKind::CpuTime);
    }
    if ended_by(status, libc::SIGXFSZ) || input.disk_full {
        return Some(LimitKind::Disk);
    }
    input.processes_at_limit.then_some(LimitKind::Processes)
}

/// Whether `signal` ended the program, or a child whose status its shell passed on.
fn ended_by(status: ProgramStatus, signal: i32) -> bool {
    match status {
        ProgramStatus::Signaled(by) => by == signal,
        ProgramStatus::Exited(code) => i32::from(code) == 128 + signal,
    }
}

fn limit(kind: LimitKind, code: Option<u8>) -> Outcome {
    Outcome::LimitHit { kind, code }
}

#[cfg(test)]
mod tests {
    use super::ProgramStatus::{Exited, Signaled};
    use super::*;

    const QUIET: OutcomeInput = OutcomeInput {
        status: None,
        killed: None,
        oom_kills: 0,
        processes_at_limit: false,
        disk_full: false,
        cpu: Duration::from_millis(10),
        cpu_seconds_max: 2,
    };

    #[test]
    fn a_program_that_met_no_limit_has_its_own_status() {
        for (status, outcome) in [
            (Exited(0), Outcome::Exited { code: 0 }),
            (Exited(137), Outcome::Exited { code: 137 }),
            (Signaled(11), Outcome::Signaled { signal: 11 }),
            (Signaled(9), Outcome::Signaled { signal: 9 }),
        ] {
            assert_eq!(classify(&OutcomeInput { status: Some(status), ..QUIET }), outcome);
        }
    }

    #[test]
    fn a_kill_by_the_supervisor_outweighs_everything() {
        let table = [
            (KillReason::WallTime, "timed_out"),
            (KillReason::CpuTime, "cpu_limit"),
            (KillReason::Output, "output_limit"),
            (KillReason::Cancelled, "cancelled"),
        ];
        for (reason, word) in table {
            let input = OutcomeInput {
                killed: Some(reason),
                status: Some(Exited(1)),
                oom_kills: 1,
                disk_full: true,
                ..QUIET
            };
            let outcome = classify(&input);
            assert_eq!((outcome.word(), outcome.shell_code()), (word, None));
        }
    }

    #[test]
    fn a_limit_explains_a_failure_and_keeps_its_code() {
        let two_seconds = Duration::from_secs(2);
        let table = [
            (OutcomeInput { status: Some(Exited(1)), oom_kills: 1, ..QUIET }, "memory_limit", 1),
            (OutcomeInput { status: None, oom_kills: 1, ..QUIET }, "memory_limit", 137),
            (OutcomeInput { status: Some(Signaled(libc::SIGXCPU)), ..QUIET }, "cpu_limit", 152),
            (OutcomeInput { status: Some(Exited(152)), ..QUIET }, "cpu_limit", 152),
            (
                OutcomeInput { status: Some(Exited(137)), cpu: two_seconds, ..QUIET },
                "cpu_limit",
                137,
            ),
            (OutcomeInput { status: Some(Signaled(libc::SIGXFSZ)), ..QUIET }, "disk_limit", 153),
            (OutcomeInput { status: Some(Exited(1)), disk_full: true, ..QUIET }, "disk_limit", 1),
            (
                OutcomeInput { status: Some(Exited(2)), processes_at_limit: true, ..QUIET },
                "process_limit",
                2,
            ),
        ];
        for (input, word, code) in table {
            let outcome = classify(&input);
            assert_eq!((outcome.word(), outcome.shell_code()), (word, Some(code)), "{input:?}");
        }
    }

    #[test]
    fn a_program_that_exits_with_0_has_met_no_limit() {
        let input = OutcomeInput {
            status: Some(Exited(0)),
            oom_kills: 3,
            processes_at_limit: true,
            disk_full: true,
            cpu: Duration::from_secs(100),
            ..QUIET
        };
        assert_eq!(classify(&input), Outcome::Exited { code: 0 });
    }

    #[test]
    fn an_init_killed_from_outside_counts_as_the_program_killed() {
        assert_eq!(classify(&QUIET), Outcome::Signaled { signal: libc::SIGKILL });
    }
}
