//! The live kernels of a service: there may only be so many.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::kernel::RunningKernel;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::kernels::KernelLanguage;
use cofferdam_core::values::deadline::Deadline;

/// How long a dropped kernel may take to die.
const DEATH_WAIT: Duration = Duration::from_secs(10);

/// How long after the last kernel of a language new workspaces get one ahead.
const WANTED_FOR: Duration = Duration::from_secs(300);

/// The live kernels.
#[derive(Debug)]
pub struct KernelPool {
    kernels_max: usize,
    state: Mutex<PooledKernels>,
}

#[derive(Debug, Default)]
struct PooledKernels {
    /// A live one is held by the thread that runs its program, so nothing is kept of a dead one.
    live: Vec<Weak<RunningKernel>>,
    /// Kernels that are being started.
    starting: usize,
    /// When the last kernel of each language was started.
    started_at: Vec<(KernelLanguage, Instant)>,
}

/// Room for a kernel that is being started.
#[derive(Debug)]
pub struct KernelSlot<'a>(&'a KernelPool);

impl KernelPool {
    /// A pool of at most `kernels_max`.
    pub fn new(kernels_max: usize) -> Self {
        Self { kernels_max, state: Mutex::default() }
    }

    /// Makes room for one more: the one that has been idle for longest is dropped.
    ///
    /// # Errors
    /// All of them have calls.
    pub fn reserve(&self) -> Result<KernelSlot<'_>, EngineError> {
        loop {
            let mut state = self.lock();
            let live = state.live();
            state.live = live.iter().map(Arc::downgrade).collect();
            if live.len() + state.starting < self.kernels_max {
                state.starting += 1;
                return Ok(KernelSlot(self));
            }
            let idle = live.iter().filter(|kernel| kernel.idle_since().is_some());
            let longest = idle.min_by_key(|kernel| kernel.idle_since()).cloned();
            drop(state);
            let Some(longest) = longest else { return Err(full(self.kernels_max)) };
            if longest.drop_if_idle() && longest.wait_end(Deadline::after(DEATH_WAIT)).is_none() {
                log::error!("a dropped kernel has not ended");
                return Err(full(self.kernels_max));
            }
        }
    }

    /// The languages of which kernels were started lately: more of them are expected.
    pub fn wanted_languages(&self) -> Vec<KernelLanguage> {
        let state = self.lock();
        let recent = state.started_at.iter().filter(|(_, at)| at.elapsed() < WANTED_FOR);
        recent.map(|(language, _)| *language).collect()
    }

    /// How many are alive or being started.
    pub fn count(&self) -> usize {
        let state = self.lock();
        state.live().len() + state.starting
    }

    /// How many may be alive.
    pub fn max(&self) -> usize {
        self.kernels_max
    }

    /// Waits until none is alive. Returns false if the deadline passes first.
    pub fn wait_none(&self, deadline: Deadline) -> bool {
        let live = self.lock().live();
        live.iter().all(|kernel| kernel.wait_end(deadline).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, PooledKernels> {
        // Each change leaves the pool consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledKernels {
    fn live(&self) -> Vec<Arc<RunningKernel>> {
        let mut kernels: Vec<_> = self.live.iter().filter_map(Weak::upgrade).collect();
        kernels.retain(|kernel| kernel.wait_end(Deadline::after(Duration::ZERO)).is_none());
        kernels
    }
}

impl KernelSlot<'_> {
    /// Adds the kernel.
    pub fn fill(self, kernel: &Arc<RunningKernel>) {
        let mut state = self.0.lock();
        state.live.push(Arc::downgrade(kernel));
        state.started_at.retain(|(language, _)| *language != kernel.language);
        state.started_at.push((kernel.language, Instant::now()));
    }
}

impl Drop for KernelSlot<'_> {
    fn drop(&mut self) {
        self.0.lock().starting -= 1;
    }
}

fn full(kernels_max: usize) -> EngineError {
    let words = "as many kernels as there may be execute code";
    EngineError::new(EngineCode::EngineBusy, words)
        .with("limit", "kernels")
        .with("max", kernels_max)
}
