//! How much memory the service may use.

use std::fs;
use std::path::{Path, PathBuf};

/// Assumed if the kernel tells nothing, bytes.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The smaller of the host's memory and the limit of this process's control group, bytes.
pub fn memory_bytes() -> u64 {
    memory_bytes_in(Path::new("/"))
}

fn memory_bytes_in(root: &Path) -> u64 {
    let host = fs::read_to_string(root.join("proc/meminfo")).ok();
    let host = host.as_deref().and_then(total_of).unwrap_or(UNKNOWN_BYTES);
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits_of(root, line));
    limits.fold(host, u64::min)
}

/// `MemTotal` of `/proc/meminfo`, bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The limits of the group that a line of `/proc/self/cgroup` names, and of its parents.
fn limits_of(root: &Path, line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let mounted = root.join("sys/fs/cgroup");
    let (top, file) = match controllers {
        "" => (mounted, "memory.max"),
        "memory" => (mounted.join("memory"), "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    let start: PathBuf = top.join(group.trim_start_matches('/'));
    let groups = start.ancestors().take_while(|path| path.starts_with(&top));
    // `max` is no number, and no limit.
    groups
        .filter_map(|path| fs::read_to_string(path.join(file)).ok()?.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_on_the_way_to_the_root_counts() {
        let host = "MemTotal:       1000 kB\nMemFree:        10 kB\n";
        for (groups, limits, expected) in [
            ("0::/\n", &[][..], 1_024_000),
            ("0::/a/b\n", &[("a/b/memory.max", "max\n"), ("a/memory.max", "5000\n")], 5000),
            ("0::/a\n", &[("a/memory.max", "9999999\n")], 1_024_000),
            ("5:cpu:/x\n4:memory:/a\n0::/\n", &[("memory/a/memory.limit_in_bytes", "77\n")], 77),
            ("4:memory:/a\n", &[("memory/memory.limit_in_bytes", "78\n")], 78),
        ] {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("proc/self")).unwrap();
            fs::write(root.path().join("proc/meminfo"), host).unwrap();
            fs::write(root.path().join("proc/self/cgroup"), groups).unwrap();
            for (path, limit) in limits {
                let path = root.path().join("sys/fs/cgroup").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, limit).unwrap();
            }
            assert_eq!(memory_bytes_in(root.path()), expected, "{groups}");
        }
    }

    #[test]
    fn this_host_has_memory() {
        assert!(memory_bytes() > 1 << 20);
    }
}
