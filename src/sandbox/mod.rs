//! The sandbox: a run specification becomes a plan, a child, and a report.
//!
//! `plan` says what to do (pure); `clone`, `child` and the embedded `init` do
//! it; `supervise` looks after it; `classify` says how it ended (pure). The
//! only unsafe code of the crate is in the files that make system calls:
//! `sys`, `clone`, `child` and `init/`.

mod box_fs;
mod builtin;
mod calls;
mod cgroup;
mod child;
mod classify;
mod clone;
mod covers;
mod cpu_watch;
mod disposal;
mod encode;
pub(crate) mod environment;
mod figures;
mod filter_steps;
mod handshake;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/properties/handshake.rs"]
pub mod handshake_property;
mod heap;
mod holdings;
mod host;
mod identity;
mod idmap;
mod init;
mod kill;
pub mod landlock;
mod launch;
mod layer_copy;
mod layers;
pub mod locks;
mod making;
mod mount_calls;
mod mounts;
mod namespace_holder;
mod net_namespaces;
pub mod plan;
pub(crate) mod probe;
pub mod profile;
mod programs;
mod pump;
mod pumping;
pub(crate) mod remedy;
mod report;
mod root_directory;
pub mod rootfs;
mod running;
mod seccomp;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/properties/seccomp_profile.rs"]
pub mod seccomp_profile_property;
mod setup;
mod standing;
mod state;
mod step;
mod supervise;
mod sys;
mod turns;
mod undying;
mod unix_sockets;
mod unowned;
mod unprivileged;
mod weakened;

pub use box_fs::BoxFs;
pub use heap::{bound_heaps, return_free_pages};
pub use host::RootSource;
pub use identity::{BOXES_MAX, HostId, INSIDE_ID};
pub use programs::ProgramAt;
pub use report::BEFORE_PROGRAM;
pub use running::Running;
pub use setup::{Sandbox, SandboxConfig};
pub use standing::Standing;
pub use state::StateDirectory;
pub use sys::survive_file_size_limit;
pub use turns::ask_for_short_turns;
pub use unprivileged::settle_in;
