//! The files of saved trees in the store.

use std::ffi::OsStr;
use std::fs::File;

use nix::errno::Errno;

use crate::store::{ReadFault, StoreDir, StoreError};
use cofferdam_tree::{WorkspaceError, remove_tree};

/// The directory of the extents of one saved tree.
pub(super) const EXTENTS: &str = "extents";

/// Removes the directory `name` with everything in it.
pub(super) fn remove_all(place: &StoreDir, name: &str) -> Result<(), StoreError> {
    let removed = remove_tree(place.fd(), OsStr::new(name));
    match removed {
        Ok(removal) if removal.left == 0 => Ok(()),
        Ok(_) => Err(place.error("remove", name, Errno::ENOTEMPTY)),
        Err(WorkspaceError::System { source, operation, .. }) => {
            Err(place.error(operation, name, source))
        }
        Err(_) => Err(place.error("remove", name, Errno::EIO)),
    }
}

/// Opens a file of a save.
pub(super) fn open(directory: &StoreDir, name: &str) -> Result<File, StoreError> {
    match directory.open_file(name) {
        Ok((file, _)) => Ok(file),
        Err(ReadFault::Absent) => Err(directory.error("open", name, Errno::ENOENT)),
        Err(ReadFault::Corrupt(reason)) => {
            Err(StoreError::Corrupt { path: directory.path_of(name), reason })
        }
        Err(ReadFault::System(error)) => Err(error),
    }
}
