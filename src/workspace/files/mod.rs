//! The files of workspaces: by path, with the errors and the accounting of the engine.

mod archive;
mod change;
mod collect;
pub(super) mod error;
pub(crate) mod outputs;
mod patterns;
mod read;
mod request;
pub(crate) mod staging;
mod view;

pub use archive::{receive_archive, send_archive};
pub use change::{make_directory, move_file, put_file, put_files, remove_file};
pub use collect::collect_files;
pub use error::{engine_error, locate};
pub use outputs::collect_outputs;
pub use read::{file_status, list_files, load_metadata, open_file, tree_digest};
pub use request::{
    CollectRequest, ListFilesQuery, MkdirRequest, MoveRequest, NewFileRequest, PutFilesRequest,
};
pub use staging::{
    EngineStores, InputSpec, StageDirectoryRequest, StageInputsRequest, StagedDirectoryView,
    StagedInputsView, stage_archive, stage_directory, stage_inputs,
};
pub use view::{CollectView, DigestView, FilePage, FileView, WrittenView};
