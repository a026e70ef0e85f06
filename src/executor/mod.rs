//! Backends: a run's input becomes its report.

mod factory;
mod fill;
mod home_files;
mod host_ids;
mod mounted;
mod mounted_key;
mod pool_key;
mod pool_policy;
mod sandbox;
mod shared;
mod standby_pool;
mod supply;
#[cfg(test)]
mod tests;

pub use cofferdam_core::executor::{
    COMMAND_PATH, Capabilities, Executor, FoundProgram, Room, RunInput, Unavailable, WorkspaceInput,
};
pub use home_files::put_home_files;
pub use host_ids::AcquiredId;
pub use mounted::MountedRun;
pub use mounted_key::{MountSource, MountedIdentity, MountedView};
pub use sandbox::SandboxExecutor;
pub use shared::AheadRun;
