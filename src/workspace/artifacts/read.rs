//! Reads artifacts and lists them.

use std::collections::BTreeSet;
use std::fs::File;

use serde::Serialize;

use super::key::{ArtifactKey, ArtifactScope};
use super::key_dir::{KeyEntries, read_key};
use super::store::{ArtifactStore, StoreInner};
use super::version_file::read_facts;
use crate::store::{ReadFault, StoreError};
use crate::workspace::error::{EngineCode, EngineError};

/// A version, opened for reading. It stays readable when it is deleted.
#[derive(Debug)]
pub struct OpenVersion {
    /// The file, whose first `size_bytes` bytes are the version.
    pub file: File,
    /// The version.
    pub version: u64,
    /// The number of bytes.
    pub size_bytes: u64,
    /// Their SHA-256, 64 hexadecimal digits.
    pub sha256: String,
    /// Their media type.
    pub mime_type: String,
}

/// An artifact in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArtifactSummary {
    /// The name.
    pub name: String,
    /// The newest version.
    pub latest: u64,
    /// How many versions there are.
    pub versions: u64,
}

/// A part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ArtifactPage {
    /// The artifacts, ordered by name.
    pub artifacts: Vec<ArtifactSummary>,
    /// The last name of this part, if the list goes on after it.
    #[serde(skip)]
    pub last_name: Option<String>,
}

impl ArtifactStore {
    /// Opens a version of an artifact, the newest if none is named.
    ///
    /// # Errors
    /// There is no such artifact or version, or the files cannot be read.
    pub fn open_version(
        &self,
        key: &ArtifactKey,
        version: Option<u64>,
    ) -> Result<OpenVersion, EngineError> {
        let directory = self.inner.key_dir(key)?.ok_or_else(StoreInner::not_found)?;
        let versions = KeyEntries::read(&directory)?.versions;
        let latest = *versions.last().ok_or_else(StoreInner::not_found)?;
        let version = version.unwrap_or(latest);
        let no_version = || {
            let words = format!("the artifact has no version {version}");
            EngineError::new(EngineCode::ArtifactVersionNotFound, words).with("version", version)
        };
        if versions.binary_search(&version).is_err() {
            return Err(no_version());
        }
        let name = version.to_string();
        let (file, bytes) = directory.open_file(&name).map_err(|fault| match fault {
            // Deleted meanwhile.
            ReadFault::Absent => StoreInner::not_found(),
            fault => fault.at(directory.path_of(&name)).into(),
        })?;
        let facts = read_facts(&file, bytes).map_err(|reason| {
            EngineError::from(StoreError::Corrupt { path: directory.path_of(&name), reason })
        })?;
        let (size_bytes, sha256, mime_type) = (facts.size_bytes, facts.sha256, facts.mime_type);
        Ok(OpenVersion { file, version, size_bytes, sha256, mime_type })
    }

    /// The versions of an artifact in ascending order.
    ///
    /// # Errors
    /// There is no such artifact, or the files cannot be read.
    pub fn versions(&self, key: &ArtifactKey) -> Result<Vec<u64>, EngineError> {
        let directory = self.inner.key_dir(key)?.ok_or_else(StoreInner::not_found)?;
        let versions = KeyEntries::read(&directory)?.versions;
        if versions.is_empty() { Err(StoreInner::not_found()) } else { Ok(versions) }
    }

    /// Lists at most `limit` artifacts of `scope` whose names come after `after`.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn list(
        &self,
        scope: &ArtifactScope,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ArtifactPage, EngineError> {
        let Some(directory) = self.inner.scope_dir(scope)? else {
            return Ok(ArtifactPage::default());
        };
        // Directories have no order, so each is read; only the names of one page are kept.
        let mut names = BTreeSet::new();
        directory.for_each_name(|name| -> Result<(), StoreError> {
            let Ok(of_key) = directory.child(name) else { return Ok(()) };
            let Some(key) = read_key(&of_key)? else { return Ok(()) };
            if after.is_none_or(|after| key.name() > after) {
                names.insert(key.name().to_owned());
            }
            if names.len() > limit.saturating_add(1) {
                names.pop_last();
            }
            Ok(())
        })?;
        let goes_on = names.len() > limit;
        if goes_on {
            names.pop_last();
        }
        let last_name = names.last().filter(|_| goes_on).cloned();
        let mut artifacts = Vec::with_capacity(names.len());
        for name in names {
            let versions = match self.versions(&ArtifactKey::new(scope.clone(), &name)?) {
                // Deleted meanwhile.
                Err(error) if error.code == EngineCode::ArtifactNotFound => continue,
                versions => versions?,
            };
            if let Some(latest) = versions.last() {
                let (latest, versions) = (*latest, versions.len() as u64);
                artifacts.push(ArtifactSummary { name, latest, versions });
            }
        }
        Ok(ArtifactPage { artifacts, last_name })
    }
}
