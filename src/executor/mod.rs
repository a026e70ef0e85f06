//! Backends: a job, its files and its program become a report.

mod blueprint;
mod boxes;
mod filling;
mod host_ids;
mod sandboxed;
mod shelves;
#[cfg(test)]
mod shelves_tests;
mod standby;
mod tasks;

pub use cofferdam_core::executor::{
    COMMAND_PATH, Capabilities, Executor, FoundProgram, Room, Task, Unavailable,
};
pub use sandboxed::{Job, Sandboxed};
