//! Artifacts: named files with versions, kept on disk.
//!
//! ```text
//! <ENGINE_STORE_DIR>/lock                  locked by the one service that owns the directory
//! <ENGINE_STORE_DIR>/artifacts/S/N/        an artifact: S is a digest of its owner, app, user and
//!                                          session, N one of its name
//! <ENGINE_STORE_DIR>/artifacts-incoming/   versions that are being received
//! ```
//!
//! A version is received under a temporary name, written to the disk, and then renamed to its number,
//! so it is there as a whole or not at all. The number is taken with the rename, and the rename is on
//! the disk before anyone is told the number. A deleted artifact keeps its directory, and in it the
//! number to go on with, so that no number is given twice.

mod context;
mod key;
mod key_dir;
mod lazy;
mod read;
mod store;
#[cfg(test)]
mod tests;
mod upload;
mod version_file;

pub use context::{
    ArtifactContext, LoadedArtifact, artifact_service_from_context, load_artifact_helper,
    save_artifact_helper, with_artifact_service, with_artifact_session,
};
pub use key::{ArtifactKey, ArtifactScope, NAME_BYTES_MAX, SESSION_PART_BYTES_MAX};
pub use lazy::LazyArtifacts;
pub use read::{ArtifactPage, ArtifactSummary, OpenVersion};
pub use store::ArtifactStore;
pub use upload::{ArtifactUpload, MIME_TYPE_BYTES_MAX, SavedVersion, SealedUpload};
