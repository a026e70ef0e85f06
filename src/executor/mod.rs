//! Backends: a run's input becomes its report.

mod factory;
mod fill;
mod host_ids;
mod mounted;
mod pool_key;
mod pool_policy;
mod sandbox;
mod standby_pool;
#[cfg(test)]
mod tests;

pub use cofferdam_core::executor::{
    COMMAND_PATH, Capabilities, Executor, FoundProgram, Room, RunInput, Unavailable, WorkspaceInput,
};
pub use host_ids::AcquiredId;
pub use mounted::{MountSource, MountedIdentity, MountedRun, WorkspaceView};
pub use sandbox::SandboxExecutor;
