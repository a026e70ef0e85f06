//! The user namespace through which the owner of a directory of the host is a sandbox's host id.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use crate::launch::unprivileged::{self, ONLY_ID};
use crate::layers::error::LayerError;
use crate::pool::namespace_holder::NamespaceHolder;
use cofferdam_core::SetupFailure;

/// One more than the largest id.
const IDS_END: u32 = u32::MAX;

/// How the owner of a directory becomes the sandbox's host id.
#[derive(Debug)]
pub(super) enum OwnerMap {
    /// It is that id.
    Same,
    /// A mount with ids mapped by this namespace shows it.
    Through(OwnedFd),
}

/// Finds out how the files of `uid` and `gid` become those of `host_id`.
pub(super) fn map_of_owner(uid: u32, gid: u32, host_id: u32) -> Result<OwnerMap, LayerError> {
    if unprivileged::is_active()? {
        if uid == ONLY_ID {
            return Ok(OwnerMap::Same);
        }
        let words =
            "the directory belongs to another user, and without privileges ids cannot be mapped";
        return Err(SetupFailure::from_words("map the owner of the directory", words).into());
    }
    let uids = format!("{uid} {host_id} 1\n");
    // Of the other groups a file's owner keeps his rights: they stay as they are, where this process may
    // map them.
    let every = open_namespace(&uids, &gid_map(gid, host_id));
    let namespace = every.or_else(|_| open_namespace(&uids, &format!("{gid} {host_id} 1\n")));
    namespace.map(OwnerMap::Through).map_err(LayerError::of_io("map the owner of the directory"))
}

/// Maps `gid` to `host_id`, and every other one to itself.
fn gid_map(gid: u32, host_id: u32) -> String {
    let (low, high) = (gid.min(host_id), gid.max(host_id));
    let mut lines = format!("{gid} {host_id} 1\n");
    let mut same = |first: u32, end: u32| {
        if first < end {
            lines += &format!("{first} {first} {}\n", end - first);
        }
    };
    same(0, low);
    same(low.saturating_add(1), high);
    same(high.saturating_add(1), IDS_END);
    lines
}

fn open_namespace(uids: &str, gids: &str) -> io::Result<OwnedFd> {
    let holder = NamespaceHolder::start()?;
    let pid = holder.pid();
    fs::write(format!("/proc/{pid}/uid_map"), uids)?;
    fs::write(format!("/proc/{pid}/gid_map"), gids)?;
    Ok(fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_itself_but_the_directorys() {
        for (gid, host_id, lines) in [
            (0, 5, "0 5 1\n1 1 4\n6 6 4294967289\n"),
            (9, 5, "9 5 1\n0 0 5\n6 6 3\n10 10 4294967285\n"),
            (5, 5, "5 5 1\n0 0 5\n6 6 4294967289\n"),
        ] {
            assert_eq!(gid_map(gid, host_id), lines);
        }
    }
}
