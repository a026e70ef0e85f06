//! What uploads and downloads of files have in common.

use axum::http::Uri;
use tokio::sync::OwnedSemaphorePermit;

use crate::http::engine::query::{QueryParams, workspace_id};
use crate::http::engine::state::EngineState;
use crate::workspace::{EngineCode, EngineError};

/// Pieces of a body between the connection and the thread that reads or writes files.
pub const PIECES_MAX: usize = 4;

/// The workspace and the file that a request names.
#[derive(Debug, Clone)]
pub struct NamedFile {
    /// The workspace.
    pub id: String,
    /// The file, by the path rule.
    pub path: String,
    /// The other parameters.
    pub params: QueryParams,
}

impl NamedFile {
    /// The file that the query names. It may have the parameters `more`.
    ///
    /// # Errors
    /// It names none, or there are other parameters.
    pub fn of(uri: &Uri, more: &[&str]) -> Result<Self, EngineError> {
        let id = workspace_id(uri)?;
        let params = QueryParams::parse(uri, &[&["path"], more].concat())?;
        let path = params.get("path").ok_or_else(|| {
            EngineError::new(EngineCode::InvalidRequest, "missing parameter \"path\"")
                .with("path", "path")
        })?;
        let path = path.to_owned();
        Ok(Self { id, path, params })
    }
}

/// Takes the right to one more transfer.
///
/// # Errors
/// There are as many as there may be.
pub fn permit(state: &EngineState) -> Result<OwnedSemaphorePermit, EngineError> {
    state.transfers.clone().try_acquire_owned().map_err(|_| {
        EngineError::new(EngineCode::EngineBusy, "as many transfers as there may be at once")
            .with("limit", "transfers")
    })
}
