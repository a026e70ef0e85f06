//! Cofferdam: a Linux sandbox supervisor and code-execution service.
//!
//! Most use it as a program, `cofferdam`. As a library it runs agents' jobs, see [`jobs`], and has workspaces
//! for their programs and code, see [`engine`].
//!
//! `egress` < `config`, `policy` and `store` < `executor` < `check`, `job`, `evaluation` and `workspace` < `case` < `telemetry` < `http` and `cli`:
//! a folder imports from those before it only (`tests/layers.rs`). `engine` is the library over `workspace`.

#![forbid(unsafe_code)]

pub mod case;
pub mod check;
pub mod cli;
pub mod config;
pub mod egress;
pub mod engine;
pub mod evaluation;
pub mod executor;
pub mod http;
pub mod job;
pub mod policy;
pub mod store;
pub mod telemetry;
pub mod workspace;

pub mod cases {
    //! Cases: Cells, what runs commands in them, and what tries agents in them and grades their work.
    //!
    //! A Cell is the files of one trial. An [`Executor`] starts it, runs commands in it and stops it: a
    //! [`SandboxedCell`] runs each command in a sandbox, a [`LocalCell`] on the host, a [`ContainerCell`] in a container.
    //! A [`Provisioner`] makes its environment, a [`Harness`] lets an agent work in it, and a [`Grader`] judges its files. All
    //! three see it through [`Executor`] alone, so that whatever implements one of these traits can take the place of ours.
    //!
    //! A [`TrialBench`] runs trials of a Case with such parts:
    //!
    //! ```no_run
    //! use std::sync::Arc;
    //!
    //! use cofferdam::cases::{CancelToken, NopHarness, OwnParts, TrialBench};
    //!
    //! # fn main() -> Result<(), Box<dyn std::error::Error>> {
    //! // First, while there is one thread: without privileges sandboxes need it.
    //! cofferdam::jobs::enter_user_namespace();
    //! let own = OwnParts { harness: Some(Arc::new(NopHarness)), ..OwnParts::default() };
    //! let bench = TrialBench::builder("cases/fix-add", "runs").own(own).build()?;
    //! let result = bench.run("mine", "m", &CancelToken::new()?)?;
    //! println!("{} {:?}", result.end.status.word(), result.end.overall_score);
    //! # Ok(())
    //! # }
    //! ```
    //!
    //! `examples/own` has a complete program for each trait.

    pub use crate::case::cell::{
        AgentDifference, AgentSeat, CellBase, CellDescription, CellEntry, CellExecutor as Executor,
        CellExecutorKind, CellSettings, CellTrees, ContainerCaches, ContainerCell, ContainerHost,
        ContainerSettings, DifferenceRules, ExecCode, ExecError, ExecRequest, ExecResult,
        FILE_BYTES_MAX, HostCell, HostTrialCell, LIST_ENTRIES_MAX, LocalCell, LocalSettings,
        SandboxedCell, StepAccess, StepLimits, TrialCell,
    };
    pub use crate::case::grade::{
        GradeError, GradeInputs, Grader, GraderScore, GraderWeight, Overall, built_in_grader,
        combine,
    };
    pub use crate::case::harness::{
        AgentReach, AgentSummary, AgentTokens, CaseDenial, CellJobs, ChosenHarness, CommandHarness,
        Harness, HarnessCall, HarnessEnd, HarnessError, HarnessFault, HarnessPrompt, HarnessSetup,
        HarnessTerms, HarnessTrace, HttpCaseRules, InlineJob, InlineJobs, InstructionText,
        JobHarness, ModelPrices, NopHarness, OpenaiHarness, OpenaiSettings, OracleCommands,
        PatchHarness, TRACE_BYTES_MAX, UndefinedAgent, http_denials,
    };
    pub use crate::case::provision::{
        BuiltInProvisioner, PassedVariables, ProvisionError, ProvisionPlaces, ProvisionRequest,
        ProvisionedEnvironment, Provisioner, provision_timeout,
    };
    pub use crate::case::run::{
        AgentEntry, CellEnd, CellFault, CellResult, CellStatus, CellTiming, CellWarning,
        ExecutorEntry, PlannedCell, ProvisionEntry, ScoreEntry,
    };
    pub use crate::case::trial::{
        CellMaker, OwnCell, OwnCellRequest, OwnParts, TrialBench, TrialBenchBuilder,
        TrialBenchError,
    };
    pub use crate::evaluation::patch::{PatchError, WrittenPatch};
    pub use crate::evaluation::result::OmittedPath;
    pub use cofferdam_core::sync::cancel::CancelToken;
    pub use cofferdam_core::values::deadline::Deadline;
    pub use cofferdam_tree::files::EntryType;
}

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

    pub use crate::config::NetworkConfig;
    pub use crate::egress::AllowList;
    pub use crate::executor::{
        Capabilities, Executor, FoundProgram, Room, RunInput, Unavailable, WorkspaceInput,
    };
    pub use crate::job::{
        BuildError, JobControl, JobPage, JobProgress, JobQuery, JobService, JobView, Jobs, Missing,
        Runner, RunnerBuilder, RunnerSettings, Submitted,
    };
    pub use crate::policy::WorkspaceRoots;
    pub use crate::store::{RunStore, StoreError, StoreSettings};
    pub use cofferdam_core::NetworkObject;
    pub use cofferdam_core::job::ControlName;
    pub use cofferdam_core::job::*;
    pub use cofferdam_sandbox::enter_user_namespace;
}
