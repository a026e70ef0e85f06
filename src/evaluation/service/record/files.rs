//! What records and batches do alike with their files.

use std::ffi::OsStr;

use nix::errno::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::{ReadFault, StoreDir, StoreError};
use cofferdam_tree::remove_tree;

/// Removes a directory, which is first renamed, so that no half of it is seen.
pub fn remove_renamed(parent: &StoreDir, name: &str) {
    let gone = format!(".gone-{name}");
    match parent.move_to(name, parent, &gone) {
        Ok(()) => remove(parent, OsStr::new(&gone)),
        Err(Errno::ENOENT) => {}
        Err(errno) => log::warn!(name, errno:% = errno; "record of an evaluation not removed"),
    }
}

/// Removes a directory. A failed removal is repeated at the next start.
pub fn remove(parent: &StoreDir, name: &OsStr) {
    match remove_tree(parent.fd(), name) {
        Ok(removed) if removed.left == 0 => {}
        outcome => log::warn!(outcome:? = outcome; "record of an evaluation not removed"),
    }
}

/// A value as a line of JSON.
pub fn json_bytes(
    directory: &StoreDir,
    name: &str,
    value: &impl Serialize,
) -> Result<Vec<u8>, StoreError> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| StoreError::NotRecordable {
        path: directory.path_of(name),
        reason: error.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The value of a file.
pub fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ReadFault> {
    serde_json::from_slice(bytes).map_err(|error| ReadFault::Corrupt(error.to_string()))
}
