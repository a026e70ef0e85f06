//! An engine whose programs each run in a sandbox.

use std::sync::Arc;
use std::time::Duration;

use super::session::SandboxSession;
use super::turn;
use crate::config::TokenName;
use crate::engine::composed::Engine;
use crate::engine::files::{PutFile, StageOptions, WorkspaceFs};
use crate::engine::programs::{
    InteractiveProgramRunner, InteractiveProgramSpec, ProgramRunner, RunProgramSpec,
};
use crate::engine::sessions::ProgramSession;
use crate::engine::workspace::{Workspace, WorkspaceManager};
use crate::workspace::artifacts::{
    ArtifactContext, ArtifactScope, with_artifact_service, with_artifact_session,
};
use crate::workspace::execute::{ExecuteRequest, ExecutionAnswer};
use crate::workspace::files::{
    CollectRequest, CollectView, InputSpec, NewFileRequest, PutFilesRequest, StageDirectoryRequest,
    StageInputsRequest, StagedDirectoryView, collect_files, collect_outputs, put_files,
    stage_directory, stage_inputs,
};
use crate::workspace::helpers::{InputRecord, OutputManifest, OutputSpec};
use crate::workspace::sessions::StartRequest;
use crate::workspace::{
    ArtifactSession, CreateRequest, EgressPage, EngineCapabilities, EngineCode, EngineError,
    ProgramReport, RunRequest, WorkspacePolicy, WorkspaceQuery, WorkspaceService, WorkspaceStatus,
    encode,
};
use cofferdam_core::Watch;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// How long killed programs may take to die when their engine is dropped.
const DEATH_WAIT: Duration = Duration::from_secs(10);
/// What paths of the host begin with in requests.
const HOST_SCHEME: &str = "host://";

/// Workspaces and sandboxes of this process. Dropping it kills all of them, and parks the workspaces with
/// `persist` in its store.
#[derive(Debug)]
pub struct SandboxEngine {
    pub(super) service: Arc<WorkspaceService>,
    pub(super) owner: TokenName,
}

impl SandboxEngine {
    /// Everything else that the service behind it does, as `/v1/workspaces` does it: snapshots, forks,
    /// contexts. Its workspaces belong to [`SandboxEngine::owner`].
    pub fn service(&self) -> &WorkspaceService {
        &self.service
    }

    /// Whom its workspaces belong to.
    pub fn owner(&self) -> &TokenName {
        &self.owner
    }

    /// What the programs of a workspace asked to reach since it was created or woken: at most `limit`
    /// records after the first `before`.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn egress(
        &self,
        workspace: &Workspace,
        limit: usize,
        before: Option<u64>,
    ) -> Result<EgressPage, EngineError> {
        self.service.egress(&self.owner, &workspace.id, limit, before)
    }

    /// Creates a workspace with more than a policy, or acquires one.
    ///
    /// # Errors
    /// The request is invalid, or a limit is reached.
    pub fn create(&self, request: CreateRequest) -> Result<Workspace, EngineError> {
        let (view, _) = self.service.create(&self.owner, request)?;
        Ok(Workspace { id: view.workspace_id().to_owned(), path: view.path().into() })
    }

    /// The artifacts of `session`, which its workspaces stage from and save to.
    ///
    /// # Errors
    /// A part of `session` is longer than 256 bytes, or the store cannot be opened.
    pub fn artifact_context(
        &self,
        session: &ArtifactSession,
    ) -> Result<ArtifactContext, EngineError> {
        let ArtifactSession { app, user, session } = session;
        let scope = ArtifactScope::new(self.owner.as_str(), app, user, session)?;
        let store = self.service.stores().artifacts()?.store()?;
        let context = with_artifact_service(ArtifactContext::default(), store);
        Ok(with_artifact_session(context, scope))
    }

    /// Starts a program to talk with.
    ///
    /// # Errors
    /// As [`InteractiveProgramRunner::start_program`].
    pub fn start_session(
        &self,
        workspace: &Workspace,
        spec: InteractiveProgramSpec,
    ) -> Result<SandboxSession, EngineError> {
        let InteractiveProgramSpec { program, tty, cols, rows } = spec;
        let size = |length: u16| (length > 0).then_some(length);
        let request = StartRequest::of(run_request(program), tty, size(cols), size(rows));
        let state = self.service.start_session(&self.owner, &workspace.id, request)?;
        let session = self.service.session(&self.owner, &workspace.id, &state.session_id)?;
        let service = Arc::downgrade(&self.service);
        Ok(SandboxSession::new(service, self.owner.clone(), workspace.id.clone(), session))
    }

    /// Executes code blocks on this thread, in contexts that keep their state if `stateful`. Waits for its
    /// turn in each context.
    ///
    /// # Errors
    /// The request is invalid, there is no such workspace or context, or a limit is reached.
    pub fn execute(&self, request: ExecuteRequest) -> Result<ExecutionAnswer, EngineError> {
        let watch = Watch::of(cancel_token()?);
        let call = self.service.begin_execution(&self.owner, request)?;
        let turns = turn::wait(call.wait_turns())?;
        Ok(self.service.execute(call, turns, &watch)?.0)
    }
}

impl Drop for SandboxEngine {
    fn drop(&mut self) {
        self.service.start_draining();
        self.service.cancel_all();
        if !self.service.wait_idle(Deadline::after(DEATH_WAIT)) {
            log::error!("a killed program of a dropped engine has not ended");
        }
        // Also what programs left in the sandboxes of workspaces.
        let live = Some(WorkspaceStatus::Active);
        let all = WorkspaceQuery { status: live, limit: usize::MAX, ..WorkspaceQuery::default() };
        let found = self.service.list(&self.owner, &all).map(|page| page.workspaces);
        for workspace in found.iter().flatten() {
            // One with `persist` is parked. One that ends meanwhile is not found.
            let _ = self.service.cleanup(&self.owner, workspace.workspace_id(), false);
        }
        if let Err(error) = found {
            log::error!("the workspaces of a dropped engine cannot be listed: {error}");
        }
    }
}

impl Engine for SandboxEngine {
    fn manager(&self) -> &dyn WorkspaceManager {
        self
    }

    fn fs(&self) -> &dyn WorkspaceFs {
        self
    }

    fn runner(&self) -> &dyn ProgramRunner {
        self
    }

    fn describe(&self) -> EngineCapabilities {
        self.service.describe().capabilities
    }
}

impl WorkspaceManager for SandboxEngine {
    fn create_workspace(
        &self,
        exec_id: &str,
        policy: WorkspacePolicy,
    ) -> Result<Workspace, EngineError> {
        let exec_id = (!exec_id.is_empty()).then(|| exec_id.to_owned());
        self.create(CreateRequest { exec_id, policy: Some(policy), ..CreateRequest::default() })
    }

    fn acquire_workspace(
        &self,
        exec_id: &str,
        policy: WorkspacePolicy,
    ) -> Result<Workspace, EngineError> {
        self.create(CreateRequest {
            exec_id: Some(exec_id.to_owned()),
            acquire: Some(true),
            policy: Some(policy),
            ..CreateRequest::default()
        })
    }

    fn cleanup(&self, workspace: &Workspace) -> Result<(), EngineError> {
        self.service.cleanup(&self.owner, &workspace.id, false).map(drop)
    }
}

impl WorkspaceFs for SandboxEngine {
    fn put_files(&self, workspace: &Workspace, files: Vec<PutFile>) -> Result<(), EngineError> {
        let new = files.into_iter().map(|file| {
            let PutFile { path, content, mode } = file;
            let (encoding, content) = encode(content);
            NewFileRequest { path, content, encoding: Some(encoding), mode: Some(mode) }
        });
        let request = PutFilesRequest { files: new.collect() };
        let mut used = self.service.enter(&self.owner, &workspace.id)?;
        put_files(&mut used, request).map(drop)
    }

    fn collect(
        &self,
        workspace: &Workspace,
        patterns: &[String],
    ) -> Result<CollectView, EngineError> {
        let used = self.service.enter(&self.owner, &workspace.id)?;
        collect_files(&used, &CollectRequest { patterns: patterns.to_vec() })
    }

    fn stage_directory(
        &self,
        workspace: &Workspace,
        src: &str,
        to: &str,
        options: StageOptions,
    ) -> Result<StagedDirectoryView, EngineError> {
        let StageOptions { read_only, allow_mount } = options;
        let request = StageDirectoryRequest {
            src: Some(format!("{HOST_SCHEME}{src}")),
            digest: None,
            to: to.to_owned(),
            read_only: Some(read_only),
            allow_mount: Some(allow_mount),
        };
        let mut used = self.service.enter(&self.owner, &workspace.id)?;
        stage_directory(&mut used, self.service.stores(), &request)
    }

    fn stage_inputs(
        &self,
        workspace: &Workspace,
        specs: Vec<InputSpec>,
    ) -> Result<Vec<InputRecord>, EngineError> {
        let request = StageInputsRequest { inputs: specs };
        let mut used = self.service.enter(&self.owner, &workspace.id)?;
        Ok(stage_inputs(&mut used, self.service.stores(), &request)?.inputs)
    }

    fn collect_outputs(
        &self,
        workspace: &Workspace,
        spec: &OutputSpec,
    ) -> Result<OutputManifest, EngineError> {
        let mut used = self.service.enter(&self.owner, &workspace.id)?;
        collect_outputs(&mut used, self.service.stores(), spec)
    }
}

impl ProgramRunner for SandboxEngine {
    fn run_program(
        &self,
        workspace: &Workspace,
        spec: RunProgramSpec,
    ) -> Result<ProgramReport, EngineError> {
        let mut watch = Watch::of(cancel_token()?);
        let request = run_request(spec);
        let prepared = self.service.prepare_run(&self.owner, &workspace.id, request, &mut watch)?;
        prepared.execute(&watch, None)
    }

    fn interactive(&self) -> Option<&dyn InteractiveProgramRunner> {
        Some(self)
    }
}

impl InteractiveProgramRunner for SandboxEngine {
    fn start_program(
        &self,
        workspace: &Workspace,
        spec: InteractiveProgramSpec,
    ) -> Result<Arc<dyn ProgramSession>, EngineError> {
        Ok(Arc::new(self.start_session(workspace, spec)?))
    }
}

fn run_request(spec: RunProgramSpec) -> RunRequest {
    let RunProgramSpec { cmd, args, env, cwd, stdin, skill, timeout, limits } = spec;
    let given = |text: String| (!text.is_empty()).then_some(text);
    let (encoding, stdin) = encode(stdin);
    RunRequest {
        cmd,
        args: Some(args),
        env: Some(env),
        cwd: given(cwd),
        stdin: Some(stdin),
        encoding: Some(encoding),
        skill: given(skill),
        timeout_ms: Some(whole_millis(timeout)),
        limits: Some(limits),
    }
}

/// The milliseconds of `time`, rounded up: 0 means the default.
pub(super) fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn cancel_token() -> Result<CancelToken, EngineError> {
    CancelToken::new()
        .map_err(|error| EngineError::new(EngineCode::SandboxFailed, format!("eventfd: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_up_so_that_only_zero_is_the_default() {
        for (time, millis) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(7), 7),
            (Duration::from_micros(7_001), 8),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(whole_millis(time), millis, "{time:?}");
        }
    }

    #[test]
    fn bytes_reach_the_program_as_they_are() {
        let request = run_request(RunProgramSpec::new("cat").stdin(*b"\xFF\xE0"));
        assert_eq!(request.stdin.as_deref(), Some("/+A="));
        assert_eq!((request.cwd, request.skill, request.timeout_ms), (None, None, Some(0)));
    }
}
