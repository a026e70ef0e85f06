//! Which versions of artifacts were staged where.
//!
//! `metadata.json` has them too, but programs can rewrite it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::workspace::artifacts::ArtifactKey;
use cofferdam_core::values::digest::sha256_of;

/// The most artifacts and places of one workspace that are remembered. The one staged longest ago is forgotten first.
const REMEMBERED_MAX: usize = 512;

/// The newest version of each artifact that was staged to each place of one workspace.
#[derive(Debug, Default)]
pub struct StagedVersions {
    /// By a digest of the artifact and the place, the one staged last at the end.
    newest: Mutex<VecDeque<(String, u64)>>,
    /// Held while `metadata.json` is read, changed and replaced.
    writing_metadata: Mutex<()>,
}

impl StagedVersions {
    /// The newest version of the artifact `key` that was staged to the place `to`.
    pub fn newest(&self, key: &ArtifactKey, to: &str) -> Option<u64> {
        let digest = digest_of(key, to);
        self.lock().iter().find(|(of, _)| *of == digest).map(|(_, version)| *version)
    }

    /// Notes that this version of `key` was staged to the place `to`.
    pub fn note(&self, key: &ArtifactKey, to: &str, version: u64) {
        let digest = digest_of(key, to);
        let mut newest = self.lock();
        let before = newest.iter().position(|(of, _)| *of == digest);
        let before = before.and_then(|index| newest.remove(index)).map(|(_, version)| version);
        newest.push_back((digest, before.map_or(version, |before| before.max(version))));
        if newest.len() > REMEMBERED_MAX {
            newest.pop_front();
        }
    }

    /// Everything that is remembered, the one staged last at the end. It holds no names.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.lock().iter().cloned().collect()
    }

    /// Remembers what [`StagedVersions::all`] of another workspace returned, and nothing else.
    pub fn replace_all(&self, all: &[(String, u64)]) {
        let skipped = all.len().saturating_sub(REMEMBERED_MAX);
        *self.lock() = all.iter().skip(skipped).cloned().collect();
    }

    /// Waits until no other thread changes `metadata.json`.
    pub fn metadata_turn(&self) -> MutexGuard<'_, ()> {
        self.writing_metadata.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, u64)>> {
        // Each change leaves a list of whole records.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of a fixed length, whatever the names are.
fn digest_of(key: &ArtifactKey, to: &str) -> String {
    // Does not fail: the keys of the object are texts.
    sha256_of(&serde_json::to_vec(&(key, to)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::artifacts::ArtifactScope;

    fn key(app: &str, name: &str) -> ArtifactKey {
        ArtifactKey::new(ArtifactScope::new("", app, "", "").unwrap(), name).unwrap()
    }

    #[test]
    fn the_newest_version_of_an_artifact_and_a_place_is_remembered() {
        let versions = StagedVersions::default();
        assert_eq!(versions.newest(&key("", "a"), "x"), None);
        for (name, to, version) in [("a", "x", 3), ("a", "x", 1), ("a", "y", 0), ("b", "x", 7)] {
            versions.note(&key("", name), to, version);
        }
        let newest = |app, name, to| versions.newest(&key(app, name), to);
        assert_eq!((newest("", "a", "x"), newest("", "a", "y")), (Some(3), Some(0)));
        assert_eq!(
            (newest("", "b", "x"), newest("", "b", "y"), newest("o", "a", "x")),
            (Some(7), None, None)
        );
        let fork = StagedVersions::default();
        fork.note(&key("", "c"), "z", 1);
        fork.replace_all(&versions.all());
        assert_eq!(fork.newest(&key("", "a"), "x"), Some(3));
        assert_eq!(fork.newest(&key("", "c"), "z"), None);
    }

    #[test]
    fn the_records_are_bounded() {
        let versions = StagedVersions::default();
        for number in 0..=REMEMBERED_MAX {
            versions.note(&key("", "a"), &number.to_string(), 0);
        }
        assert_eq!(versions.all().len(), REMEMBERED_MAX);
        assert_eq!(versions.newest(&key("", "a"), "0"), None);
        assert_eq!(versions.newest(&key("", "a"), "1"), Some(0));
        let twice = [versions.all(), versions.all()].concat();
        versions.replace_all(&twice);
        assert_eq!(versions.all().len(), REMEMBERED_MAX);
    }
}
