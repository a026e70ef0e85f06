//! `settings.json` of a saved workspace or snapshot.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::store::{ReadFault, StoreDir, StoreError};
use crate::workspace::request::WorkspaceSettings;
use cofferdam_sandbox::engine::MountedTree;

/// The name of the file.
const FILE: &str = "settings.json";
/// The longest one: it holds the variables of a workspace.
const BYTES_MAX: u64 = 64 << 20;
/// The form of the file. Another form gets another number.
const FORM: u32 = 1;

/// What is kept of a workspace or a snapshot besides its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedRecord {
    /// The form of this record.
    form: u32,
    /// Its id, the name of its directory.
    pub id: String,
    /// The name of the token that it belongs to.
    pub owner: String,
    /// The number of its manifest.
    pub(super) manifest: u64,
    /// When it was created.
    pub created_at: SystemTime,
    /// When its files were as they are saved.
    pub saved_at: SystemTime,
    /// When it was last used.
    pub last_access: SystemTime,
    /// When the time began for which it is kept unused.
    pub kept_from: SystemTime,
    /// What its files used.
    pub used: SavedUsage,
    /// The digest of a snapshot; empty for a workspace.
    pub digest: String,
    /// The number of a snapshot's regular files.
    pub files: u64,
    /// The bytes of a snapshot's regular files.
    pub bytes: u64,
    /// Which versions of artifacts were staged into it.
    pub staged: Vec<(String, u64)>,
    /// The read-only trees that it shows. They are saved with the files, and are not in `used`.
    #[serde(default)]
    pub mounted: SavedMounts,
    /// What it was created with; for a snapshot, what its workspace was created with.
    pub settings: WorkspaceSettings,
}

/// What the files of a workspace used when it was saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedUsage {
    /// Bytes.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

/// The read-only trees that a workspace shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedMounts {
    /// Where they were mounted.
    pub places: Vec<String>,
    /// What copies of them in the workspace would use.
    pub used: SavedUsage,
}

impl SavedMounts {
    /// Those of `mounted`.
    pub fn of(mounted: &[MountedTree]) -> Self {
        let mut mounts = Self::default();
        for MountedTree { tree, path } in mounted {
            let used = tree.used();
            mounts.used.bytes = mounts.used.bytes.saturating_add(used.bytes);
            mounts.used.inodes = mounts.used.inodes.saturating_add(used.inodes);
            mounts.places.push(path.display().to_string());
        }
        mounts
    }
}

impl SavedRecord {
    /// The record of `id`, which is saved and was used at `saved_at`.
    pub fn new(
        (id, owner): (String, String),
        (created_at, saved_at): (SystemTime, SystemTime),
        used: SavedUsage,
        settings: WorkspaceSettings,
    ) -> Self {
        Self {
            form: FORM,
            id,
            owner,
            manifest: 0,
            created_at,
            saved_at,
            last_access: saved_at,
            kept_from: saved_at,
            used,
            digest: String::new(),
            files: 0,
            bytes: 0,
            staged: Vec::new(),
            mounted: SavedMounts::default(),
            settings,
        }
    }

    /// The read-only trees, and the room that they and whatever exceeds the limits need besides the limits.
    pub fn mounts(&self) -> SavedMounts {
        let mut mounts = self.mounted.clone();
        let beyond = |used: u64, limit: u64| used.saturating_sub(limit);
        let bytes = beyond(self.used.bytes, self.settings.disk_bytes);
        let inodes = beyond(self.used.inodes, self.settings.inodes);
        mounts.used.bytes = mounts.used.bytes.saturating_add(bytes);
        mounts.used.inodes = mounts.used.inodes.saturating_add(inodes);
        mounts
    }

    /// The time left until it has been unused for `keep`.
    pub fn left(&self, keep: Duration) -> Duration {
        // A clock that was set back does not remove anything early.
        keep.saturating_sub(self.kept_from.elapsed().unwrap_or_default())
    }

    /// The name of its manifest.
    pub(super) fn manifest_name(&self) -> String {
        manifest_name(self.manifest)
    }

    /// Reads the record in `directory`; `None` if it is missing.
    pub(super) fn read(directory: &StoreDir) -> Result<Option<Self>, StoreError> {
        let unusable =
            |reason: String| StoreError::Corrupt { path: directory.path_of(FILE), reason };
        let bytes = match directory.read(FILE, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(ReadFault::Absent) => return Ok(None),
            Err(ReadFault::Corrupt(reason)) => return Err(unusable(reason)),
            Err(ReadFault::System(error)) => return Err(error),
        };
        let record: Self =
            serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))?;
        match record.form {
            FORM => Ok(Some(record)),
            other => Err(unusable(format!("form {other} is not known"))),
        }
    }

    /// Replaces the record in `directory`. On return it is on the disk, but its name may not be.
    pub(super) fn write(&self, directory: &StoreDir) -> Result<(), StoreError> {
        // Paths and variables are texts, so nothing in it fails.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        directory.replace(FILE, &bytes)
    }
}

/// The name of the manifest with that number.
pub(super) fn manifest_name(number: u64) -> String {
    format!("manifest-{number}")
}
