//! Cofferdam: a Linux sandbox supervisor and code-execution service.
//!
//! Most use it as a program, `cofferdam`. As a library it runs agents' jobs: see [`jobs`].
//!
//! `config`, `policy` and `store` < `executor` < `check`, `job` and `workspace` < `telemetry` < `http` and `cli`:
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
pub mod workspace;

pub mod jobs {
    //! Jobs of agents: one program over a private copy of a directory, in its own sandbox.
    //!
    //! A [`RunJobRequest`] says what to run, what it may use and what to keep of it. A
    //! [`RunJobResult`] says what happened. Both are the documents of the command line
    //! (`cofferdam job`) and of HTTP (`/v1/jobs`), key by key, and the same request has the same
    //! result through each of them. What a program does is never an `Err` of [`Runner::run`]: a
    //! denial, a crash and a time-out are results. An error means that a limit is above the runner's
    //! maximum, that the job's id is in use, or that the store cannot be written. A request is
    //! validated before, where it is parsed ([`parse_request`]) or built ([`ValidRequest`]).
    //!
    //! ```no_run
    //! use cofferdam::jobs::{JobStatus, RunJobRequest, Runner, ValidRequest, enter_user_namespace};
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
    //! let result = runner.run(ValidRequest::try_from(request)?)?;
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
    //! As root, every sandbox has its own host id and control groups. Without privileges, sandboxes
    //! are created in a user namespace, which a process can enter only while it has one thread: call
    //! [`enter_user_namespace`] first in `main`, before a runtime or a logger starts threads. For root it does
    //! nothing. Without the call [`RunnerBuilder::build`] fails with the step that was refused.
    //!
    //! # Threads
    //!
    //! [`Runner::run`] blocks its thread until the job has ended. Several threads can share a
    //! [`Runner`] to run jobs at the same time. [`Runner::run_with`] takes a [`JobControl`], by which
    //! another thread cancels the job or follows its progress. [`JobService`] is a bounded queue
    //! with workers.
    //!
    //! `examples/run_job.rs` is a complete program. [`ControlName`] is a control of the sandbox, as
    //! a request names it in `policy.require_enforced`.

    pub use crate::executor::{
        Capabilities, Executor, FoundProgram, Room, RunInput, Unavailable, WorkspaceInput,
    };
    pub use crate::job::{
        BuildError, JobControl, JobPage, JobProgress, JobQuery, JobService, JobView, Jobs, Missing,
        Runner, RunnerBuilder, RunnerSettings, Submitted,
    };
    pub use crate::policy::WorkspaceRoots;
    pub use crate::store::{RunStore, StoreError, StoreSettings};
    pub use cofferdam_core::job::ControlName;
    pub use cofferdam_core::job::*;
    pub use cofferdam_sandbox::enter_user_namespace;
}

pub mod engine {
    //! The code executor engine: helpers, and artifacts with versions.
    //!
    //! The helpers are small functions that agents' tools share. They take and return the documents of
    //! `POST /v1/helpers/{name}` and `cofferdam helper`, under the same names. [`ArtifactStore`] keeps
    //! named files with versions on disk; it is the store behind `/v1/artifacts`.
    //!
    //! ```
    //! use std::sync::Arc;
    //!
    //! use cofferdam::engine::{
    //!     ArtifactContext, ArtifactStore, EngineDir, extract_code_blocks, load_artifact_helper,
    //!     save_artifact_helper, with_artifact_service,
    //! };
    //!
    //! # fn main() -> Result<(), Box<dyn std::error::Error>> {
    //! let answer = "Try this:\n```python\nprint(1 + 1)\n```\n";
    //! let blocks = extract_code_blocks(answer, &Default::default());
    //! assert_eq!((blocks[0].language.as_str(), blocks[0].code.as_str()), ("python", "print(1 + 1)\n"));
    //!
    //! # let parent = tempfile::tempdir()?;
    //! # let path = parent.path().join("engine");
    //! let directory = EngineDir::open(&path, 1 << 30)?;
    //! let store = ArtifactStore::open(Arc::new(directory), 256 << 20)?;
    //! let context = with_artifact_service(ArtifactContext::default(), store);
    //! let version = save_artifact_helper(&context, "report.txt", b"done", "text/plain")?;
    //! assert_eq!(version, 0);
    //! assert_eq!(load_artifact_helper(&context, "report.txt", None)?.data, b"done");
    //! # Ok(())
    //! # }
    //! ```

    pub use crate::workspace::artifacts::*;
    pub use crate::workspace::helpers::constants::*;
    pub use crate::workspace::helpers::*;
    pub use crate::workspace::{
        EngineCode, EngineDir, EngineError, LazyEngineDir, StoreQuota, StoreReservation,
    };
    pub use cofferdam_core::job::TextEncoding;
}
