//! Whose artifacts a workspace uses.

use crate::workspace::artifacts::ArtifactScope;
use crate::workspace::error::EngineError;
use crate::workspace::service::live::LiveWorkspace;

/// Whose artifacts a workspace uses.
///
/// # Errors
/// A part of its session is too long.
pub fn artifact_scope(live: &LiveWorkspace) -> Result<ArtifactScope, EngineError> {
    let session = live.settings.artifact_session.clone().unwrap_or_default();
    ArtifactScope::new(live.owner.as_str(), &session.app, &session.user, &session.session)
}
