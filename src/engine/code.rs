//! Executing code blocks.

use std::fmt::Debug;

use super::composed::EngineProvider;
use crate::workspace::EngineError;
use crate::workspace::helpers::{CodeBlockDelimiter, CodeExecutionInput, CodeExecutionResult};

/// Executes code blocks.
pub trait CodeExecutor: Debug + Send + Sync {
    /// Executes blocks, one after the other. A failed block is told in the output, and stops none.
    ///
    /// # Errors
    /// The input is invalid, or a limit is reached.
    fn execute_code(&self, input: CodeExecutionInput) -> Result<CodeExecutionResult, EngineError>;

    /// What encloses the blocks of a text: by default the fences of Markdown.
    fn code_block_delimiter(&self) -> CodeBlockDelimiter {
        CodeBlockDelimiter::default()
    }

    /// Itself, if it has an engine.
    fn engine_provider(&self) -> Option<&dyn EngineProvider> {
        None
    }
}
