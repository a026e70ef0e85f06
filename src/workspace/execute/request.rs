//! The bodies of `POST /v1/execute` and `POST W/contexts`, and what they mean.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::config::{RequestRange, RequestRanges};
use crate::workspace::error::EngineError;
use crate::workspace::helpers::{CodeBlock, CodeBlockDelimiter, OutputSpec, extract_code_blocks};
use crate::workspace::kernels::KernelLanguage;
use crate::workspace::request::{LimitsRequest, check_env, check_label, pick};

/// Blocks of one call.
const BLOCKS_MAX: usize = 256;
/// The time of a block in a context that names none, milliseconds.
const CONTEXT_TIMEOUT_MS: u64 = 30_000;

/// The body of `POST /v1/execute`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecuteRequest {
    /// The blocks, executed in this order.
    pub code_blocks: Option<Vec<CodeBlock>>,
    /// A text that has the blocks.
    pub text: Option<String>,
    /// What encloses a block of `text`.
    pub delimiter: Option<CodeBlockDelimiter>,
    /// The label of the workspace.
    pub execution_id: Option<String>,
    /// The workspace.
    pub workspace_id: Option<String>,
    /// Whether the blocks run in contexts.
    pub stateful: Option<bool>,
    /// The context.
    pub context_id: Option<String>,
    /// The time of each block, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Variables of the programs.
    pub env: Option<BTreeMap<String, String>>,
    /// Limits of the programs.
    pub limits: Option<LimitsRequest>,
    /// Which files to collect afterwards.
    pub outputs: Option<OutputSpec>,
}

/// The body of `POST W/contexts`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextRequest {
    /// The language of its code.
    pub language: String,
    /// The directory that it begins in, by the path rule; the workspace if none.
    pub cwd: Option<String>,
    /// Its variables.
    pub env: Option<BTreeMap<String, String>>,
    /// Its limits, where they differ from the workspace's.
    pub limits: Option<LimitsRequest>,
}

/// What a call executes, its values checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionPlan {
    /// The blocks.
    pub blocks: Vec<CodeBlock>,
    /// The time of each program.
    pub timeout: Duration,
    /// The time of each block in a context.
    pub context_timeout: Duration,
    /// Variables of the programs.
    pub env: BTreeMap<String, String>,
    /// Limits of the programs, where they differ from the workspace's.
    pub limits: LimitsRequest,
    /// Which files to collect afterwards.
    pub outputs: Option<OutputSpec>,
}

impl ExecuteRequest {
    /// What the request executes.
    ///
    /// # Errors
    /// The first wrong value.
    pub fn plan(&mut self, ranges: &RequestRanges) -> Result<ExecutionPlan, EngineError> {
        let blocks = self.blocks()?;
        if blocks.len() > BLOCKS_MAX {
            let words = format!("more than {BLOCKS_MAX} blocks");
            return Err(EngineError::invalid("code_blocks", words).with("max", BLOCKS_MAX));
        }
        if self.context_id.is_some() && !self.is_stateful() {
            let words = "only a stateful call runs in a context";
            return Err(EngineError::invalid("context_id", words));
        }
        check_label("execution_id", self.execution_id.as_deref())?;
        let env = self.env.take().unwrap_or_default();
        check_env("env", &env)?;
        let time = |default| {
            let range = RequestRange { default, max: ranges.run_timeout_ms.max };
            pick(range, "timeout_ms", self.timeout_ms).map(Duration::from_millis)
        };
        Ok(ExecutionPlan {
            blocks,
            timeout: time(ranges.run_timeout_ms.default)?,
            context_timeout: time(CONTEXT_TIMEOUT_MS.min(ranges.run_timeout_ms.max))?,
            env,
            limits: self.limits.take().unwrap_or_default(),
            outputs: self.outputs.take(),
        })
    }

    /// Whether the blocks run in contexts.
    pub fn is_stateful(&self) -> bool {
        self.stateful.unwrap_or_default()
    }

    fn blocks(&mut self) -> Result<Vec<CodeBlock>, EngineError> {
        match (self.code_blocks.take(), self.text.take(), self.delimiter.take()) {
            (Some(blocks), None, None) => Ok(blocks),
            (None, Some(text), delimiter) => {
                let delimiter = delimiter.unwrap_or_default();
                for (path, mark) in
                    [("delimiter.start", &delimiter.start), ("delimiter.end", &delimiter.end)]
                {
                    if mark.is_empty() {
                        return Err(EngineError::invalid(path, "want a text"));
                    }
                }
                Ok(extract_code_blocks(&text, &delimiter))
            }
            (None, None, _) => Err(EngineError::invalid("code_blocks", "want these, or text")),
            (Some(_), Some(_), _) => Err(EngineError::invalid("text", "there are code_blocks")),
            (Some(_), None, Some(_)) => Err(EngineError::invalid("delimiter", "it needs a text")),
        }
    }
}

impl ContextRequest {
    /// The language of the context.
    ///
    /// # Errors
    /// It has no kernel.
    pub fn kernel_language(&self) -> Result<KernelLanguage, EngineError> {
        KernelLanguage::parse(&self.language)
            .ok_or_else(|| EngineError::invalid("language", "want python or javascript"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use cofferdam_core::json::parse_object;

    fn plan(body: &Value) -> Result<ExecutionPlan, EngineError> {
        let range = |default, max| RequestRange { default, max };
        let ranges =
            RequestRanges { run_timeout_ms: range(10_000, 60_000), ..RequestRanges::default() };
        let mut request: ExecuteRequest = parse_object(body.to_string().as_bytes()).unwrap();
        request.plan(&ranges)
    }

    #[test]
    fn blocks_are_given_or_found_in_a_text() {
        let block = CodeBlock { code: "1\n".into(), language: "py".into() };
        for body in [
            json!({"code_blocks": [{"code": "1\n", "language": "py"}]}),
            json!({"text": "a\n```py\n1\n```\nb"}),
            json!({"text": "a <<py\n1\n>>", "delimiter": {"start": "<<", "end": ">>"}}),
        ] {
            assert_eq!(plan(&body).unwrap().blocks, std::slice::from_ref(&block), "{body}");
        }
        assert_eq!(plan(&json!({"text": "none"})).unwrap().blocks, []);
    }

    #[test]
    fn a_block_has_10_seconds_and_in_a_context_30() {
        let times = |body| {
            let plan = plan(&body).unwrap();
            (plan.timeout.as_millis(), plan.context_timeout.as_millis())
        };
        assert_eq!(times(json!({"code_blocks": []})), (10_000, 30_000));
        assert_eq!(times(json!({"code_blocks": [], "timeout_ms": 0})), (10_000, 30_000));
        assert_eq!(times(json!({"code_blocks": [], "timeout_ms": 7})), (7, 7));
    }

    #[test]
    fn a_wrong_value_is_named() {
        let block = json!({"code": "", "language": "py"});
        for (body, path) in [
            (json!({}), "code_blocks"),
            (json!({"delimiter": {"start": "a", "end": "b"}}), "code_blocks"),
            (json!({"code_blocks": vec![&block; BLOCKS_MAX + 1]}), "code_blocks"),
            (json!({"code_blocks": [], "text": ""}), "text"),
            (json!({"code_blocks": [], "delimiter": {"start": "a", "end": "b"}}), "delimiter"),
            (json!({"text": "", "delimiter": {"start": "a", "end": ""}}), "delimiter.end"),
            (json!({"code_blocks": [], "context_id": "c"}), "context_id"),
            (json!({"code_blocks": [], "execution_id": "e".repeat(257)}), "execution_id"),
            (json!({"code_blocks": [], "env": {"1": ""}}), "env"),
            (json!({"code_blocks": [], "timeout_ms": 60_001}), "timeout_ms"),
        ] {
            assert_eq!(plan(&body).unwrap_err().details["path"], path, "{body}");
        }
    }
}
