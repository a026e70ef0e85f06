//! Backends: a job, its files and its program become a report.

mod factory;
mod fill;
mod host_ids;
mod pool_key;
mod pool_policy;
mod sandbox;
mod standby_pool;
#[cfg(test)]
mod tests;

pub use cofferdam_core::executor::{
    COMMAND_PATH, Capabilities, Executor, FoundProgram, Room, Task, Unavailable,
};
pub use sandbox::{Job, Sandboxed};
