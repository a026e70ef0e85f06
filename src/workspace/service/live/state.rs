//! What changes of a live workspace: times, charges, programs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::service::ledger::DiskCharge;
use crate::workspace::trees::TreeUsage;
use cofferdam_core::Watch;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::run_control::RunControl;
use cofferdam_core::values::deadline::Deadline;

/// Why a workspace ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceEnd {
    /// A client asked for it.
    Cleanup,
    /// The service ends.
    Drain,
    /// It lived as long as it may.
    Ttl,
    /// It was unused for as long as it may be.
    Idle,
}

/// What changes of a live workspace.
#[derive(Debug)]
pub struct LiveState {
    pub charge: DiskCharge,
    /// The bytes that writes in progress may add.
    pub reserved_bytes: u64,
    pub ttl: Duration,
    pub idle: Duration,
    pub ttl_from: Instant,
    pub used_at: Instant,
    pub last_access: SystemTime,
    /// Requests in progress.
    pub uses: usize,
    pub programs: BTreeMap<u64, LiveProgram>,
    pub programs_begun: u64,
    pub is_over: bool,
    /// When the reaper looks at it again, whatever its times say.
    pub reaped_after: Option<Instant>,
    /// Changes to save, and how many of them are saved.
    pub changes: u64,
    pub changes_saved: u64,
    /// When its files were as they are saved.
    pub saved_at: Option<SystemTime>,
}

/// What reaches a live program.
#[derive(Debug, Clone)]
pub struct LiveProgram {
    /// Ends it at once.
    pub cancel: CancelToken,
    /// Gives it orders.
    /// Nothing if it is a call, whose own programs are counted besides it.
    pub control: Option<RunControl>,
    /// What it is.
    pub kind: ProgramKind,
}

/// What a program is for its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// The workspace is not idle while it lives.
    Run,
    /// It waits for code: only the calls that it executes are a use of the workspace.
    Kernel,
    /// The one sandbox of the workspace, in which its programs run, with what they left.
    Sandbox,
}

impl LiveProgram {
    /// What reaches the program of a run with this watch, which gets a control if it has none.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn of(watch: &mut Watch) -> Result<Self, EngineError> {
        let control = match watch.control.clone() {
            Some(control) => control,
            None => RunControl::new().map_err(|error| {
                EngineError::new(EngineCode::SandboxFailed, format!("eventfd: {error}"))
            })?,
        };
        watch.control = Some(control.clone());
        let (cancel, kind) = (watch.cancel.clone(), ProgramKind::Run);
        Ok(Self { cancel, control: Some(control), kind })
    }

    /// A call that runs programs of its own, and that `cancel` ends.
    pub fn call(cancel: CancelToken) -> Self {
        Self { cancel, control: None, kind: ProgramKind::Run }
    }
}

/// The times and counts of a workspace at one moment.
#[derive(Debug, Clone, Copy)]
pub struct LiveFacts {
    /// How long it lives.
    pub ttl: Duration,
    /// How long it lives unused.
    pub idle: Duration,
    /// When it was last used.
    pub last_access: SystemTime,
    /// When it ends unless it is used.
    pub expires_at: SystemTime,
    /// Programs that run.
    pub programs: usize,
    /// When its files were as they are saved.
    pub saved_at: Option<SystemTime>,
}

impl LiveState {
    /// When the workspace ends if nothing else happens, and why.
    pub fn end(&self) -> (Instant, WorkspaceEnd) {
        let ttl = (Deadline::at(self.ttl_from, self.ttl).instant(), WorkspaceEnd::Ttl);
        if self.uses > 0 || self.runs() > 0 {
            return ttl;
        }
        let idle = Deadline::at(self.used_at, self.idle).instant();
        if idle < ttl.0 { (idle, WorkspaceEnd::Idle) } else { ttl }
    }

    /// As [`LiveState::end`], when the requests that use the workspace now have ended.
    pub fn end_unless_used(&self, now: Instant) -> Instant {
        let end = self.end().0;
        match self.runs() {
            0 if self.uses > 0 => end.min(Deadline::at(now, self.idle).instant()),
            _ => end,
        }
    }

    /// How many programs keep the workspace from being idle.
    pub fn runs(&self) -> usize {
        self.programs.values().filter(|program| program.kind == ProgramKind::Run).count()
    }

    /// Notes a use.
    pub fn touch(&mut self) {
        self.used_at = Instant::now();
        self.last_access = SystemTime::now();
    }

    /// As [`LiveState::end`], as the reaper sees it.
    pub fn reaped_at(&self) -> Instant {
        let at = self.end().0;
        self.reaped_after.map_or(at, |after| after.max(at))
    }

    /// Begins the end, and kills the programs. Returns whether this call began it.
    pub fn mark_over(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        self.is_over = true;
        self.programs.values().for_each(|program| program.cancel.cancel());
        true
    }

    /// Charges what is used, and what writes in progress may add; with a program, all that the workspace
    /// may hold.
    pub fn charge_usage(&mut self, usage: TreeUsage) {
        let most = usage.own_bytes_max();
        let bytes = match self.programs.len() {
            0 => usage.own_bytes().saturating_add(self.reserved_bytes).min(most),
            _ => most,
        };
        // It is used already, or was charged before.
        self.charge.correct(bytes);
    }
}
