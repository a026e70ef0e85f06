//! The contexts of workspaces, and the blocks that they execute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::ExecutionCall;
use crate::config::TokenName;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::execute::{
    BlockEnd, CallEnd, CodeContext, ContextRequest, ContextSettings, ContextView, ExecutedBlock,
    ExecutionPlan, Interruption, PrintedOutput, RunningKernel, WhenOver, no_context, start, wait,
};
use crate::workspace::kernels::KernelLanguage;
use crate::workspace::request::{LimitsRequest, ProgramLimits, check_env};
use crate::workspace::run::{PreparedRun, ProgramSettings};
use crate::workspace::service::WorkspaceService;
use crate::workspace::service::live::{LiveProgram, LiveWorkspace, ProgramKind};
use cofferdam_core::Watch;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;

/// How long an interpreter may take until it can execute code.
const READY_WAIT: Duration = Duration::from_secs(20);
/// How long a kernel may live, which its workspace usually does not.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(31 * 24 * 3600);

/// A kernel that has answered, or how the start of one ended.
enum StartedKernel {
    Ready(Arc<RunningKernel>),
    Ended(CallEnd),
}

impl WorkspaceService {
    /// Creates a context, and starts its kernel.
    ///
    /// # Errors
    /// The request is invalid, a limit is reached, or the language is not installed.
    pub fn create_context(
        &self,
        owner: &TokenName,
        id: &str,
        request: ContextRequest,
    ) -> Result<ContextView, EngineError> {
        let used = self.enter(owner, id)?;
        let live = used.workspace();
        let language = request.kernel_language()?;
        let ContextRequest { cwd, env, limits, .. } = request;
        let env = env.unwrap_or_default();
        check_env("env", &env)?;
        let limits = live.settings.limits.with(limits.as_ref(), &self.settings.requests)?;
        self.check_open()?;
        let cancel = cancel_token()?;
        let permit = self.begin_call(owner, live, cancel.clone())?;
        let context = CodeContext::new(language, ContextSettings { cwd, env, limits });
        let context = live.contexts.insert(context, self.settings.maxima.contexts)?;
        let started = self.start_kernel(live, &context, &Watch::of(cancel));
        drop(permit);
        let refused = match started {
            Ok(StartedKernel::Ready(kernel)) => {
                context.adopt(Arc::clone(&kernel));
                kernel.release();
                return Ok(context.view());
            }
            Ok(StartedKernel::Ended(end)) => {
                let words = "the interpreter ended before it could execute code";
                EngineError::new(EngineCode::LanguageUnavailable, words)
                    .with("language", language.word())
                    .with("stderr", end.printed.stderr.text())
            }
            Err(error) => error,
        };
        live.contexts.forget(&context.id);
        Err(refused)
    }

    /// Starts kernels of the languages that are in use ahead, for a new workspace without files of its
    /// client.
    pub(in crate::workspace::service) fn expect_kernels(&self, owner: &TokenName, id: &str) {
        let Ok(Some(live)) = self.reaping.registry.find_live(owner, id) else { return };
        for language in self.kernels.wanted_languages() {
            let settings = kernel_settings(language, None, BTreeMap::new(), live.settings.limits);
            let expected = PreparedRun::expect(settings, &live, &self.settings.base_env);
            if let Err(error) = expected {
                log::warn!("no kernel ahead: {error}");
            }
        }
    }

    /// A context of a workspace. To look for it is no use of the workspace.
    ///
    /// # Errors
    /// There is no such workspace or context.
    pub fn context(
        &self,
        owner: &TokenName,
        id: &str,
        context: &str,
    ) -> Result<Arc<CodeContext>, EngineError> {
        let live = self.reaping.registry.find_live(owner, id)?.ok_or_else(no_context)?;
        live.contexts.find(context)
    }

    /// At most `limit` contexts of a workspace after number `after`, and the last number if there are
    /// more.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn contexts(
        &self,
        owner: &TokenName,
        id: &str,
        limit: usize,
        after: Option<u64>,
    ) -> Result<(Vec<ContextView>, Option<u64>), EngineError> {
        let live = self.reaping.registry.find_live(owner, id)?;
        Ok(live.map_or_else(Default::default, |live| live.contexts.page(after, limit)))
    }

    /// Removes a context. Returns when its kernel is dead.
    ///
    /// # Errors
    /// There is no such workspace or context.
    pub fn remove_context(
        &self,
        owner: &TokenName,
        id: &str,
        context: &str,
    ) -> Result<(), EngineError> {
        let workspace = self.reaping.registry.find_live(owner, id)?.ok_or_else(no_context)?;
        let found = workspace.contexts.find(context)?;
        workspace.contexts.forget(context);
        found.close();
        Ok(())
    }

    /// Checks that a call asks for nothing that the context cannot change any more.
    pub(super) fn check_context(
        &self,
        context: &CodeContext,
        plan: &ExecutionPlan,
    ) -> Result<(), EngineError> {
        let ContextSettings { env, limits, .. } = &context.settings;
        if let Some((name, _)) = plan.env.iter().find(|(name, value)| env.get(*name) != Some(value))
        {
            let path = format!("env.{name}");
            return Err(EngineError::invalid(&path, "the context began with other variables"));
        }
        let of_kernel =
            LimitsRequest { stdout_bytes: None, stderr_bytes: None, ..plan.limits.clone() };
        if limits.with(Some(&of_kernel), &self.settings.requests)? != *limits {
            return Err(EngineError::invalid("limits", "the context began with other limits"));
        }
        Ok(())
    }

    /// Executes a block in a context. The second value is whether the call is over.
    pub(super) fn execute_in_context(
        &self,
        call: &ExecutionCall,
        context: &Arc<CodeContext>,
        code: &str,
        room: u64,
        watch: &Watch,
    ) -> Result<(BlockEnd, bool), EngineError> {
        let live = call.used.workspace();
        let ranges = &self.settings.requests;
        let limits = context.settings.limits.with(Some(&call.plan.limits), ranges)?;
        let of = |number, duration, state_lost| ExecutedBlock {
            live,
            context,
            number,
            duration,
            state_lost,
        };
        let (kernel, state_lost) = match context.claim() {
            Some(kernel) => (kernel, false),
            None => match self.start_kernel(live, context, watch)? {
                StartedKernel::Ready(kernel) => {
                    let state_lost = context.adopt(Arc::clone(&kernel));
                    (kernel, state_lost)
                }
                StartedKernel::Ended(end) => {
                    let is_over = end.interrupted == Some(Interruption::Caller);
                    return Ok((of(None, Duration::ZERO, true).end(end), is_over));
                }
            },
        };
        let printed =
            PrintedOutput::within(limits.stdout_bytes.min(room), limits.stderr_bytes.min(room));
        let began = Instant::now();
        let number = kernel.begin(&Uuid::new_v4().simple().to_string(), code, printed);
        let over = WhenOver::Interrupt(self.settings.interrupt_wait);
        let end = wait(&kernel, watch, call.plan.context_timeout, over);
        match &end.result {
            Ok(_) => kernel.release(),
            Err(_) => context.forget(&kernel),
        }
        let is_over = end.interrupted == Some(Interruption::Caller);
        Ok((of(Some(number), began.elapsed(), state_lost).end(end), is_over))
    }

    /// Starts a kernel for a context, which is claimed for the call that has the turn.
    fn start_kernel(
        &self,
        live: &Arc<LiveWorkspace>,
        context: &CodeContext,
        watch: &Watch,
    ) -> Result<StartedKernel, EngineError> {
        let ContextSettings { cwd, env, limits } = context.settings.clone();
        let slot = self.kernels.reserve()?;
        let mut watch_of_kernel = Watch::of(cancel_token()?);
        let program =
            LiveProgram { kind: ProgramKind::Kernel, ..LiveProgram::of(&mut watch_of_kernel)? };
        let settings = kernel_settings(context.language, cwd, env, limits);
        let (live, retained) = (Arc::clone(live), Retained::default());
        let prepared = self.prepare_program(settings, live, None, program, retained)?;
        let kernel = start(prepared, context.language, watch_of_kernel)?;
        slot.fill(&kernel);
        let end = wait(&kernel, watch, READY_WAIT, WhenOver::Kill);
        Ok(match end.result {
            Ok(_) => StartedKernel::Ready(kernel),
            Err(_) => StartedKernel::Ended(end),
        })
    }
}

fn kernel_settings(
    language: KernelLanguage,
    cwd: Option<String>,
    env: BTreeMap<String, String>,
    limits: ProgramLimits,
) -> ProgramSettings {
    ProgramSettings {
        argv: language.argv().map(str::to_owned).into(),
        skill: None,
        env,
        cwd,
        stdin: Vec::new(),
        timeout: KERNEL_TIMEOUT,
        limits: ProgramLimits { stdout_bytes: 0, stderr_bytes: 0, ..limits },
        is_interactive: true,
        kernel: Some(language),
    }
}

fn cancel_token() -> Result<CancelToken, EngineError> {
    CancelToken::new()
        .map_err(|error| EngineError::new(EngineCode::SandboxFailed, format!("eventfd: {error}")))
}
