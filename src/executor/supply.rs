//! Where the sandboxes of a standby pool come from: prepared ones, and warm ones, whose programs are
//! executed ahead of their runs.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::executor::factory::{PrestartedSandbox, ReadySandbox, SandboxFactory};
use crate::executor::pool_key::PoolKey;
use crate::executor::pool_policy::{PoolPolicy, PrepareResult};
use cofferdam_core::SetupFailure;
use cofferdam_core::sync::counter::Counter;
use cofferdam_sandbox::engine::{PrestartBounds, PrestartFault};

/// How long to wait after a program did not get ready before it is executed again.
const PRESTART_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Makes the sandboxes of one pool.
pub trait Supply: Debug + Send + Sync + 'static {
    /// A sandbox that waits for its run.
    type Sandbox: Debug + Send;
    /// The name of the pool's thread.
    const THREAD: &'static str;
    /// How long a run waits for a sandbox that is being made.
    const TAKE_WAIT: Duration;

    /// Adds the bounds of these sandboxes to `policy`.
    fn bounded(&self, policy: PoolPolicy<Self::Sandbox>) -> PoolPolicy<Self::Sandbox> {
        policy
    }

    /// Makes a sandbox of `key` with at most `bytes_left` of memory, if that counts. It dies with the
    /// calling thread.
    fn prepare(&self, key: &PoolKey, bytes_left: u64) -> PrepareResult<Self::Sandbox>;

    /// Whether `ready` is alive and equals one made now.
    fn is_current(&self, ready: &Self::Sandbox) -> Result<bool, SetupFailure>;

    /// The memory of `ready` that counts, in bytes.
    fn bytes(_ready: &Self::Sandbox) -> u64 {
        0
    }

    /// No more sandboxes are wanted, not even the one that is being made.
    fn stop(&self) {}
}

/// Prepared sandboxes, whose programs are executed at the request.
#[derive(Debug)]
pub struct ColdSupply(pub Arc<SandboxFactory>);

impl Supply for ColdSupply {
    type Sandbox = ReadySandbox;
    const THREAD: &'static str = "standby";
    // Creating its own takes no longer.
    const TAKE_WAIT: Duration = Duration::from_millis(10);

    fn prepare(&self, key: &PoolKey, _: u64) -> PrepareResult<ReadySandbox> {
        match self.0.prepare(key) {
            Ok(Some(ready)) => PrepareResult::Prepared(ready),
            Ok(None) => PrepareResult::Unsettled,
            Err(failure) => {
                log::warn!("cannot prepare a sandbox: {failure}");
                PrepareResult::Failed
            }
        }
    }

    fn is_current(&self, ready: &ReadySandbox) -> Result<bool, SetupFailure> {
        self.0.is_current(ready)
    }
}

/// Warm sandboxes.
#[derive(Debug)]
pub struct WarmSupply {
    factory: Arc<SandboxFactory>,
    bytes_max: u64,
    is_stopped: AtomicBool,
    /// The CPU time until programs were ready, in microseconds.
    cpu_us: Counter,
}

impl WarmSupply {
    /// Sandboxes of `factory` with at most `bytes_max` of memory together.
    pub fn new(factory: Arc<SandboxFactory>, bytes_max: u64) -> Self {
        Self { factory, bytes_max, is_stopped: AtomicBool::new(false), cpu_us: Counter::default() }
    }

    /// The most memory of all sandboxes together, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The CPU time that programs used until they were ready.
    pub fn cpu(&self) -> Duration {
        Duration::from_micros(self.cpu_us.get())
    }
}

impl Supply for WarmSupply {
    type Sandbox = PrestartedSandbox;
    const THREAD: &'static str = "prestart";
    // A program takes longer to get ready than to run in a new sandbox.
    const TAKE_WAIT: Duration = Duration::ZERO;

    fn bounded(&self, policy: PoolPolicy<PrestartedSandbox>) -> PoolPolicy<PrestartedSandbox> {
        policy.bounded(self.bytes_max, PRESTART_RETRY_AFTER)
    }

    fn prepare(&self, key: &PoolKey, bytes_left: u64) -> PrepareResult<PrestartedSandbox> {
        let bounds = PrestartBounds { bytes_max: bytes_left, is_given_up: &self.is_stopped };
        let label = key.label().unwrap_or_default();
        let prestarted = match key {
            PoolKey::Template(key) => self.factory.prestart(key, &bounds),
            PoolKey::Mounted(key) => self.factory.prestart_mounted(key, &bounds),
        };
        match prestarted {
            Ok(Some(ready)) => {
                let used_us = ready.warm.cpu().as_micros();
                self.cpu_us.add(usize::try_from(used_us).unwrap_or(usize::MAX));
                PrepareResult::Prepared(ready)
            }
            Ok(None) => PrepareResult::Unsettled,
            Err(PrestartFault::GivenUp) => PrepareResult::Unsettled,
            Err(fault) => {
                log::warn!("prestart of {label}: {fault}; its runs start without");
                match fault {
                    PrestartFault::TooLarge { bytes } => PrepareResult::TooLarge(bytes),
                    _ => PrepareResult::Failed,
                }
            }
        }
    }

    fn is_current(&self, ready: &PrestartedSandbox) -> Result<bool, SetupFailure> {
        self.factory.is_waiting(ready)
    }

    fn bytes(ready: &PrestartedSandbox) -> u64 {
        ready.warm.bytes()
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}
