#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod cgroup;
mod command;
mod files;
#[doc(hidden)]
pub mod host;
#[allow(unsafe_code, reason = "system calls")]
mod init;
#[doc(hidden)]
pub mod landlock;
mod launch;
mod layers;
#[doc(hidden)]
pub mod locks;
#[doc(hidden)]
pub mod plan;
mod pool;
mod supervise;
#[allow(unsafe_code, reason = "system calls")]
mod sys;

pub use cofferdam_core::{
    CapturedStream, Enforced, LimitKind, Limits, NotStarted, Outcome, RunReport, SetupFailure,
    Stream, Timings, Usage,
};

pub use crate::command::{Child, ChildOutput, Command, Output, Sandbox};
pub use crate::launch::unprivileged::enter_user_namespace;

#[cfg(any(test, fuzzing))]
pub use crate::launch::handshake_property;

/// What Cofferdam's own executor is built from. It is no part of the API of this crate and
/// changes without notice.
#[doc(hidden)]
pub mod engine {
    pub use crate::files::programs::LocatedProgram;
    pub use crate::files::sandbox_fs::SandboxFs;
    pub use crate::host::heap::{bound_heaps, return_free_pages};
    pub use crate::host::open_hosts::await_closed;
    pub use crate::host::root_source::RootSource;
    pub use crate::host::state::StateDirectory;
    pub use crate::launch::prestart::{PrestartBounds, PrestartFault, WarmSandbox};
    pub use crate::launch::running::{PreparedSandbox, RunningSandbox};
    pub use crate::launch::sandbox_host::{SandboxConfig, SandboxHost};
    pub use crate::launch::shared::{
        KeptSandbox, PROGRAMS_STEP, ProgramLabel, SharedProcess, SharedSandbox,
    };
    pub use crate::launch::unprivileged::enter_user_namespace;
    pub use crate::layers::chain::FrozenChain;
    pub use crate::layers::error::LayerError;
    pub use crate::layers::features::LayerFeatures;
    pub use crate::layers::frozen_view::FrozenView;
    pub use crate::layers::host::LayerHost;
    pub use crate::layers::mounts::overlaid::{
        OverlaidDirectory, OverlaidDirs, OverlaidSource, copy_own_attributes,
    };
    pub use crate::layers::mounts::read_only::{MountedTree, ReadOnlyTree, ReadOnlyTreeDraft};
    pub use crate::layers::space::{DiskSpace, DiskUsage, Storage};
    pub use crate::layers::workspace_fs::{WorkspaceFs, WorkspaceMounts};
    pub use crate::plan::builtin_profile::builtin_profile;
    pub use crate::plan::input::INSIDE_ID;
    pub use crate::plan::program::program_to_send;
    pub use crate::plan::scheduler_slice::request_short_slices;
    pub use crate::plan::sent_program::SentProgram;
    pub use crate::pool::egress_listener::listener_in;
    pub use crate::pool::host_id::{HostId, SANDBOXES_MAX};
    pub use crate::supervise::report::BEFORE_PROGRAM;
    pub use crate::sys::terminal::terminal_size;
    pub use crate::sys::{Rusage, detached_mount, reap, survive_file_size_limit};
}
