//! An engine with a workspace, and short ways to use it.

use std::path::PathBuf;

use cofferdam::engine::{
    ProgramRunner, PutFile, RunProgramSpec, RunResult, SandboxEngine, SandboxEngineBuilder,
    Workspace, WorkspaceManager, WorkspacePolicy,
};
use nix::unistd::geteuid;
use tempfile::{TempDir, tempdir};

/// An engine in a directory of its own.
#[derive(Debug)]
pub struct Bench {
    pub engine: SandboxEngine,
    pub directory: TempDir,
}

/// An engine of this process; none where workspaces are impossible, which `REQUIRE_PRIVILEGED=1` forbids.
pub fn bench() -> Option<Bench> {
    bench_with(|builder| builder)
}

/// As [`bench`], with changed settings.
pub fn bench_with(
    change: impl FnOnce(SandboxEngineBuilder) -> SandboxEngineBuilder,
) -> Option<Bench> {
    if !geteuid().is_root() {
        let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
        eprintln!("SKIP: not root");
        return None;
    }
    let directory = tempdir().unwrap();
    let engine = change(SandboxEngine::builder(directory.path().join("engine"))).build().unwrap();
    Some(Bench { engine, directory })
}

impl Bench {
    /// A workspace with the default policy.
    #[track_caller]
    pub fn workspace(&self) -> Workspace {
        self.engine.create_workspace("", WorkspacePolicy::default()).unwrap()
    }

    /// Runs a shell script, which must succeed, and returns its output.
    #[track_caller]
    pub fn sh(&self, workspace: &Workspace, script: &str) -> String {
        let result = self.engine.run_program(workspace, sh(script)).unwrap();
        assert_eq!(result.exit_code, 0, "{result:?}");
        result.stdout
    }

    /// Where the engine keeps what is on disk.
    pub fn store(&self) -> PathBuf {
        self.directory.path().join("engine")
    }
}

/// A shell script.
pub fn sh(script: &str) -> RunProgramSpec {
    RunProgramSpec::new("sh").args(["-ec", script])
}

/// A file with permissions.
pub fn file(path: &str, content: impl Into<Vec<u8>>, mode: u32) -> PutFile {
    PutFile { path: path.to_owned(), content: content.into(), mode }
}

/// What ended, in short.
pub fn end_of(result: &RunResult) -> (i32, &str, &str) {
    (result.exit_code, &result.stdout, &result.stderr)
}
