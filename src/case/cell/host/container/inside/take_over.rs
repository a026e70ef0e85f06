//! Files that root made in the Cell become the caller's.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

/// The bits by which a program has the privileges of its owner or group.
const SET_ID: u32 = 0o6000;
/// The bits that change_mode takes.
const MODE: u32 = 0o7777;

/// Gives all below `path`, and `path` itself, to `uid` and `gid`, without set-id bits. Links are not followed.
///
/// # Errors
/// The kernel refuses.
pub(super) fn take_over(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let found = fs::symlink_metadata(&path)?;
        lchown(&path, Some(uid), Some(gid))?;
        if !found.is_symlink() && found.mode() & SET_ID != 0 {
            fs::set_permissions(&path, Permissions::from_mode(found.mode() & MODE & !SET_ID))?;
        }
        if found.is_dir() {
            for entry in fs::read_dir(&path)? {
                pending.push(entry?.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getegid, geteuid};
    use std::os::unix::fs::symlink;

    #[test]
    fn files_lose_their_set_id_bits_and_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (inner, outside) = (place.path().join("cell/a/b"), place.path().join("outside"));
        fs::create_dir_all(inner.parent().unwrap()).unwrap();
        for (path, mode) in [(&inner, 0o6755), (&outside, 0o4755)] {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        symlink(&outside, place.path().join("cell/link")).unwrap();
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        take_over(&place.path().join("cell"), uid, gid).unwrap();
        let mode = |path| fs::metadata(path).unwrap().mode() & MODE;
        assert_eq!((mode(&inner), mode(&outside)), (0o755, 0o4755));
    }
}
