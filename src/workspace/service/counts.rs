//! Counters of the engine.

use cofferdam_core::sync::counter::Counter;

use super::live::WorkspaceEnd;
use crate::workspace::error::EngineCode;

/// Why workspaces end, with the words of the metric.
const ENDS: [(WorkspaceEnd, &str); 4] = [
    (WorkspaceEnd::Cleanup, "cleanup"),
    (WorkspaceEnd::Drain, "drain"),
    (WorkspaceEnd::Ttl, "ttl"),
    (WorkspaceEnd::Idle, "idle"),
];
/// The refusals that an operator can do something about.
const REFUSALS: [EngineCode; 7] = [
    EngineCode::WorkspacesFull,
    EngineCode::EngineBusy,
    EngineCode::EngineClosed,
    EngineCode::TokenLimit,
    EngineCode::WorkspaceLimit,
    EngineCode::WorkspaceDiskFull,
    EngineCode::StoreFull,
];

/// Counts since the start.
#[derive(Debug, Default)]
pub struct EngineCounts {
    /// Workspaces that were made.
    pub created: Counter,
    /// Those of them that began with the files of another or of a snapshot.
    pub forked: Counter,
    ended: [Counter; ENDS.len()],
    saved: Counter,
    saves_failed: Counter,
    refused: [Counter; REFUSALS.len()],
}

/// The counters at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineMetrics {
    /// Workspaces.
    pub workspaces: usize,
    /// The most workspaces.
    pub workspaces_max: usize,
    /// Workspaces that are in the store only.
    pub parked: usize,
    /// Saves of workspaces since the start.
    pub saved: u64,
    /// Saves that failed since the start.
    pub saves_failed: u64,
    /// Workspaces that were made since the start.
    pub created: u64,
    /// Those of them that began with the files of another or of a snapshot.
    pub forked: u64,
    /// Workspaces that ended since the start, by the reason.
    pub ended: Vec<(&'static str, u64)>,
    /// Programs that run.
    pub runs: usize,
    /// The most programs at once.
    pub runs_max: usize,
    /// Sessions whose program runs.
    pub sessions: usize,
    /// Live kernels.
    pub kernels: usize,
    /// The most live kernels.
    pub kernels_max: usize,
    /// Snapshots.
    pub snapshots: usize,
    /// The most snapshots.
    pub snapshots_max: usize,
    /// Bytes of the workspaces in memory, with what programs may still write.
    pub disk_bytes: u64,
    /// The most such bytes.
    pub disk_bytes_max: u64,
    /// Refusals since the start, by the code.
    pub refused: Vec<(&'static str, u64)>,
}

impl EngineCounts {
    /// Counts a workspace that ended.
    pub fn count_end(&self, why: WorkspaceEnd) {
        let index = ENDS.iter().position(|(known, _)| *known == why);
        if let Some(counter) = index.and_then(|index| self.ended.get(index)) {
            counter.increment();
        }
    }

    /// Counts a save of a workspace.
    pub fn count_save(&self, is_saved: bool) {
        if is_saved { &self.saved } else { &self.saves_failed }.increment();
    }

    /// Counts a refusal, if it is for a limit.
    pub fn count_refusal(&self, code: EngineCode) {
        let index = REFUSALS.iter().position(|known| *known == code);
        if let Some(counter) = index.and_then(|index| self.refused.get(index)) {
            counter.increment();
        }
    }

    /// The counts; everything else is of `now`.
    pub fn read(&self, now: &EngineMetrics) -> EngineMetrics {
        let ended = ENDS.iter().zip(&self.ended).map(|((_, word), count)| (*word, count.get()));
        let refused =
            REFUSALS.iter().zip(&self.refused).map(|(code, count)| (code.word(), count.get()));
        EngineMetrics {
            created: self.created.get(),
            forked: self.forked.get(),
            saved: self.saved.get(),
            saves_failed: self.saves_failed.get(),
            parked: now.parked,
            ended: ended.collect(),
            refused: refused.collect(),
            ..now.clone()
        }
    }
}
