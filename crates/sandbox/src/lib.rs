//! The sandbox: a run specification becomes a plan, a child, and a report.
//!
//! `plan` says what to do (pure); `clone`, `child` and the embedded `init` do
//! it; `supervise` looks after it; `classify` says how it ended (pure). The
//! only unsafe code of the crate is in the files that make system calls:
//! `sys`, `clone`, `child` and `init/`.

#![deny(unsafe_code)]

mod builtin;
mod cgroup;
mod figures;
mod files;
pub mod host;
#[allow(unsafe_code, reason = "system calls")]
mod init;
pub mod landlock;
mod launch;
pub mod locks;
pub mod plan;
mod pool;
mod supervise;
#[allow(unsafe_code, reason = "system calls")]
mod sys;

pub use crate::builtin::builtin_profile;
pub use crate::files::box_fs::BoxFs;
pub use crate::host::heap::{bound_heaps, return_free_pages};
pub use crate::host::root_source::RootSource;
pub use crate::host::state::StateDirectory;
pub use crate::launch::prepared::Standing;
pub use crate::launch::running::Running;
pub use crate::launch::setup::{Sandbox, SandboxConfig};
pub use crate::launch::unprivileged::settle_in;
pub use crate::plan::identity::{BOXES_MAX, HostId, INSIDE_ID};
pub use crate::plan::programs::ProgramAt;
pub use crate::plan::scheduler_slice::ask_for_short_turns;
pub use crate::supervise::report::BEFORE_PROGRAM;
pub use crate::sys::survive_file_size_limit;

#[cfg(any(test, fuzzing))]
pub use crate::launch::handshake_property;
