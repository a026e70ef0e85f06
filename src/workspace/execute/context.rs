//! A context: code that keeps its state, in a kernel that is started when it is needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use uuid::Uuid;

use super::kernel::RunningKernel;
use super::turns::TurnQueue;
use crate::workspace::kernels::KernelLanguage;
use crate::workspace::request::ProgramLimits;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::utc::rfc3339;

/// How long a killed kernel may take to die.
const DEATH_WAIT: Duration = Duration::from_secs(10);

/// A context of a workspace.
#[derive(Debug)]
pub struct CodeContext {
    /// Its id.
    pub id: String,
    /// The language of its code.
    pub language: KernelLanguage,
    /// How its kernels begin.
    pub settings: ContextSettings,
    /// Whose turn it is.
    pub turns: TurnQueue,
    created_at: SystemTime,
    state: Mutex<ContextState>,
}

/// How the kernels of a context begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextSettings {
    /// The directory, by the path rule; the workspace if none.
    pub cwd: Option<String>,
    /// The variables.
    pub env: BTreeMap<String, String>,
    /// The limits.
    pub limits: ProgramLimits,
}

#[derive(Debug)]
struct ContextState {
    kernel: Option<Arc<RunningKernel>>,
    /// Whether the state is lost, and no client has been told.
    is_lost: bool,
    used_at: SystemTime,
}

/// A context as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContextView {
    context_id: String,
    language: &'static str,
    status: &'static str,
    cwd: String,
    /// Names only.
    env: Vec<String>,
    limits: ProgramLimits,
    execution_count: u64,
    waiting: usize,
    created_at: String,
    last_used_at: String,
}

impl ContextView {
    /// The id of the context.
    pub fn context_id(&self) -> &str {
        &self.context_id
    }
}

impl CodeContext {
    /// A context without a kernel.
    pub fn new(language: KernelLanguage, settings: ContextSettings) -> Self {
        let now = SystemTime::now();
        Self {
            id: format!("c_{}", Uuid::new_v4().simple()),
            language,
            settings,
            turns: TurnQueue::new(),
            created_at: now,
            state: Mutex::new(ContextState { kernel: None, is_lost: false, used_at: now }),
        }
    }

    /// What clients see of it.
    pub fn view(&self) -> ContextView {
        let state = self.lock();
        let live = state.kernel.as_ref().filter(|kernel| kernel.is_live());
        let status = match live {
            _ if self.turns.is_taken() => "busy",
            Some(_) => "idle",
            None => "stopped",
        };
        ContextView {
            context_id: self.id.clone(),
            language: self.language.word(),
            status,
            cwd: self.settings.cwd.clone().unwrap_or_else(|| ".".to_owned()),
            env: self.settings.env.keys().cloned().collect(),
            limits: self.settings.limits,
            execution_count: live.map_or(0, |kernel| kernel.executions()),
            waiting: self.turns.waiting(),
            created_at: rfc3339(self.created_at),
            last_used_at: rfc3339(state.used_at),
        }
    }

    /// Claims its kernel for the call that has the turn, if it has one.
    pub fn claim(&self) -> Option<Arc<RunningKernel>> {
        let mut state = self.lock();
        state.used_at = SystemTime::now();
        let kernel = state.kernel.take()?;
        if kernel.claim() {
            state.kernel = Some(Arc::clone(&kernel));
            return Some(kernel);
        }
        state.is_lost = true;
        None
    }

    /// Gives it a new kernel, which the call that has the turn has started. Returns whether a state is
    /// lost of which no client was told.
    pub fn adopt(&self, kernel: Arc<RunningKernel>) -> bool {
        let mut state = self.lock();
        state.kernel = Some(kernel);
        std::mem::take(&mut state.is_lost)
    }

    /// Forgets the kernel: the call that has the turn has told its client that the state is lost.
    pub fn forget(&self, kernel: &Arc<RunningKernel>) {
        let mut state = self.lock();
        if state.kernel.as_ref().is_some_and(|known| Arc::ptr_eq(known, kernel)) {
            state.kernel = None;
        }
    }

    /// Its kernel, if it has one.
    pub fn kernel(&self) -> Option<Arc<RunningKernel>> {
        self.lock().kernel.clone()
    }

    /// Interrupts the code that it executes, if it does.
    pub fn interrupt(&self) {
        if let Some(kernel) = self.kernel() {
            kernel.interrupt();
        }
    }

    /// Kills its kernel; the next call has a fresh one. Returns when it is dead.
    pub fn restart(&self) {
        let kernel = self.lock().kernel.take();
        if let Some(kernel) = kernel {
            kernel.kill();
            if kernel.wait_end(Deadline::after(DEATH_WAIT)).is_none() {
                log::error!("a killed kernel has not ended");
            }
        }
    }

    /// Refuses the calls that wait, and kills its kernel. Returns when it is dead.
    pub fn close(&self) {
        self.turns.close();
        self.restart();
    }

    fn lock(&self) -> MutexGuard<'_, ContextState> {
        // Each change leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
