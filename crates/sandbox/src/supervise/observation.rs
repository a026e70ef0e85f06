//! What the supervise loop learns about one sandbox.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::classify::KillReason;
use crate::launch::handshake::{Message, ProgramStatus};

/// What the supervise loop learned.
#[derive(Debug, Default)]
pub struct Observation {
    /// When the program was about to exec.
    pub started: Option<Instant>,
    /// How the program ended by itself, and when.
    pub ended: Option<(ProgramStatus, Instant)>,
    /// Why the supervisor kills the sandbox, and since when.
    pub killed: Option<(KillReason, Instant)>,
    /// The first step that failed, and its errno.
    pub failed: Option<(u32, i32)>,
    /// Whether the creation of the sandbox took too long.
    pub setup_timed_out: bool,
    /// Whether every process of the sandbox is dead.
    pub dead: bool,
}

impl Observation {
    /// Records a message of the init. The first message of a kind counts: a second `READY` must not
    /// move the time limit. PID 1 and the program's process can send at the same time, so a message
    /// may follow a failure; the program does not start then. After the end nothing counts.
    pub fn record(&mut self, message: Message) {
        if self.ended.is_some() {
            return;
        }
        match message {
            // Only read while a sandbox is prepared.
            Message::Prepared => {}
            Message::Ready { at_ns } => {
                if self.failed.is_none() {
                    self.started.get_or_insert_with(|| instant_of(at_ns));
                }
            }
            Message::Failed { step, errno } => {
                self.failed.get_or_insert((step, errno));
            }
            Message::Ended { status, at_ns } => {
                self.ended.get_or_insert((status, instant_of(at_ns)));
            }
        }
    }

    /// Whether the program exited by itself with status 0.
    pub fn ended_well(&self) -> bool {
        self.killed.is_none()
            && self.ended.is_some_and(|(status, _)| status == ProgramStatus::Exited(0))
    }

    /// Whether the program ran and every process of the sandbox is dead.
    pub fn has_run(&self) -> bool {
        self.started.is_some() && self.failed.is_none() && self.dead
    }

    /// Whether the supervisor has to kill it.
    pub fn must_die(&self) -> bool {
        self.killed.is_some() || self.failed.is_some() || self.setup_timed_out
    }

    pub(super) fn note_kill(&mut self, reason: KillReason) {
        // The first reason counts, and no reason counts once the program has ended.
        if self.killed.is_none() && self.ended.is_none() {
            self.killed = Some((reason, Instant::now()));
        }
    }

    /// Too much output counts even if the program has ended.
    pub(super) fn note_overflow(&mut self) {
        if self.killed.is_none() {
            self.killed = Some((KillReason::Output, Instant::now()));
        }
    }
}

/// The instant at which `CLOCK_MONOTONIC` read `at_ns`. [`Instant`] uses the same clock.
fn instant_of(at_ns: u64) -> Instant {
    let now = Instant::now();
    let Ok(clock) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return now };
    let ago = Duration::from(clock).saturating_sub(Duration::from_nanos(at_ns));
    now.checked_sub(ago).unwrap_or(now)
}
