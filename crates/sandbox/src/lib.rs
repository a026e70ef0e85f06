//! The sandbox: a run specification becomes a plan, a child, and a report.
//!
//! `plan` says what to do (pure); `clone`, `child` and the embedded `init` do
//! it; `supervise` looks after it; `classify` says how it ended (pure). The
//! only unsafe code of the crate is in the files that make system calls:
//! `sys`, `clone`, `child` and `init/`.

#![deny(unsafe_code)]

mod builtin;
mod cgroup;
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
pub use crate::files::programs::LocatedProgram;
pub use crate::files::sandbox_fs::SandboxFs;
pub use crate::host::heap::{bound_heaps, return_free_pages};
pub use crate::host::root_source::RootSource;
pub use crate::host::state::StateDirectory;
pub use crate::launch::running::{PreparedSandbox, RunningSandbox};
pub use crate::launch::sandbox::{Sandbox, SandboxConfig};
pub use crate::launch::unprivileged::enter_user_namespace;
pub use crate::plan::input::INSIDE_ID;
pub use crate::plan::scheduler_slice::request_short_slices;
pub use crate::pool::host_id::{HostId, SANDBOXES_MAX};
pub use crate::supervise::report::BEFORE_PROGRAM;
pub use crate::sys::survive_file_size_limit;

#[cfg(any(test, fuzzing))]
pub use crate::launch::handshake_property;
