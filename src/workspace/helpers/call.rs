//! Helpers by name, with JSON in and out, for interfaces.

use std::path::PathBuf;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::artifact_ref::parse_artifact_ref;
use super::code_blocks::{CodeBlock, CodeBlockDelimiter, build_block_spec, extract_code_blocks};
use super::digest::dir_digest;
use super::execution::{CodeExecutionResult, File, result_string};
use super::globs::normalize_globs;
use super::layout::{check_root, ensure_layout};
use super::metadata::{WorkspaceMetadata, load_metadata, save_metadata};
use super::mime::is_text_mime;
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_core::job::TextEncoding;
use cofferdam_core::json::{JsonFault, parse_object};

/// A helper.
#[derive(Debug, Clone, Copy)]
pub struct Helper {
    name: &'static str,
    call: fn(&[u8]) -> Result<Value, EngineError>,
    /// Whether it reads or writes a directory of the host, which only the caller's own process may.
    uses_host: bool,
}

/// Every helper.
const HELPERS: [Helper; 10] = [
    Helper { name: "extract_code_blocks", call: call_extract_code_blocks, uses_host: false },
    Helper { name: "build_block_spec", call: call_build_block_spec, uses_host: false },
    Helper { name: "normalize_globs", call: call_normalize_globs, uses_host: false },
    Helper { name: "parse_artifact_ref", call: call_parse_artifact_ref, uses_host: false },
    Helper { name: "is_text_mime", call: call_is_text_mime, uses_host: false },
    Helper { name: "result_string", call: call_result_string, uses_host: false },
    Helper { name: "dir_digest", call: call_dir_digest, uses_host: true },
    Helper { name: "ensure_layout", call: call_ensure_layout, uses_host: true },
    Helper { name: "load_metadata", call: call_load_metadata, uses_host: true },
    Helper { name: "save_metadata", call: call_save_metadata, uses_host: true },
];

impl Helper {
    /// The helper `name`, if there is one that uses nothing of the host.
    pub fn pure(name: &str) -> Option<Self> {
        Self::find(name).filter(|helper| !helper.uses_host)
    }

    /// The helper `name`.
    pub fn find(name: &str) -> Option<Self> {
        HELPERS.into_iter().find(|helper| helper.name == name)
    }

    /// The names of all helpers.
    pub fn names() -> impl Iterator<Item = &'static str> {
        HELPERS.iter().map(|helper| helper.name)
    }

    /// Calls the helper with the JSON `body`.
    ///
    /// # Errors
    /// The body is not JSON or not what the helper takes, or the helper fails.
    pub fn call(self, body: &[u8]) -> Result<Value, EngineError> {
        (self.call)(body)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtractRequest {
    input: String,
    #[serde(default)]
    delimiter: CodeBlockDelimiter,
}

fn call_extract_code_blocks(body: &[u8]) -> Result<Value, EngineError> {
    let ExtractRequest { input, delimiter } = parse(body)?;
    for (path, text) in [("delimiter.start", &delimiter.start), ("delimiter.end", &delimiter.end)] {
        if text.is_empty() {
            return Err(EngineError::invalid(path, "want at least one character"));
        }
    }
    Ok(json!({ "code_blocks": extract_code_blocks(&input, &delimiter) }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockRequest {
    index: usize,
    block: CodeBlock,
}

fn call_build_block_spec(body: &[u8]) -> Result<Value, EngineError> {
    let BlockRequest { index, block } = parse(body)?;
    value(&build_block_spec(index, &block)?)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobsRequest {
    patterns: Vec<String>,
}

fn call_normalize_globs(body: &[u8]) -> Result<Value, EngineError> {
    let GlobsRequest { patterns } = parse(body)?;
    Ok(json!({ "patterns": normalize_globs(&patterns) }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefRequest {
    r#ref: String,
}

fn call_parse_artifact_ref(body: &[u8]) -> Result<Value, EngineError> {
    let RefRequest { r#ref } = parse(body)?;
    let (name, version) = parse_artifact_ref(&r#ref)?;
    Ok(json!({ "name": name, "version": version }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MimeRequest {
    mime_type: String,
}

fn call_is_text_mime(body: &[u8]) -> Result<Value, EngineError> {
    let MimeRequest { mime_type } = parse(body)?;
    Ok(json!({ "text": is_text_mime(&mime_type) }))
}

/// A file of a result, also with the keys that only saved ones have. Its name is all that is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ShownFile {
    name: String,
    #[serde(rename = "content")]
    _content: String,
    #[serde(rename = "encoding")]
    _encoding: TextEncoding,
    #[serde(rename = "mime_type")]
    _mime_type: String,
    #[serde(rename = "size_bytes")]
    _size_bytes: u64,
    #[serde(rename = "truncated")]
    _truncated: bool,
    #[serde(rename = "saved_as")]
    _saved_as: Option<String>,
    #[serde(rename = "version")]
    _version: Option<u64>,
}

/// A result, also with the keys that only `/v1/execute` adds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultRequest {
    #[serde(default)]
    output: String,
    #[serde(default)]
    output_files: Vec<ShownFile>,
    #[serde(default, rename = "workspace_id")]
    _workspace_id: IgnoredAny,
    #[serde(default, rename = "blocks")]
    _blocks: IgnoredAny,
}

fn call_result_string(body: &[u8]) -> Result<Value, EngineError> {
    let ResultRequest { output, output_files, .. } = parse(body)?;
    let named = |file: ShownFile| File { name: file.name, ..File::default() };
    let output_files = output_files.into_iter().map(named).collect();
    Ok(json!({ "text": result_string(&CodeExecutionResult { output, output_files }) }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootRequest {
    root: PathBuf,
}

fn call_dir_digest(body: &[u8]) -> Result<Value, EngineError> {
    let RootRequest { root } = parse(body)?;
    check_root(&root)?;
    value(&dir_digest(&root)?)
}

fn call_ensure_layout(body: &[u8]) -> Result<Value, EngineError> {
    let RootRequest { root } = parse(body)?;
    value(&ensure_layout(&root)?)
}

fn call_load_metadata(body: &[u8]) -> Result<Value, EngineError> {
    let RootRequest { root } = parse(body)?;
    check_root(&root)?;
    value(&load_metadata(&root)?)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SaveMetadataRequest {
    root: PathBuf,
    metadata: WorkspaceMetadata,
}

fn call_save_metadata(body: &[u8]) -> Result<Value, EngineError> {
    let SaveMetadataRequest { root, metadata } = parse(body)?;
    check_root(&root)?;
    value(&save_metadata(&root, &metadata)?)
}

/// Parses the JSON of a request.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, EngineError> {
    parse_object(body).map_err(|fault| match fault {
        JsonFault::NotJson { .. } => EngineError::new(EngineCode::NotJson, fault.to_string()),
        JsonFault::Invalid { path, words } => {
            EngineError::new(EngineCode::InvalidRequest, words).with("path", path)
        }
    })
}

fn value(answer: &impl Serialize) -> Result<Value, EngineError> {
    serde_json::to_value(answer)
        .map_err(|error| EngineError::new(EngineCode::IoFailed, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_helper_takes_and_answers_the_keys_of_its_document() {
        for (name, body, answer) in [
            (
                "extract_code_blocks",
                json!({"input": "```py\nx\n```"}),
                json!({"code_blocks": [{"code": "x\n", "language": "py"}]}),
            ),
            (
                "extract_code_blocks",
                json!({"input": "<py\nx>", "delimiter": {"start": "<", "end": ">"}}),
                json!({"code_blocks": [{"code": "x", "language": "py"}]}),
            ),
            ("extract_code_blocks", json!({"input": ""}), json!({"code_blocks": []})),
            (
                "build_block_spec",
                json!({"index": 1, "block": {"code": "x", "language": "PY"}}),
                json!({"file": "code_1.py", "mode": 420, "cmd": "python3", "args": []}),
            ),
            (
                "normalize_globs",
                json!({"patterns": ["$OUTPUT_DIR/x", "", "$OUTPUT_DIRECTORY/x"]}),
                json!({"patterns": ["out/x", "$OUTPUT_DIRECTORY/x"]}),
            ),
            ("parse_artifact_ref", json!({"ref": "a@3"}), json!({"name": "a", "version": 3})),
            ("parse_artifact_ref", json!({"ref": "a"}), json!({"name": "a", "version": null})),
            ("is_text_mime", json!({"mime_type": "text/css"}), json!({"text": true})),
            ("is_text_mime", json!({"mime_type": "image/png"}), json!({"text": false})),
            (
                "result_string",
                json!({"output": "o", "output_files": [{"name": "f", "mime_type": "x/y",
                       "saved_as": "a", "version": 0}], "workspace_id": "w", "blocks": [1]}),
                json!({"text": "Code execution result:\no\n Saved output files:\nf"}),
            ),
            (
                "result_string",
                json!({}),
                json!({"text": "Code execution result: No output or errors."}),
            ),
        ] {
            let helper = Helper::pure(name).unwrap();
            assert_eq!(helper.call(body.to_string().as_bytes()), Ok(answer), "{name} {body}");
        }
    }

    #[test]
    fn a_wrong_body_is_refused_with_the_path_of_its_fault() {
        for (name, body, path) in [
            ("extract_code_blocks", r#"{"input": 1}"#, "input"),
            ("extract_code_blocks", r#"{"inputs": ""}"#, "inputs"),
            (
                "extract_code_blocks",
                r#"{"input": "", "delimiter": {"start": "a"}}"#,
                "delimiter.end",
            ),
            (
                "extract_code_blocks",
                r#"{"input": "", "delimiter": {"start": "", "end": "a"}}"#,
                "delimiter.start",
            ),
            ("build_block_spec", r#"{"index": -1, "block": {"language": "py"}}"#, "index"),
            ("build_block_spec", r#"{"index": 0, "block": {"lang": "py"}}"#, "block.lang"),
            ("build_block_spec", r#"{"index": 0, "block": {"language": "c"}}"#, "block.language"),
            ("normalize_globs", r#"{"patterns": [1]}"#, "patterns[0]"),
            ("parse_artifact_ref", r#"{"ref": "@1"}"#, "ref"),
            ("result_string", r#"{"outputs": ""}"#, "outputs"),
            ("is_text_mime", r#"["text/css"]"#, "."),
            ("dir_digest", r#"{"root": "/dev/null"}"#, "root"),
            ("load_metadata", r#"{"root": "/proc/missing"}"#, "root"),
            ("save_metadata", r#"{"root": "", "metadata": {}}"#, "root"),
            ("save_metadata", r#"{"root": "/", "metadata": {"skills": []}}"#, "metadata.skills"),
            ("build_block_spec", r#"{"index": 0, "block": ["", "py"]}"#, "block"),
            ("is_text_mime", r#"{"mime_type": "a", "mime_type": "a"}"#, "mime_type"),
        ] {
            let error = Helper::find(name).unwrap().call(body.as_bytes()).unwrap_err();
            assert_eq!(error.code, EngineCode::InvalidRequest, "{body}");
            assert_eq!(error.details["path"], path, "{body}: {error}");
        }
        for body in ["", "{", r#"{"mime_type": 1"#, r#"{"mime_type": "a"} x"#, "\u{feff}{}"] {
            let error = Helper::find("is_text_mime").unwrap().call(body.as_bytes()).unwrap_err();
            assert_eq!(error.code, EngineCode::NotJson, "{body}");
        }
    }

    #[test]
    fn no_pure_helper_takes_a_directory() {
        assert!(Helper::names().all(|name| Helper::find(name).is_some()));
        for name in ["dir_digest", "ensure_layout", "load_metadata", "save_metadata"] {
            assert!(Helper::find(name).is_some() && Helper::pure(name).is_none(), "{name}");
        }
        assert!(Helper::find("ExtractCodeBlock").is_none());
    }
}
