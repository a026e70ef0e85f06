//! Variables that every program of an engine gets, such as the secrets of its caller.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::code::CodeExecutor;
use super::composed::{Engine, EngineProvider};
use super::files::WorkspaceFs;
use super::programs::{
    InteractiveProgramRunner, InteractiveProgramSpec, ProgramRunner, RunProgramSpec,
};
use super::sessions::ProgramSession;
use super::workspace::{Workspace, WorkspaceManager};
use crate::workspace::helpers::{CodeBlockDelimiter, CodeExecutionInput, CodeExecutionResult};
use crate::workspace::{EngineCapabilities, EngineError, ProgramReport};

/// What a provider calls.
type ProvideEnv = dyn Fn(&Workspace) -> BTreeMap<String, String> + Send + Sync;

/// Tells the variables of a program that is about to run in a workspace. The program's own variables win.
#[derive(Clone)]
pub struct RunEnvProvider(Arc<ProvideEnv>);

impl RunEnvProvider {
    /// Calls `provide` for each program.
    pub fn new(
        provide: impl Fn(&Workspace) -> BTreeMap<String, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(provide))
    }

    fn add_to(&self, workspace: &Workspace, spec: &mut RunProgramSpec) {
        for (name, value) in (self.0)(workspace) {
            spec.env.entry(name).or_insert(value);
        }
    }
}

impl fmt::Debug for RunEnvProvider {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("RunEnvProvider").finish_non_exhaustive()
    }
}

/// `engine`, whose programs get the variables of `provider` besides their own. It starts programs to talk
/// with if `engine` does.
pub fn new_env_injecting_engine(
    engine: Arc<dyn Engine>,
    provider: RunEnvProvider,
) -> Arc<dyn Engine> {
    Arc::new(EnvInjectingEngine { engine, provider })
}

/// `executor`, whose engine is one of [`new_env_injecting_engine`]; `executor` itself if it has no engine.
pub fn new_env_injecting_code_executor(
    executor: Arc<dyn CodeExecutor>,
    provider: RunEnvProvider,
) -> Arc<dyn CodeExecutor> {
    let Some(engine) = executor.engine_provider().map(EngineProvider::engine) else {
        return executor;
    };
    let engine = new_env_injecting_engine(engine, provider);
    Arc::new(EnvInjectingExecutor { executor, engine })
}

#[derive(Debug)]
struct EnvInjectingEngine {
    engine: Arc<dyn Engine>,
    provider: RunEnvProvider,
}

#[derive(Debug)]
struct EnvInjectingExecutor {
    executor: Arc<dyn CodeExecutor>,
    engine: Arc<dyn Engine>,
}

impl Engine for EnvInjectingEngine {
    fn manager(&self) -> &dyn WorkspaceManager {
        self.engine.manager()
    }

    fn fs(&self) -> &dyn WorkspaceFs {
        self.engine.fs()
    }

    fn runner(&self) -> &dyn ProgramRunner {
        self
    }

    fn describe(&self) -> EngineCapabilities {
        self.engine.describe()
    }
}

impl ProgramRunner for EnvInjectingEngine {
    fn run_program(
        &self,
        workspace: &Workspace,
        mut spec: RunProgramSpec,
    ) -> Result<ProgramReport, EngineError> {
        self.provider.add_to(workspace, &mut spec);
        self.engine.runner().run_program(workspace, spec)
    }

    fn interactive(&self) -> Option<&dyn InteractiveProgramRunner> {
        let inner = self.engine.runner().interactive();
        inner.map(|_| self as &dyn InteractiveProgramRunner)
    }
}

impl InteractiveProgramRunner for EnvInjectingEngine {
    fn start_program(
        &self,
        workspace: &Workspace,
        mut spec: InteractiveProgramSpec,
    ) -> Result<Arc<dyn ProgramSession>, EngineError> {
        let Some(inner) = self.engine.runner().interactive() else {
            return Err(EngineError::invalid("tty", "the engine starts no programs to talk with"));
        };
        self.provider.add_to(workspace, &mut spec.program);
        inner.start_program(workspace, spec)
    }
}

impl CodeExecutor for EnvInjectingExecutor {
    fn execute_code(&self, input: CodeExecutionInput) -> Result<CodeExecutionResult, EngineError> {
        self.executor.execute_code(input)
    }

    fn code_block_delimiter(&self) -> CodeBlockDelimiter {
        self.executor.code_block_delimiter()
    }

    fn engine_provider(&self) -> Option<&dyn EngineProvider> {
        Some(self)
    }
}

impl EngineProvider for EnvInjectingExecutor {
    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine)
    }
}
