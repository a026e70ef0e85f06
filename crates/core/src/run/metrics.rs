//! Metrics of the sandbox and of the standby pool.

use std::time::Duration;

/// The state of the standby pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StandbyMetrics {
    /// The most prepared sandboxes there may be.
    pub sandboxes_max: usize,
    /// Prepared sandboxes that are ready now.
    pub ready: usize,
    /// Sandboxes prepared since the start.
    pub made: u64,
    /// Prepared sandboxes that a run used.
    pub used: u64,
    /// Prepared sandboxes discarded without a run.
    pub dropped: u64,
    /// Failed attempts to prepare a sandbox.
    pub failed: u64,
}

/// The state of the pool of warm sandboxes, whose programs have been started ahead of their runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrestartMetrics {
    /// The warm sandboxes that are ready, by label.
    pub ready: Vec<WarmSandboxes>,
    /// The most memory that they may have together, in bytes; 0 without such a pool.
    pub bytes_max: u64,
    /// Warm sandboxes made since the start.
    pub made: u64,
    /// Warm sandboxes that a run used.
    pub used: u64,
    /// Warm sandboxes discarded without a run.
    pub dropped: u64,
    /// Programs that did not get ready.
    pub failed: u64,
    /// The CPU time that programs used until they were ready.
    pub cpu: Duration,
}

/// The warm sandboxes of one label that are ready.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WarmSandboxes {
    /// The label: a language.
    pub label: String,
    /// How many.
    pub count: usize,
    /// The memory that they had when they got ready, in bytes.
    pub bytes: u64,
}

/// The state of the sandbox layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxMetrics {
    /// Sandboxes that did not die within the kill time limit.
    pub kill_failures: u64,
    /// Sandboxes that were killed but are not dead yet, and still hold their resources.
    pub undying: usize,
    /// The number of undying sandboxes from which on no new sandbox is created.
    pub undying_max: usize,
    /// Dead sandboxes that await cleanup.
    pub cleanup_backlog: usize,
    /// The backlog from which on an answer waits for the cleanup of its own sandbox.
    pub cleanup_backlog_max: usize,
    /// The leftovers that this start removed.
    pub swept: SweepCounts,
    /// Every control, and whether this host enforces it.
    pub controls: Vec<(String, bool)>,
}

/// Leftovers of dead servers that were removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Servers that did not shut down cleanly.
    pub servers: usize,
    /// Sandboxes that still existed.
    pub sandboxes: usize,
    /// Processes that were alive in them.
    pub processes: usize,
}
