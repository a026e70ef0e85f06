//! Small functions that agents' tools share: code blocks, patterns, names, metadata, digests.

mod artifact_ref;
mod call;
mod code_blocks;
pub mod constants;
mod digest;
mod execution;
mod globs;
mod layout;
mod metadata;
mod mime;
mod outputs;

pub use artifact_ref::{VERSION_MAX, parse_artifact_ref};
pub use call::Helper;
pub use code_blocks::{
    BlockSpec, CodeBlock, CodeBlockDelimiter, build_block_spec, extract_code_blocks,
};
pub use digest::{TreeDigest, dir_digest};
pub use execution::{CodeExecutionInput, CodeExecutionResult, File, result_string};
pub use globs::normalize_globs;
pub use layout::ensure_layout;
pub use metadata::{
    InputRecord, METADATA_BYTES_MAX, METADATA_VERSION, OutputRecord, SkillMeta, WorkspaceMetadata,
    load_metadata, save_metadata,
};
pub use mime::is_text_mime;
pub use outputs::{FileRef, OmittedOutput, OutputManifest, OutputSpec};
