//! Stages inputs and directories: from artifacts, from the host, from the workspace and from stored skills.

mod directory;
mod inputs;
mod mount;
pub(crate) mod records;
pub(crate) mod request;
pub(crate) mod scope;
mod source;
pub(crate) mod stores;
pub(crate) mod versions;

pub use directory::{StagedDirectoryView, stage_archive, stage_directory};
pub use inputs::{StagedInputsView, stage_inputs};
pub use request::{InputSpec, StageDirectoryRequest, StageInputsRequest};
pub use stores::EngineStores;
