//! Executes code blocks in sandboxes of this host.

use std::sync::Arc;
use std::time::Duration;

use super::sandbox_engine::{SandboxEngine, whole_millis};
use crate::engine::code::CodeExecutor;
use crate::engine::composed::{Engine, EngineProvider};
use crate::workspace::EngineError;
use crate::workspace::execute::ExecuteRequest;
use crate::workspace::helpers::{
    CodeExecutionInput, CodeExecutionResult, File, FileRef, OutputSpec,
};

/// Executes code blocks in sandboxes. By default each call has a workspace of its own, which ends with it.
#[derive(Debug, Clone)]
pub struct SandboxCodeExecutor {
    engine: Arc<SandboxEngine>,
    stateful: bool,
    timeout: Duration,
    outputs: Option<OutputSpec>,
}

impl SandboxCodeExecutor {
    /// Executes code in workspaces of `engine`.
    pub fn new(engine: Arc<SandboxEngine>) -> Self {
        Self { engine, stateful: false, timeout: Duration::ZERO, outputs: None }
    }

    /// Lets Python and JavaScript keep their variables from one block to the next, and from one call to the
    /// next with the same `execution_id`, which every call then needs.
    #[must_use]
    pub fn stateful(mut self) -> Self {
        self.stateful = true;
        self
    }

    /// Sets the longest time of each block: by default 10 s, and 30 s in a context.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Collects these files after the blocks.
    #[must_use]
    pub fn outputs(mut self, outputs: OutputSpec) -> Self {
        self.outputs = Some(outputs);
        self
    }
}

impl CodeExecutor for SandboxCodeExecutor {
    fn execute_code(&self, input: CodeExecutionInput) -> Result<CodeExecutionResult, EngineError> {
        let CodeExecutionInput { code_blocks, execution_id } = input;
        let answer = self.engine.execute(ExecuteRequest {
            code_blocks: Some(code_blocks),
            execution_id: (!execution_id.is_empty()).then_some(execution_id),
            stateful: Some(self.stateful),
            timeout_ms: Some(whole_millis(self.timeout)),
            outputs: self.outputs.clone(),
            ..ExecuteRequest::default()
        })?;
        let output_files = answer.output_files.into_iter().map(collected).collect();
        Ok(CodeExecutionResult { output: answer.output, output_files })
    }

    fn engine_provider(&self) -> Option<&dyn EngineProvider> {
        Some(self)
    }
}

impl EngineProvider for SandboxCodeExecutor {
    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine) as Arc<dyn Engine>
    }
}

/// A collected file, without what it was saved as.
fn collected(file: FileRef) -> File {
    let FileRef { name, mime_type, content, encoding, size_bytes, truncated, .. } = file;
    File { name, content, encoding, mime_type, size_bytes, truncated }
}
