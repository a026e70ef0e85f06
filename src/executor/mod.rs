//! Backends: a job, its files and its program become a report.

mod blueprint;
mod boxes;
mod filling;
pub mod firecracker;
mod host_ids;
mod sandboxed;
mod shelves;
#[cfg(test)]
mod shelves_tests;
mod standby;
mod task;
mod tasks;

pub use sandboxed::{Job, Sandboxed};
pub use task::{COMMAND_PATH, Capabilities, Executor, FoundProgram, Room, Task, Unavailable};
