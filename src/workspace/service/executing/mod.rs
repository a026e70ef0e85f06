//! Executes code in workspaces, and keeps their contexts.

mod contexts;
mod processes;

use std::sync::Arc;

use super::ends::reaper::Reaping;
use super::live::{LiveProgram, LiveWorkspace, WorkspaceEnd, WorkspaceUse};
use super::span::Span;
use super::{CallPermit, WorkspaceService};
use crate::config::TokenName;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::execute::{
    BlockEnd, BlockProgram, CallDirectory, CodeContext, ContextSettings, ContextTurn,
    ExecuteRequest, ExecutionAnswer, ExecutionPlan, unsupported,
};
use crate::workspace::files::outputs::{check_outputs, collect_output_files};
use crate::workspace::files::{PutFilesRequest, put_files};
use crate::workspace::helpers::CodeBlock;
use crate::workspace::helpers::constants::INLINE_SOURCE_DIR;
use crate::workspace::kernels::KernelLanguage;
use crate::workspace::request::{CreateRequest, ProgramLimits};
use crate::workspace::run::ProgramSettings;
use cofferdam_core::Watch;
use cofferdam_core::sync::retained::Retained;

/// Output of all blocks of a call that is kept, bytes.
const CALL_OUTPUT_BYTES_MAX: u64 = 32 << 20;

/// A call that is ready to execute its blocks.
#[derive(Debug)]
pub struct ExecutionCall {
    owner: TokenName,
    plan: ExecutionPlan,
    routes: Vec<BlockRoute>,
    limits: ProgramLimits,
    workspace_id: Option<String>,
    // Dropped before the workspace that may end with the call.
    used: WorkspaceUse,
    _temporary: Option<TemporaryWorkspace>,
}

/// What executes a block.
#[derive(Debug)]
enum BlockRoute {
    Program(BlockProgram),
    Context(Arc<CodeContext>),
    Nothing,
}

/// A workspace that ends with a call.
#[derive(Debug)]
struct TemporaryWorkspace {
    reaping: Reaping,
    live: Arc<LiveWorkspace>,
}

impl Drop for TemporaryWorkspace {
    fn drop(&mut self) {
        if self.live.begin_end() {
            self.reaping.finish(&self.live, WorkspaceEnd::Cleanup);
        }
    }
}

impl ExecutionCall {
    /// Waits for the turns in the contexts that the call needs.
    ///
    /// # Errors
    /// Too many wait, or a context is gone.
    pub async fn wait_turns(&self) -> Result<Vec<ContextTurn>, EngineError> {
        let mut contexts: Vec<_> = self.contexts().collect();
        // In one order for all calls: none waits for another that waits for it.
        contexts.sort_by(|one, other| one.id.cmp(&other.id));
        contexts.dedup_by(|one, other| one.id == other.id);
        let mut turns = Vec::with_capacity(contexts.len());
        for context in contexts {
            turns.push(context.turns.wait().await?);
        }
        Ok(turns)
    }

    fn contexts(&self) -> impl Iterator<Item = &Arc<CodeContext>> {
        self.routes.iter().filter_map(|route| match route {
            BlockRoute::Context(context) => Some(context),
            BlockRoute::Program(_) | BlockRoute::Nothing => None,
        })
    }
}

impl WorkspaceService {
    /// Begins a call: finds or makes its workspace and its contexts.
    ///
    /// # Errors
    /// The request is invalid, there is no such workspace or context, or a limit is reached.
    pub fn begin_execution(
        &self,
        owner: &TokenName,
        mut request: ExecuteRequest,
    ) -> Result<ExecutionCall, EngineError> {
        let plan = request.plan(&self.settings.requests)?;
        if let Some(outputs) = &plan.outputs {
            // Before anything is made.
            check_outputs("outputs", outputs, None)?;
        }
        self.check_open()?;
        let is_stateful = request.is_stateful();
        let (used, temporary) = if is_stateful {
            (self.stateful_workspace(owner, &request)?, None)
        } else if let Some(id) = &request.workspace_id {
            (self.enter(owner, id)?, None)
        } else {
            let create =
                CreateRequest { exec_id: request.execution_id.take(), ..Default::default() };
            let used = self.enter(owner, self.create_for_call(owner, create)?.0.workspace_id())?;
            let (reaping, live) = (self.reaping.clone(), Arc::clone(used.workspace()));
            (used, Some(TemporaryWorkspace { reaping, live }))
        };
        let live = used.workspace();
        if let Some(outputs) = &plan.outputs {
            // Before anything is executed.
            check_outputs("outputs", outputs, Some(live.settings.path.as_path()))?;
        }
        let limits = live.settings.limits.with(Some(&plan.limits), &self.settings.requests)?;
        let routes = if is_stateful {
            self.stateful_routes(live, &request, &plan, limits)?
        } else {
            let directory = CallDirectory::new();
            let route = |(index, block)| program_route(&directory, index, block);
            plan.blocks.iter().enumerate().map(route).collect()
        };
        let workspace_id = temporary.is_none().then(|| live.id.clone());
        let owner = owner.clone();
        Ok(ExecutionCall { owner, plan, routes, limits, workspace_id, used, _temporary: temporary })
    }

    /// Executes the blocks of a call, one after the other. A failure stops none that follow. The second
    /// value is whether the call was over before them: its client has left, or its workspace has ended.
    ///
    /// # Errors
    /// A limit is reached, the files cannot be written, or nothing can execute the first block.
    pub fn execute(
        &self,
        mut call: ExecutionCall,
        turns: Vec<ContextTurn>,
        watch: &Watch,
    ) -> Result<(ExecutionAnswer, bool), EngineError> {
        let span = Span::begin("workspace.inline");
        let live = Arc::clone(call.used.workspace());
        let permit = self.begin_call(&call.owner, &live, watch.cancel.clone())?;
        let blocks = call.plan.blocks.iter().zip(&call.routes);
        let files = blocks.filter_map(|(block, route)| match route {
            BlockRoute::Program(program) => Some(program.file(block)),
            BlockRoute::Context(_) | BlockRoute::Nothing => None,
        });
        let files: Vec<_> = files.collect();
        if !files.is_empty() {
            put_files(&mut call.used, PutFilesRequest { files })?;
        }
        let requests_before = live.network.records().len();
        let mut answer = ExecutionAnswer::default();
        let mut room = CALL_OUTPUT_BYTES_MAX;
        let mut is_over = false;
        for (block, route) in call.plan.blocks.iter().zip(&call.routes) {
            let ended = match route {
                BlockRoute::Nothing => Ok((unsupported(block), false)),
                _ if is_over => Ok((BlockEnd::skipped(), true)),
                BlockRoute::Program(program) => {
                    self.execute_program(&call, program, &permit, room, watch)
                }
                BlockRoute::Context(context) => {
                    self.execute_in_context(&call, context, &block.code, room, watch)
                }
            };
            let end = match ended {
                Ok((end, over)) => {
                    is_over |= over;
                    end
                }
                Err(error) if answer.block_count() == 0 => return Err(error),
                Err(error) => BlockEnd::refused(&error),
            };
            room = room.saturating_sub((end.stdout.len() + end.stderr.len()) as u64);
            answer.push(block, end);
        }
        // Before the turns: the next call needs the place.
        drop(permit);
        drop(turns);
        if let Some(outputs) = &call.plan.outputs {
            answer.output_files = collect_output_files(&mut call.used, &self.stores, outputs)?;
        }
        let requests = || live.network.records().split_off(requests_before);
        answer.egress = live.network.object().map(|_| requests());
        answer.workspace_id = call.workspace_id.take();
        span.end_counted(&live.id, answer.block_count());
        Ok((answer, is_over))
    }

    /// The workspace that a stateful call names.
    fn stateful_workspace(
        &self,
        owner: &TokenName,
        request: &ExecuteRequest,
    ) -> Result<WorkspaceUse, EngineError> {
        if let Some(id) = &request.workspace_id {
            return self.enter(owner, id);
        }
        if let Some(context) = &request.context_id {
            let has = |live: &Arc<LiveWorkspace>| {
                live.owner == *owner && live.contexts.find(context).is_ok()
            };
            let found = self.reaping.registry.all().into_iter().find(has);
            let missing = || EngineError::new(EngineCode::ContextNotFound, "no such context");
            return found.ok_or_else(missing)?.enter();
        }
        let Some(exec_id) = request.execution_id.clone().filter(|id| !id.is_empty()) else {
            let words = "a stateful call needs context_id, workspace_id or execution_id";
            return Err(EngineError::invalid("workspace_id", words));
        };
        let create =
            CreateRequest { exec_id: Some(exec_id), acquire: Some(true), ..Default::default() };
        self.enter(owner, self.create_for_call(owner, create)?.0.workspace_id())
    }

    /// What executes the blocks of a stateful call.
    fn stateful_routes(
        &self,
        live: &Arc<LiveWorkspace>,
        request: &ExecuteRequest,
        plan: &ExecutionPlan,
        limits: ProgramLimits,
    ) -> Result<Vec<BlockRoute>, EngineError> {
        let named = request.context_id.as_ref().map(|id| live.contexts.find(id)).transpose()?;
        let directory = CallDirectory::new();
        let route = |(index, block): (usize, &CodeBlock)| {
            let Some(language) = KernelLanguage::parse(&block.language) else {
                return Ok(program_route(&directory, index, block));
            };
            let context = match &named {
                Some(named) if named.language == language => Arc::clone(named),
                Some(named) => {
                    let path = format!("code_blocks[{index}].language");
                    let words = format!("the context executes {}", named.language.word());
                    return Err(EngineError::invalid(&path, words));
                }
                None => live.contexts.own(language, self.settings.maxima.contexts, || {
                    let settings = ContextSettings { cwd: None, env: plan.env.clone(), limits };
                    CodeContext::new(language, settings)
                })?,
            };
            self.check_context(&context, plan)?;
            Ok(BlockRoute::Context(context))
        };
        plan.blocks.iter().enumerate().map(route).collect()
    }

    /// Runs the program of a block. The second value is whether the call is over.
    fn execute_program(
        &self,
        call: &ExecutionCall,
        program: &BlockProgram,
        permit: &Arc<CallPermit>,
        room: u64,
        watch: &Watch,
    ) -> Result<(BlockEnd, bool), EngineError> {
        let limits = ProgramLimits {
            stdout_bytes: call.limits.stdout_bytes.min(room),
            stderr_bytes: call.limits.stderr_bytes.min(room),
            ..call.limits
        };
        let settings = ProgramSettings {
            argv: program.argv.clone(),
            skill: None,
            env: call.plan.env.clone(),
            cwd: Some(INLINE_SOURCE_DIR.to_owned()),
            stdin: Vec::new(),
            timeout: call.plan.timeout,
            limits,
            is_interactive: false,
            kernel: None,
        };
        let live = Arc::clone(call.used.workspace());
        let retained = Retained::of(Arc::clone(permit) as _);
        let mut watch = Watch::of(watch.cancel.clone());
        let program_handles = LiveProgram::of(&mut watch)?;
        let prepared = self.prepare_program(settings, live, None, program_handles, retained)?;
        let report = prepared.execute(&watch, None)?;
        let is_over = report.is_cancelled();
        Ok((program.end(report), is_over))
    }
}

/// A block that is a program, if anything executes it.
fn program_route(directory: &CallDirectory, index: usize, block: &CodeBlock) -> BlockRoute {
    directory.program(index, block).map_or(BlockRoute::Nothing, BlockRoute::Program)
}
