//! What a start of the service does with the skills.

use nix::errno::Errno;
use nix::sys::stat::SFlag;

use crate::store::{StoreDir, StoreError};
use crate::workspace::disk::store_quota::{StoreQuota, file_charge};
use cofferdam_tree::remove_tree;

/// The directory of stored archives.
pub(super) const SKILLS: &str = "skills";
/// The directory of archives that are being received.
pub(super) const INCOMING: &str = "skills-incoming";

/// Removes what a killed service has not finished in the engine's directory `root`, and counts the skills.
pub fn sweep(root: &StoreDir, quota: &StoreQuota) -> Result<(), StoreError> {
    if let Some(incoming) = existing(root, INCOMING)? {
        for name in incoming.names()? {
            let entry = incoming.entry(&name)?;
            let kind = entry.map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
            if kind == Some(SFlag::S_IFDIR) {
                let removed = remove_tree(incoming.fd(), &name);
                if removed.is_err() || removed.is_ok_and(|removal| removal.left > 0) {
                    return Err(incoming.error("remove", &name, Errno::EIO));
                }
            } else {
                incoming.unlink(&name.to_string_lossy())?;
            }
        }
    }
    let Some(skills) = existing(root, SKILLS)? else { return Ok(()) };
    skills.for_each_name(|name| -> Result<(), StoreError> {
        if let Some(stat) = skills.entry(name)? {
            quota.add(file_charge(u64::try_from(stat.st_size).unwrap_or(0)));
        }
        Ok(())
    })
}

fn existing(root: &StoreDir, name: &str) -> Result<Option<StoreDir>, StoreError> {
    match root.child(name) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(root.error("open", name, errno)),
    }
}
