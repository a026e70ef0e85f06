//! What the executor orders the helper in a container to do, and what the helper answers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::case::cell::host::message::{StepOrder, StepReply};
use cofferdam_core::{LimitKind, Outcome};

/// The exit code of a shell for a program that signal n ended is this and n.
const BY_SIGNAL: u8 = 128;

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ContainerOrder {
    /// Run a command, at most so long. Its stdin has been sent before. It may reach the proxy if that is relayed.
    Run { step: StepOrder, timeout_ms: u64, is_relayed: bool },
    /// Give all below `path` to a user, without set-id bits. Nothing of it is being changed.
    TakeOver { path: PathBuf, uid: u32, gid: u32 },
    /// Send the content of a file as if a command wrote it to stdout.
    Read { path: PathBuf },
}

/// What the helper is held to, as it sees itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContainerFacts {
    pub(super) uid: u32,
    /// Whether it can have a capability, now or by a program that it runs.
    pub(super) has_capabilities: bool,
    pub(super) no_new_privileges: bool,
    /// Whether a filter of system calls holds.
    pub(super) is_filtered: bool,
    /// The links that identify its namespaces.
    pub(super) namespaces: BTreeMap<String, String>,
    /// Its network interfaces.
    pub(super) interfaces: Vec<String>,
    /// The version of control groups that limits its memory, and the bytes.
    pub(super) memory: Option<(u8, u64)>,
    /// The same for processes.
    pub(super) processes: Option<(u8, u64)>,
}

/// How often limits of the container have been met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LimitEvents {
    /// Processes that were killed for memory.
    pub(super) memory_kills: u64,
    /// Processes that could not be made.
    pub(super) refused_processes: u64,
}

/// Why the helper killed a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StepStop {
    /// Its time was over.
    Late,
    /// It was cancelled.
    Cancelled,
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContainerReply {
    /// How the command ended.
    pub(super) reply: StepReply,
    /// Why it was killed, if it was.
    pub(super) stopped: Option<StepStop>,
    /// The limits that it met.
    pub(super) events: LimitEvents,
}

impl LimitEvents {
    /// Those since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            memory_kills: self.memory_kills.saturating_sub(before.memory_kills),
            refused_processes: self.refused_processes.saturating_sub(before.refused_processes),
        }
    }
}

impl ContainerReply {
    /// How the command ended; none if nothing has run.
    pub(super) fn step_outcome(&self) -> Option<Outcome> {
        match &self.reply {
            StepReply::Ended(ended) => {
                Some(outcome(ended.code, ended.signal, self.stopped, self.events))
            }
            _ => None,
        }
    }
}

/// How a command ended that exited with `code`, or that `signal` ended. A limit explains only an end that is not 0.
pub(super) fn outcome(
    code: u8,
    signal: Option<i32>,
    stopped: Option<StepStop>,
    events: LimitEvents,
) -> Outcome {
    let shell_code = match signal {
        Some(signal) => {
            u8::try_from(signal).map_or(u8::MAX, |number| BY_SIGNAL.saturating_add(number))
        }
        None => code,
    };
    let limited = |kind| Outcome::LimitHit { kind, code: Some(shell_code) };
    match (stopped, signal) {
        (Some(StepStop::Late), _) => Outcome::LimitHit { kind: LimitKind::WallTime, code: None },
        (Some(StepStop::Cancelled), _) => Outcome::Cancelled,
        (None, None) if code == 0 => Outcome::Exited { code },
        _ if events.memory_kills > 0 => limited(LimitKind::Memory),
        _ if events.refused_processes > 0 => limited(LimitKind::Processes),
        (None, Some(signal)) => Outcome::Signaled { signal },
        (None, None) => Outcome::Exited { code },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_explains_an_end_that_is_not_0() {
        let events =
            |memory_kills, refused_processes| LimitEvents { memory_kills, refused_processes };
        let none = events(0, 0);
        let limit = |kind, code| Outcome::LimitHit { kind, code };
        for (code, signal, stopped, events, wanted) in [
            (0, None, None, none, Outcome::Exited { code: 0 }),
            (0, None, None, events(1, 1), Outcome::Exited { code: 0 }),
            (3, None, None, none, Outcome::Exited { code: 3 }),
            (0, Some(9), None, none, Outcome::Signaled { signal: 9 }),
            (0, Some(9), None, events(1, 0), limit(LimitKind::Memory, Some(137))),
            (137, None, None, events(1, 1), limit(LimitKind::Memory, Some(137))),
            (2, None, None, events(0, 4), limit(LimitKind::Processes, Some(2))),
            (0, Some(9), Some(StepStop::Late), none, limit(LimitKind::WallTime, None)),
            (0, Some(9), Some(StepStop::Cancelled), events(1, 0), Outcome::Cancelled),
        ] {
            assert_eq!(outcome(code, signal, stopped, events), wanted, "{code} {signal:?}");
        }
        assert_eq!(events(5, 2).since(events(3, 4)), events(2, 0));
    }
}
