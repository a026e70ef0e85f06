//! Figures of what a service does and has, as those who make boxes tell them.

/// Of the boxes made ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StandbyMetrics {
    /// The most there may be.
    pub boxes_max: usize,
    /// Those that stand ready now.
    pub ready: usize,
    /// Made since the start.
    pub made: u64,
    /// Given to a run.
    pub used: u64,
    /// Let go without one.
    pub dropped: u64,
    /// That could not be made.
    pub failed: u64,
}

/// Of the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxMetrics {
    /// Boxes that did not die in the time they had.
    pub kill_failures: u64,
    /// Boxes that were killed, are not dead yet, and keep what they hold.
    pub undying: usize,
    /// With as many of them no new box is made.
    pub undying_max: usize,
    /// Dead boxes that are still to be cleared away.
    pub cleanup_backlog: usize,
    /// How many of them wait before an answer waits for its own.
    pub cleanup_backlog_max: usize,
    /// What this start cleared away.
    pub swept: SweepCounts,
    /// Every control, and whether this host enforces it.
    pub controls: Vec<(String, bool)>,
}

/// What dead servers had left behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Servers that had not ended by themselves.
    pub servers: usize,
    /// Boxes that were still there.
    pub boxes: usize,
    /// Processes that were alive in them.
    pub processes: usize,
}
