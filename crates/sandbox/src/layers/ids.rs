//! The ids of a workspace: those that its files have on disk, and those that its processes have on this
//! host.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::error::LayerError;
use crate::plan::input::INSIDE_ID;
use crate::pool::host_id::{HOST_ID_FIRST, HostId};
use crate::pool::namespace_holder::NamespaceHolder;

/// The first id of the ranges of all workspaces: above those that systemd gives to containers, below
/// 2^31. There is one range for each host id.
const RANGES_FIRST: u32 = 0x7000_0000;
/// The ids of one range.
const RANGE_IDS: u32 = 1 << 16;

/// How ids on disk become ids on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdMapping {
    /// All ids up to 65536: 0 as itself, 10001 as the workspace's host id, the others as the range of
    /// that host id. 65536 is the first of the range, for a root inside a sandbox.
    Range,
    /// Only 0 and 10001: this process's user namespace has no range.
    Two,
    /// The file system cannot map ids: files belong to the host id on disk.
    Same,
}

/// The ids of one workspace.
#[derive(Debug, Clone)]
pub(super) struct WorkspaceIds {
    host_id: HostId,
    /// Maps the layers of a view; none if ids are the same.
    namespace: Option<Arc<OwnedFd>>,
}

impl WorkspaceIds {
    pub(super) fn new(host_id: &HostId, mapping: IdMapping) -> Result<Self, LayerError> {
        let namespace = match map_of(host_id.id(), mapping) {
            None => None,
            Some(map) => Some(Arc::new(open_namespace(&map).map_err(LayerError::of_io("id map"))?)),
        };
        Ok(Self { host_id: host_id.clone(), namespace })
    }

    /// The host id of the workspace's sandboxes, which owns its files in a view.
    pub(super) fn host_id(&self) -> &HostId {
        &self.host_id
    }

    pub(super) fn namespace(&self) -> Option<&Arc<OwnedFd>> {
        self.namespace.as_ref()
    }
}

/// The lines of the map, from ids on disk to ids on this host.
fn map_of(host_id: u32, mapping: IdMapping) -> Option<String> {
    let two = format!("0 0 1\n{INSIDE_ID} {host_id} 1\n");
    match mapping {
        IdMapping::Same => None,
        IdMapping::Two => Some(two),
        IdMapping::Range => {
            let slot = host_id.checked_sub(HOST_ID_FIRST)?;
            let base = slot.checked_mul(RANGE_IDS)?.checked_add(RANGES_FIRST)?;
            let (after, rest) = (INSIDE_ID + 1, RANGE_IDS - INSIDE_ID - 1);
            Some(format!(
                "{two}1 {} {}\n{after} {} {rest}\n{RANGE_IDS} {base} 1\n",
                base + 1,
                INSIDE_ID - 1,
                base + after,
            ))
        }
    }
}

/// Opens a new user namespace with the map `map` of uids and gids.
fn open_namespace(map: &str) -> io::Result<OwnedFd> {
    let holder = NamespaceHolder::start()?;
    let pid = holder.pid();
    for file in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{pid}/{file}"), map)?;
    }
    Ok(fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First id on disk, first id on the host, count.
    fn lines(map: &str) -> Vec<[u32; 3]> {
        let line = |line: &str| {
            let numbers: Vec<u32> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            [numbers[0], numbers[1], numbers[2]]
        };
        map.lines().map(line).collect()
    }

    #[test]
    fn a_range_maps_each_id_once_and_shares_none_with_another_host_id() {
        let mut on_host = Vec::new();
        for host_id in [HOST_ID_FIRST, HOST_ID_FIRST + 1, HOST_ID_FIRST + 4_095] {
            let mut mapped = lines(&map_of(host_id, IdMapping::Range).unwrap());
            assert!(mapped.len() <= 5, "the kernel keeps five lines without a further allocation");
            assert!(mapped.contains(&[0, 0, 1]) && mapped.contains(&[INSIDE_ID, host_id, 1]));
            mapped.sort_unstable();
            let ends: Vec<u32> = mapped.iter().map(|[inside, _, count]| inside + count).collect();
            let starts: Vec<u32> = mapped[1..].iter().map(|[inside, ..]| *inside).collect();
            assert_eq!(ends[..4], starts, "no gap and no overlap");
            assert_eq!(ends[4], RANGE_IDS + 1);
            on_host.extend(mapped[1..].iter().map(|[_, outside, count]| (*outside, *count)));
        }
        on_host.sort_unstable();
        assert!(on_host.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{on_host:?}");
        assert!(on_host.iter().all(|(first, count)| first + count <= 1 << 31));
    }

    #[test]
    fn a_host_id_outside_the_usual_range_has_no_range() {
        assert_eq!(map_of(0, IdMapping::Range), None);
        assert_eq!(lines(&map_of(7, IdMapping::Two).unwrap()), [[0, 0, 1], [INSIDE_ID, 7, 1]]);
    }
}
