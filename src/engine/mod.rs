//! The code executor engine: workspaces that last, and programs, sessions, code and artifacts in them.
//!
//! A [`SandboxEngine`] makes workspaces on this host. A workspace is a file system with a hard limit, and
//! every program in it runs in a sandbox. [`Engine`], [`WorkspaceManager`], [`WorkspaceFs`],
//! [`ProgramRunner`] and [`CodeExecutor`] are what an agent's tools need of an engine, so that they can be
//! written for any. What a program does is never an `Err`: a failure, a time-out and a missing command are
//! results. An [`EngineError`] means that a value is wrong, that something does not exist, or that a limit is
//! reached; its code is the one of HTTP.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use cofferdam::engine::{
//!     Engine, ProgramRunner, ProgramSession, PutFile, RunProgramSpec, SandboxEngine, WorkspaceFs,
//!     WorkspaceManager, WorkspacePolicy, enter_user_namespace,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // While this process has one thread; see below.
//! enter_user_namespace();
//! let engine = SandboxEngine::builder("/var/lib/agent/engine").build()?;
//! // 16 MiB at most, whatever its programs write.
//! let policy = WorkspacePolicy { max_disk_bytes: Some(16 << 20), ..WorkspacePolicy::default() };
//! let workspace = engine.create_workspace("task-7", policy)?;
//! let main = PutFile {
//!     path: "work/main.py".to_owned(),
//!     content: b"print(input())".to_vec(),
//!     ..PutFile::default()
//! };
//! engine.put_files(&workspace, vec![main])?;
//! let spec = RunProgramSpec::new("python3").args(["work/main.py"]).stdin("hello\n");
//! let result = engine.run_program(&workspace, spec.timeout(Duration::from_secs(5)))?;
//! println!("{} after {} ms: {}", result.exit_code, result.duration_ms, result.stdout);
//!
//! let shell = engine.start_session(&workspace, RunProgramSpec::new("sh").on_terminal())?;
//! shell.write(b"ls work", true)?;
//! shell.wait_output(Duration::from_secs(5));
//! println!("{}", shell.poll(None).output);
//! shell.close()?;
//! engine.cleanup(&workspace)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Privileges
//!
//! As root, every workspace has its own host id and every program its control groups. Without privileges,
//! sandboxes are created in a user namespace, which a process can enter only while it has one thread: call
//! [`enter_user_namespace`] first in `main`. For root it does nothing.
//!
//! # Threads and lifetimes
//!
//! Several threads can share an engine. [`ProgramRunner::run_program`] and [`SandboxEngine::execute`] block
//! their thread until the program has ended; a session has a thread of its own, and goes on when its
//! [`ProgramSession`] is dropped. Dropping the [`SandboxEngine`] kills everything in all its workspaces,
//! returns when it is dead, and frees their files; workspaces with `persist` in their policy are in its store
//! then, and the next engine with that store has them. If this process dies, its sandboxes die with it.
//!
//! # Code, helpers and artifacts
//!
//! A [`SandboxCodeExecutor`] executes the code blocks of a model's answer, with or without state. The helpers
//! take and return the documents of `POST /v1/helpers/{name}` and `cofferdam helper`, under the same names.
//! [`ArtifactStore`] keeps named files with versions on disk; it is the store behind `/v1/artifacts`.
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
//!
//! `examples/` has complete programs: `workspace`, `terminal`, `notebook` and `keep_artifacts`.

mod code;
mod composed;
mod env;
mod files;
mod programs;
mod sandboxed;
mod sessions;
mod workspace;

pub use self::code::CodeExecutor;
pub use self::composed::{Engine, EngineProvider, new_engine};
pub use self::env::{RunEnvProvider, new_env_injecting_code_executor, new_env_injecting_engine};
pub use self::files::{PutFile, StageOptions, WorkspaceFs};
pub use self::programs::{
    InteractiveProgramRunner, InteractiveProgramSpec, ProgramRunner, RunProgramSpec,
};
pub use self::sandboxed::{
    EngineBuildError, SandboxCodeExecutor, SandboxEngine, SandboxEngineBuilder, SandboxSession,
};
pub use self::sessions::{
    ProgramLog, ProgramPoll, ProgramResultProvider, ProgramSession, ProgramStateProvider,
};
pub use self::workspace::{Workspace, WorkspaceManager, WorkspaceRegistry, new_workspace_registry};

pub use crate::config::{EngineConfig, NetworkConfig, TokenName};
pub use crate::egress::{AllowList, EgressRecord};
pub use crate::workspace::artifacts::*;
pub use crate::workspace::execute::{
    BlockAnswer, BlockStatus, ExecuteRequest, ExecutionAnswer, ResultView,
};
pub use crate::workspace::files::{CollectView, InputSpec, StagedDirectoryView};
pub use crate::workspace::helpers::constants::*;
pub use crate::workspace::helpers::*;
pub use crate::workspace::sessions::{Session, SessionState as ProgramState};
pub use crate::workspace::{
    ArtifactSession, CreateRequest, EgressPage, EngineCapabilities as Capabilities, EngineCode,
    EngineDir, EngineError, LazyEngineDir, LimitsRequest as ResourceLimits,
    ProgramReport as RunResult, SandboxScope, StorageKind, StoreQuota, StoreReservation,
    WorkspacePolicy, WorkspaceService,
};
pub use cofferdam_core::NetworkObject;
pub use cofferdam_core::job::TextEncoding;
pub use cofferdam_sandbox::enter_user_namespace;
