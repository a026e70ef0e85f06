//! OutcomeInput about a dead box, turned into its outcome.

use std::time::Duration;

use crate::launch::handshake::ProgramStatus;
use cofferdam_core::{LimitKind, Outcome};

/// Why the supervisor ended a box that was still running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    /// Its wall-clock time was up.
    WallTime,
    /// The box's CPU time was up.
    CpuTime,
    /// A stream crossed its limit.
    Output,
    /// Somebody asked for it.
    Cancelled,
}

/// What is known when nothing of the box is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeInput {
    /// How the program ended by itself; none when it was cut short, or died
    /// together with the init.
    pub status: Option<ProgramStatus>,
    /// Why we ended it, if we did.
    pub killed: Option<KillReason>,
    /// Processes the kernel killed for want of memory.
    pub oom_kills: u64,
    /// Whether the box once had as many processes as it may.
    pub processes_at_limit: bool,
    /// Whether its writable file system was full at the end.
    pub disk_full: bool,
    /// CPU time it used.
    pub cpu: Duration,
    /// The CPU seconds any one process was allowed.
    pub cpu_seconds_max: u64,
}

/// The outcome. What we did outweighs what the program did; a program that
/// ended well hit no limit that mattered to it.
pub fn classify(input: &OutcomeInput) -> Outcome {
    match input.killed {
        Some(KillReason::Cancelled) => return Outcome::Cancelled,
        Some(KillReason::WallTime) => return limit(LimitKind::WallTime, None),
        Some(KillReason::CpuTime) => return limit(LimitKind::CpuTime, None),
        Some(KillReason::Output) => return limit(LimitKind::Output, None),
        None => {}
    }
    // Without a status the init died too, which only a SIGKILL can do to it.
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

/// The limit that explains a program that ended badly, if one does.
fn cause(input: &OutcomeInput, status: ProgramStatus) -> Option<LimitKind> {
    if input.oom_kills > 0 {
        return Some(LimitKind::Memory);
    }
    // Whoever ignores SIGXCPU is killed a second later, which needs the clock's word too. The
    // kernel counts ticks there and time here: up to a fifth apart.
    let cpu_is_up = input.cpu * 5 >= Duration::from_secs(input.cpu_seconds_max) * 4;
    if ended_by(status, libc::SIGXCPU) || (ended_by(status, libc::SIGKILL) && cpu_is_up) {
        return Some(LimitKind::CpuTime);
    }
    if ended_by(status, libc::SIGXFSZ) || input.disk_full {
        return Some(LimitKind::Disk);
    }
    input.processes_at_limit.then_some(LimitKind::Processes)
}

/// Whether `signal` ended the program, or a child whose end its shell passed on.
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
    fn what_the_supervisor_did_outweighs_everything() {
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
    fn a_limit_explains_a_bad_end_and_keeps_its_code() {
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
    fn a_good_end_hit_no_limit() {
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
