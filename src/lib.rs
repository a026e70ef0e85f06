//! Cofferdam: a Linux sandbox supervisor and code-execution service.
//!
//! Most use it as a program, `cofferdam`. As a library it runs agents' jobs: see [`jobs`].
//!
//! `config`, `policy` and `store` < `executor` < `check` and `job` < `telemetry` < `http` and `cli`:
//! a folder imports from those before it only (`tests/layers.rs`).

#![forbid(unsafe_code)]

pub mod check;
pub mod cli;
pub mod config;
pub mod executor;
pub mod http;
pub mod job;
pub mod policy;
pub mod store;
pub mod telemetry;

pub mod jobs {
    //! Agents' jobs: one program over a private copy of a directory, in a box of its own.
    //!
    //! A [`RunJobRequest`] says what to run and what it may be, get, use and leave; the
    //! [`RunJobResult`] says what came of it. They are what the command line (`cofferdam job`) and
    //! HTTP (`/v1/jobs`) take and give, key by key: the same request has the same result by each of
    //! these doors. What a program does is never an `Err` of [`Runner::run`]: a denial, a crash and
    //! a time-out are results. An error is a request that is none, or a store that cannot be
    //! written.
    //!
    //! ```no_run
    //! use cofferdam::jobs::{JobStatus, Runner, RunJobRequest, enter_user_namespace};
    //!
    //! # fn main() -> Result<(), Box<dyn std::error::Error>> {
    //! // While this process has one thread; see below.
    //! enter_user_namespace();
    //! let runner = Runner::builder("/var/lib/agent/runs")
    //!     .roots(["/srv/workspaces"])
    //!     .allow_env(["LANG"])
    //!     .build()?;
    //! let request: RunJobRequest = serde_json::from_value(serde_json::json!({
    //!     "workspace": {"source": "local_path", "path": "/srv/workspaces/a"},
    //!     "command": {"argv": ["python3", "main.py"], "env": {"LANG": "C"}},
    //!     "policy": {"allowed_commands": ["python3"], "artifacts": {"include": ["out/**"]}},
    //!     "limits": {"timeout_ms": 10_000},
    //! }))?;
    //! let result = runner.run(request)?;
    //! match result.status {
    //!     JobStatus::Completed => println!("{}", result.stdout.text),
    //!     other => eprintln!("{}: {:?}", other.word(), result.error),
    //! }
    //! # Ok(())
    //! # }
    //! ```
    //!
    //! # Privileges
    //!
    //! As root, boxes have ids and groups of their own. Without privileges they are made in a user
    //! namespace, which a process can enter only while it has one thread: call [`enter_user_namespace`] first
    //! thing in `main`, before a runtime or a logger starts threads. For root it does nothing, and
    //! where it was not called [`RunnerBuilder::build`] fails with the step that was refused.
    //!
    //! # Threads
    //!
    //! [`Runner::run`] takes its caller's thread until the job is over; a [`Runner`] is shared by
    //! as many threads as there are to be jobs at once. [`Runner::run_controlled`] takes a
    //! [`Control`], by which another thread ends the job or sees how far it is. A bounded queue
    //! with workers is [`JobService`].
    //!
    //! `examples/run_job.rs` is a whole program. [`ControlName`] is a control of a box, as a
    //! request names it in `policy.require_enforced`.

    pub use crate::executor::{Capabilities, Executor, FoundProgram, Room, Task, Unavailable};
    pub use crate::job::{
        BuildError, Control, JobPage, JobService, JobView, Jobs, ListAsked, Missing, Progress,
        Runner, RunnerBuilder, RunnerSettings, Submitted,
    };
    pub use crate::policy::WorkspaceRoots;
    pub use crate::store::{RunStore, StoreError, StoreSettings};
    pub use cofferdam_core::job::ControlName;
    pub use cofferdam_core::job::*;
    pub use cofferdam_sandbox::enter_user_namespace;
}
