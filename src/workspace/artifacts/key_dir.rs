//! The directory of one artifact.
//!
//! ```text
//! key.json    whose it is and its name; absent while it has no version
//! 0 1 2 …     its versions
//! gone.7      versions below 7 are deleted, and the next is at least 7
//! ```
//!
//! DELETE renames the newest version to `gone.…`: one rename deletes all versions and keeps the count,
//! and it needs no room on the disk.

use std::ffi::OsStr;

use nix::sys::stat::SFlag;

use super::key::ArtifactKey;
use crate::store::{ReadFault, StoreDir, StoreError};
use crate::workspace::disk::file_charge;

/// The file that says whose directory this is.
const KEY_FILE: &str = "key.json";
/// The longest such file, bytes: every byte of its texts can be escaped to six.
const KEY_FILE_BYTES_MAX: u64 = 32 << 10;
const GONE: &str = "gone.";

/// What is in the directory of an artifact.
#[derive(Debug, Default)]
pub(super) struct KeyEntries {
    /// The versions, in ascending order.
    pub(super) versions: Vec<u64>,
    /// Every version below it is deleted.
    gone_below: u64,
    /// Files of deleted versions.
    dead: Vec<String>,
    has_key_file: bool,
}

impl KeyEntries {
    /// Reads the directory.
    pub(super) fn read(directory: &StoreDir) -> Result<Self, StoreError> {
        let (mut found, mut markers) = (Self::default(), Vec::new());
        directory.for_each_name(|name| -> Result<(), StoreError> {
            if let Some(version) = number(name, "") {
                found.versions.push(version);
            } else if let Some(below) = number(name, GONE) {
                markers.push(below);
                found.gone_below = found.gone_below.max(below);
            } else if name == KEY_FILE {
                found.has_key_file = true;
            }
            Ok(())
        })?;
        let gone_below = found.gone_below;
        let dead = found.versions.extract_if(.., |version| *version < gone_below);
        found.dead = dead.map(|version| version.to_string()).collect();
        let older = markers.into_iter().filter(|below| *below < gone_below);
        found.dead.extend(older.map(marker));
        found.versions.sort_unstable();
        Ok(found)
    }

    /// The version that the next save gets.
    pub(super) fn next_version(&self) -> u64 {
        let after_last = self.versions.last().map_or(0, |version| version.saturating_add(1));
        after_last.max(self.gone_below)
    }

    pub(super) fn has_key_file(&self) -> bool {
        self.has_key_file
    }

    /// Deletes every version. When this returns, they are deleted on the disk too. Files that could
    /// not be removed yet are removed at the next start.
    pub(super) fn delete(&self, directory: &StoreDir) -> Result<(), StoreError> {
        let Some(last) = self.versions.last() else { return Ok(()) };
        let (name, marker) = (last.to_string(), marker(self.next_version()));
        directory
            .move_to(&name, directory, &marker)
            .map_err(|errno| directory.error("rename", &name, errno))?;
        directory.sync()
    }

    /// Removes the files of deleted versions, and what names an artifact without a version.
    pub(super) fn sweep(&self, directory: &StoreDir) -> Result<(), StoreError> {
        for name in &self.dead {
            directory.unlink(name)?;
        }
        if self.gone_below > 0 {
            directory.empty(&marker(self.gone_below))?;
        }
        if self.versions.is_empty() {
            directory.unlink(KEY_FILE)?;
        }
        directory.unlink_unfinished(KEY_FILE)
    }

    /// Whether nothing is worth keeping.
    pub(super) fn is_unused(&self) -> bool {
        self.versions.is_empty() && self.gone_below == 0
    }
}

/// The number in the name of a version or a marker.
fn number(name: &OsStr, prefix: &str) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(prefix)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

fn marker(below: u64) -> String {
    format!("{GONE}{below}")
}

/// How much the files in `directory` take on the disk.
pub(super) fn charge_of(directory: &StoreDir) -> Result<u64, StoreError> {
    let mut bytes = 0_u64;
    directory.for_each_name(|name| -> Result<(), StoreError> {
        let entry = directory.entry(name)?;
        let is_file = |mode: u32| mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
        if let Some(file) = entry.filter(|file| is_file(file.st_mode)) {
            let size = u64::try_from(file.st_size).unwrap_or(0);
            bytes = bytes.saturating_add(file_charge(size));
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// The contents of [`KEY_FILE`].
pub(super) fn key_file_of(key: &ArtifactKey) -> Vec<u8> {
    // Does not fail: it has only strings.
    serde_json::to_vec(key).unwrap_or_default()
}

/// Writes whose directory this is.
pub(super) fn write_key(directory: &StoreDir, contents: &[u8]) -> Result<(), StoreError> {
    directory.replace(KEY_FILE, contents)
}

/// Whose directory this is; nothing if the artifact has no version.
pub(super) fn read_key(directory: &StoreDir) -> Result<Option<ArtifactKey>, StoreError> {
    match directory.read(KEY_FILE, KEY_FILE_BYTES_MAX) {
        Ok(json) => Ok(serde_json::from_slice(&json).ok()),
        Err(ReadFault::Absent) => Ok(None),
        Err(fault) => Err(fault.at(directory.path_of(KEY_FILE))),
    }
}
