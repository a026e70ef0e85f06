//! Drops the page cache of dead sandboxes.
//!
//! A page that a tenant reads first is charged to its group as long as it is cached, and the kernel
//! keeps a removed memory group (about 45 KiB) as long as its last page. A tenant that drops pages
//! and reads them again leaves one such group per run. Cached pages are still worth keeping: the
//! next run needs them. So the cache of a group is dropped only if the kernel keeps many removed
//! groups already.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::errno::Errno;

use super::control::CgroupVersion;
use super::directory::CgroupDirectory;
use super::layout::read_text;
use super::usage::{keyed, value_of};

/// With this number of removed groups, the cache of the next ones is dropped.
const DYING_GROUPS_MAX: u64 = 128;
/// Removed groups are counted once per this number of removals, to avoid a read per run.
const REMOVALS_A_COUNT: usize = 16;

/// The number of version 1 memory groups when the first tree was opened.
static GROUPS_AT_OPEN: LazyLock<u64> = LazyLock::new(|| v1_groups().unwrap_or(u64::MAX));
static REMOVALS: AtomicUsize = AtomicUsize::new(0);
static CROWDED: AtomicBool = AtomicBool::new(false);

/// Counts the groups that exist before any sandbox.
pub(super) fn note_groups() {
    LazyLock::force(&GROUPS_AT_OPEN);
}

/// Drops the page cache charged to `group`, which is about to be removed from `top`, if the kernel
/// keeps too many removed groups.
pub(super) fn drop_cached(top: &CgroupDirectory, group: &CgroupDirectory) {
    let removals = REMOVALS.fetch_add(1, Ordering::Relaxed) + 1;
    if removals.is_multiple_of(REMOVALS_A_COUNT) {
        CROWDED.store(dying_groups(top) >= DYING_GROUPS_MAX, Ordering::Relaxed);
    }
    if CROWDED.load(Ordering::Relaxed) {
        drop_all_cached(group);
    }
}

/// The number of removed groups that the kernel keeps. Version 1 does not report it: there it is
/// the number of groups more than at the start, live ones included.
fn dying_groups(top: &CgroupDirectory) -> u64 {
    match top.version() {
        CgroupVersion::V1 => v1_groups().unwrap_or(0).saturating_sub(*GROUPS_AT_OPEN),
        CgroupVersion::V2 => keyed(top, "cgroup.stat", "nr_dying_descendants").unwrap_or(0),
    }
}

/// The third column in the row of the memory controller.
fn v1_groups() -> Option<u64> {
    let table = read_text("/proc/cgroups").ok()?;
    let row = table.lines().find_map(|line| line.strip_prefix("memory\t"))?;
    row.split('\t').nth(1)?.parse().ok()
}

fn drop_all_cached(group: &CgroupDirectory) {
    let bytes = file_bytes(group);
    if bytes == 0 {
        return;
    }
    let dropped = match group.version() {
        CgroupVersion::V1 => group.write("memory.force_empty", "0"),
        CgroupVersion::V2 => group.write("memory.reclaim", &bytes.to_string()),
    };
    match dropped {
        // Some pages cannot be dropped, or another process was faster. Version 2 cannot drop pages
        // before Linux 5.19.
        Err(error) if ![Errno::EAGAIN, Errno::EBUSY, Errno::ENOENT].contains(&error.errno) => {
            log::warn!("{error}");
        }
        _ => {}
    }
}

/// Bytes of cached files charged to the group, without files in memory: these went with the
/// sandbox.
fn file_bytes(group: &CgroupDirectory) -> u64 {
    let text = group.read("memory.stat").unwrap_or_default();
    let sizes = ["inactive_file", "active_file"].map(|key| value_of(&text, key).unwrap_or(0));
    sizes.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::directory::CgroupFs;
    use super::*;
    use crate::cgroup::tests::fake_kernel::FakeKernel;

    #[test]
    fn the_page_cache_is_dropped_with_the_file_of_the_version_and_only_if_there_is_any() {
        for (version, means) in [("v1", "memory.force_empty=0"), ("v2", "memory.reclaim=12288")] {
            let kernel = FakeKernel::new("memory");
            kernel.foreign_group(&format!("{version}/g"), "memory");
            let calls: Arc<dyn CgroupFs> = Arc::clone(&kernel) as Arc<dyn CgroupFs>;
            let group =
                CgroupDirectory::open(calls, &kernel.path(&format!("{version}/g"))).unwrap();
            drop_all_cached(&group);
            let stat = format!("{version}/g/memory.stat");
            kernel.put(&stat, "anon 7\ninactive_file 0\nactive_file 0\n");
            drop_all_cached(&group);
            assert_eq!(kernel.calls(), [""; 0]);
            kernel.put(&stat, "anon 7\ninactive_file 4096\nactive_file 8192\n");
            drop_all_cached(&group);
            assert_eq!(kernel.calls(), [format!("{version}/g/{means}")]);
        }
    }
}
