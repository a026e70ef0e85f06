//! What executing code answers.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use crate::workspace::error::EngineError;
use crate::workspace::helpers::{CodeBlock, FileRef};
use crate::workspace::kernels::CodeFault;
use cofferdam_core::egress::EgressRecord;
use cofferdam_core::job::TextEncoding;

/// The answer of `POST /v1/execute`, keys in the order of the contract.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ExecutionAnswer {
    /// The output of all blocks, with what failed.
    pub output: String,
    /// The collected files.
    pub output_files: Vec<FileRef>,
    /// None if the workspace lived for the call.
    pub workspace_id: Option<String>,
    /// The blocks, in their order.
    pub blocks: Vec<BlockAnswer>,
    /// What the workspace asked to reach meanwhile, and what became of it; none without a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<EgressRecord>>,
}

/// How a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockStatus {
    /// Without an error.
    Ok,
    /// It failed.
    Error,
    /// Its time was over. A context has its state.
    TimedOut,
    /// It was killed, for a limit or with its workspace, or it ended its kernel.
    Killed,
    /// Nothing executes its language.
    Unsupported,
}

/// One block in the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockAnswer {
    /// Its place, from 0.
    pub index: usize,
    /// Its language, as it was given.
    pub language: String,
    /// How it ended.
    pub status: BlockStatus,
    /// Its output, as `encoding` says.
    pub stdout: String,
    /// Its errors, as `encoding` says.
    pub stderr: String,
    /// How both are written.
    pub encoding: TextEncoding,
    /// The exit code of a program or of a kernel that ended.
    pub exit_code: Option<i32>,
    /// How long it took, milliseconds.
    pub duration_ms: u64,
    /// The limit that it met.
    pub limit: Option<&'static str>,
    /// The value of its last expression, in one or more forms.
    pub results: Vec<ResultView>,
    /// What it raised.
    pub error: Option<CodeFault>,
    /// The context that it ran in.
    pub context_id: Option<String>,
    /// The number of the block in that context.
    pub execution_count: Option<u64>,
    /// Whether the context has lost its state.
    pub state_lost: bool,
}

/// One form of the value of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResultView {
    /// Its media type.
    pub mime_type: String,
    /// A value of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The file of an image, relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The size of that file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

/// How one block ended.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockEnd {
    /// The status.
    pub status: BlockStatus,
    /// Its output, as `encoding` says.
    pub stdout: String,
    /// Its errors, as `encoding` says.
    pub stderr: String,
    /// How the output is written.
    pub encoding: TextEncoding,
    /// Both as text.
    pub text: String,
    /// The exit code of a program or of a kernel that ended.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub duration: Duration,
    /// The limit that it met.
    pub limit: Option<&'static str>,
    /// Its value.
    pub results: Vec<ResultView>,
    /// What it raised.
    pub error: Option<CodeFault>,
    /// The context that it ran in.
    pub context_id: Option<String>,
    /// The number of the block in that context.
    pub execution_count: Option<u64>,
    /// Whether the context has lost its state.
    pub state_lost: bool,
    /// What the output says about the failure.
    pub failure: Option<String>,
}

impl BlockEnd {
    /// The end of a block without output.
    pub fn of(status: BlockStatus) -> Self {
        Self {
            status,
            stdout: String::new(),
            stderr: String::new(),
            encoding: TextEncoding::Utf8,
            text: String::new(),
            exit_code: None,
            duration: Duration::ZERO,
            limit: None,
            results: Vec::new(),
            error: None,
            context_id: None,
            execution_count: None,
            state_lost: false,
            failure: None,
        }
    }

    /// The end of a block that cannot be executed.
    pub fn refused(error: &EngineError) -> Self {
        let fault = CodeFault {
            name: error.code.word().to_owned(),
            value: error.message.clone(),
            traceback: String::new(),
        };
        let failure = Some(format!("{error}\n"));
        Self { error: Some(fault), failure, ..Self::of(BlockStatus::Error) }
    }

    /// The end of a block whose call was over before its turn.
    pub fn skipped() -> Self {
        let failure = Some("the call was over\n".to_owned());
        Self { failure, ..Self::of(BlockStatus::Killed) }
    }
}

impl ExecutionAnswer {
    /// Adds the next block. A failure that names the output has it already.
    pub fn push(&mut self, block: &CodeBlock, end: BlockEnd) {
        let index = self.blocks.len();
        self.output.push_str(&end.text);
        if let Some(failure) = end.failure {
            // Writing to a string does not fail.
            let _ = write!(self.output, "Error executing code block {index}: {failure}");
        }
        self.blocks.push(BlockAnswer {
            index,
            language: block.language.clone(),
            status: end.status,
            stdout: end.stdout,
            stderr: end.stderr,
            encoding: end.encoding,
            exit_code: end.exit_code,
            duration_ms: u64::try_from(end.duration.as_millis()).unwrap_or(u64::MAX),
            limit: end.limit,
            results: end.results,
            error: end.error,
            context_id: end.context_id,
            execution_count: end.execution_count,
            state_lost: end.state_lost,
        });
    }

    /// How many blocks it has.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }
}
