//! Removes what a killed service has left of saves that it did not finish, and counts the rest.

use super::extents::{NamedExtents, extent_name, named_extents};
use super::files::{EXTENTS, open, remove_all};
use super::record::SavedRecord;
use crate::store::{StoreDir, StoreError};
use crate::workspace::disk::store_quota::{DIRECTORY_CHARGE, StoreQuota, file_charge};

/// The start of the name of a directory that is being removed.
pub(super) const GONE: &str = ".gone-";

/// Sweeps the saved trees in `place`, and adds what they take to `quota`. Returns their records, the oldest
/// first. One that cannot be read stays where it is, and is logged.
pub(super) fn sweep(place: &StoreDir, quota: &StoreQuota) -> Result<Vec<SavedRecord>, StoreError> {
    let mut records = Vec::new();
    for name in place.names()? {
        let name = name.to_string_lossy();
        if name.starts_with(GONE) {
            remove_all(place, &name)?;
            continue;
        }
        let directory = match place.child(&*name) {
            Ok(directory) => directory,
            Err(errno) => {
                log::error!("{}", place.error("open", &*name, errno));
                continue;
            }
        };
        match SavedRecord::read(&directory) {
            // Its first save did not finish.
            Ok(None) => remove_all(place, &name)?,
            Ok(Some(record)) if record.id == name => {
                quota.add(sweep_saved(&directory, &record)?);
                records.push(record);
            }
            Ok(Some(record)) => log::error!("{name:?} in the store holds {:?}", record.id),
            Err(error) => log::error!("a save is left as it is: {error}"),
        }
    }
    records.sort_by_key(|record| record.created_at);
    Ok(records)
}

/// Removes files that the save does not need. Returns how much it takes.
fn sweep_saved(directory: &StoreDir, record: &SavedRecord) -> Result<u64, StoreError> {
    let manifest = record.manifest_name();
    let unneeded = |name: &str| match name {
        // The record that was not finished, or the manifest of an earlier or an unfinished save.
        name if name.starts_with("manifest-") => name != manifest,
        name => name.starts_with('.'),
    };
    for name in directory.names()? {
        let name = name.to_string_lossy();
        if unneeded(&name) {
            directory.unlink(&name)?;
        }
    }
    let named = open(directory, &manifest).map(named_extents);
    let named = match named {
        Ok(Ok(named)) => Some(named),
        Ok(Err(error)) => {
            log::error!("{:?}: {error}", directory.path_of(&manifest));
            None
        }
        Err(error) => {
            log::error!("{error}");
            None
        }
    };
    charge_of(directory, named.as_ref())
}

/// How much a saved tree takes on the disk. Extents that `named` lacks are removed first.
pub(super) fn charge_of(
    directory: &StoreDir,
    named: Option<&NamedExtents>,
) -> Result<u64, StoreError> {
    let mut charge = 2 * DIRECTORY_CHARGE;
    let bytes_of = |directory: &StoreDir, name: &str| -> Result<u64, StoreError> {
        let bytes = directory.entry(name)?.map_or(0, |stat| stat.st_size);
        Ok(file_charge(u64::try_from(bytes).unwrap_or_default()))
    };
    for name in directory.names()? {
        let name = name.to_string_lossy();
        if name != EXTENTS {
            charge += bytes_of(directory, &name)?;
        }
    }
    let names: Option<std::collections::HashSet<String>> =
        named.map(|named| named.keys().map(extent_name).collect());
    let extents = directory.own_child(EXTENTS)?;
    extents.for_each_name(|name| {
        let name = name.to_string_lossy();
        if names.as_ref().is_some_and(|names| !names.contains(&*name)) {
            return extents.unlink(&name);
        }
        charge += bytes_of(&extents, &name)?;
        Ok::<(), StoreError>(())
    })?;
    Ok(charge)
}
