//! The store and the session of artifacts, as one value that callers hand down.

use std::io::Read;

use super::key::{ArtifactKey, ArtifactScope};
use super::store::ArtifactStore;
use crate::workspace::error::{EngineCode, EngineError};

/// A store of artifacts and the session whose artifacts are meant.
#[derive(Debug, Clone, Default)]
pub struct ArtifactContext {
    service: Option<ArtifactStore>,
    session: ArtifactScope,
}

/// A version with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedArtifact {
    /// The bytes.
    pub data: Vec<u8>,
    /// The media type.
    pub mime_type: String,
    /// The version.
    pub version: u64,
}

/// `context` with a store.
#[must_use]
pub fn with_artifact_service(context: ArtifactContext, service: ArtifactStore) -> ArtifactContext {
    ArtifactContext { service: Some(service), ..context }
}

/// `context` with a session.
#[must_use]
pub fn with_artifact_session(context: ArtifactContext, session: ArtifactScope) -> ArtifactContext {
    ArtifactContext { session, ..context }
}

/// The store of `context`, if it has one.
pub fn artifact_service_from_context(context: &ArtifactContext) -> Option<&ArtifactStore> {
    context.service.as_ref()
}

/// Saves `data` as the next version of the artifact `name`. Returns the version.
///
/// # Errors
/// `context` has no store, the name is not valid, there is no room, or the store cannot be written.
pub fn save_artifact_helper(
    context: &ArtifactContext,
    name: &str,
    data: &[u8],
    mime_type: &str,
) -> Result<u64, EngineError> {
    let (service, key) = (service_of(context)?, ArtifactKey::new(context.session.clone(), name)?);
    Ok(service.save(key, mime_type, data)?.version)
}

/// Loads a version of the artifact `name`, the newest if none is named.
///
/// # Errors
/// `context` has no store, there is no such artifact or version, or the store cannot be read.
pub fn load_artifact_helper(
    context: &ArtifactContext,
    name: &str,
    version: Option<u64>,
) -> Result<LoadedArtifact, EngineError> {
    let (service, key) = (service_of(context)?, ArtifactKey::new(context.session.clone(), name)?);
    let opened = service.open_version(&key, version)?;
    let mut data = Vec::new();
    opened.file.take(opened.size_bytes).read_to_end(&mut data).map_err(|error| {
        EngineError::new(EngineCode::IoFailed, format!("read the artifact: {error}"))
    })?;
    Ok(LoadedArtifact { data, mime_type: opened.mime_type, version: opened.version })
}

fn service_of(context: &ArtifactContext) -> Result<&ArtifactStore, EngineError> {
    artifact_service_from_context(context).ok_or_else(|| {
        EngineError::new(EngineCode::InvalidRequest, "artifact service not in context")
    })
}
