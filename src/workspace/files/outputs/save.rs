//! Saves collected files as artifacts.

use super::name_template::NameTemplate;
use crate::workspace::artifacts::{ArtifactKey, SavedVersion, SealedUpload};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::files::staging::scope::artifact_scope;
use crate::workspace::files::staging::stores::EngineStores;
use crate::workspace::service::live::LiveWorkspace;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_tree::files::CollectedFile;

/// Saves `files` as the next versions of artifacts that `template` names. All of them are on the disk before the
/// first one is a version.
///
/// # Errors
/// A file is cut, its name cannot be an artifact's, or the store has no room. No file is saved then.
pub fn save_files(
    live: &LiveWorkspace,
    stores: &EngineStores,
    template: &NameTemplate,
    files: &[CollectedFile],
) -> Result<Vec<SavedVersion>, EngineError> {
    let cut = files.iter().find(|file| file.truncated);
    if let Some(cut) = cut.filter(|_| !weakened::lacks(Wall::Whole)) {
        let words = "a file that would be saved was cut";
        let name = cut.name.display().to_string();
        return Err(EngineError::new(EngineCode::CollectTruncatedSave, words).with("path", name));
    }
    let scope = artifact_scope(live)?;
    let exec_id = live.settings.exec_id.as_deref().unwrap_or_default();
    let key = |file: &CollectedFile| {
        let path = file.name.display().to_string();
        let key = ArtifactKey::new(scope.clone(), &template.name(&path, exec_id));
        key.map_err(|error| {
            let words = format!("name_template: {path} cannot be saved: {}", error.message);
            EngineError::invalid("name_template", words).with("file", path)
        })
    };
    let keys = files.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let store = stores.artifacts()?.store_for_save()?;
    let sealed = keys.into_iter().zip(files).map(|(key, file)| {
        let mut upload = store.upload(key, file.mime_type, file.content.len() as u64)?;
        upload.write(&file.content)?;
        upload.seal()
    });
    let sealed = sealed.collect::<Result<Vec<_>, EngineError>>()?;
    sealed.into_iter().map(SealedUpload::publish).collect()
}
