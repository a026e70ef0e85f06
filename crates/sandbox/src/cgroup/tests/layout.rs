//! Layouts of real hosts, from the texts of their kernels.

use std::path::PathBuf;

use crate::cgroup::layout::{CgroupLayout, NOT_MOUNTED, OUT_OF_SIGHT, unescape};

fn v1(layout: &CgroupLayout, controller: &str) -> Result<String, &'static str> {
    layout.v1_place(controller).map(|path| path.display().to_string())
}

fn v2(layout: &CgroupLayout) -> Result<String, &'static str> {
    layout.v2.clone().map(|path| path.display().to_string())
}

const SEPARATE_V1: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

#[test]
fn a_host_with_separate_v1_hierarchies_and_a_unified_one() {
    let own = "9:name=systemd:/\n8:pids:/\n6:freezer:/\n4:memory:/jobs/1a74\n3:cpuset:/\n\
               2:cpuacct:/\n1:cpu:/\n0::/\n";
    let layout = CgroupLayout::parse(SEPARATE_V1, own);
    assert_eq!(v1(&layout, "memory").unwrap(), "/sys/fs/cgroup/memory/jobs/1a74");
    assert_eq!(v1(&layout, "pids").unwrap(), "/sys/fs/cgroup/pids");
    assert_eq!(v1(&layout, "cpu").unwrap(), "/sys/fs/cgroup/cpu");
    assert_eq!(v1(&layout, "cpuacct").unwrap(), "/sys/fs/cgroup/cpuacct");
    assert_eq!(v1(&layout, "blkio"), Err(NOT_MOUNTED));
    assert_eq!(v2(&layout).unwrap(), "/sys/fs/cgroup/unified");
    assert!(!layout.v1.iter().any(|h| h.controllers.iter().any(|c| c.contains("systemd"))));
}

#[test]
fn a_systemd_host_of_version_2() {
    let mountinfo = "\
24 68 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:2 - sysfs sysfs rw
35 24 0:29 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
36 24 0:30 / /sys/fs/pstore rw,nosuid,nodev,noexec,relatime shared:10 - pstore pstore rw
";
    let layout = CgroupLayout::parse(mountinfo, "0::/system.slice/cofferdam.service\n");
    assert_eq!(v2(&layout).unwrap(), "/sys/fs/cgroup/system.slice/cofferdam.service");
    assert!(layout.v1.is_empty());
}

#[test]
fn docker_on_version_1_shows_the_containers_own_group_as_the_mounts_root() {
    let mountinfo = "\
1152 1151 0:97 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
1153 1152 0:28 /docker/5f3c8d /sys/fs/cgroup/systemd ro,nosuid,nodev,noexec,relatime master:11 - cgroup cgroup rw,xattr,name=systemd
1154 1152 0:31 /docker/5f3c8d /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime master:15 - cgroup cgroup rw,cpu,cpuacct
1155 1152 0:33 /docker/5f3c8d /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:17 - cgroup cgroup rw,memory
1156 1152 0:35 /docker/5f3c8d /sys/fs/cgroup/pids ro,nosuid,nodev,noexec,relatime master:19 - cgroup cgroup rw,pids
";
    let own = "12:pids:/docker/5f3c8d\n8:memory:/docker/5f3c8d/worker\n\
               4:cpu,cpuacct:/docker/5f3c8d\n1:name=systemd:/docker/5f3c8d\n0::/system.slice\n";
    let layout = CgroupLayout::parse(mountinfo, own);
    assert_eq!(v1(&layout, "memory").unwrap(), "/sys/fs/cgroup/memory/worker");
    assert_eq!(v1(&layout, "pids").unwrap(), "/sys/fs/cgroup/pids");
    assert_eq!(v1(&layout, "cpu").unwrap(), "/sys/fs/cgroup/cpu,cpuacct");
    assert_eq!(v1(&layout, "cpu"), v1(&layout, "cpuacct"));
    assert_eq!(v2(&layout), Err(NOT_MOUNTED));
}

#[test]
fn docker_on_version_2_with_a_cgroup_namespace() {
    let mountinfo = "\
1711 1710 0:30 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot
";
    assert_eq!(v2(&CgroupLayout::parse(mountinfo, "0::/\n")).unwrap(), "/sys/fs/cgroup");
}

#[test]
fn a_hybrid_systemd_host() {
    let mountinfo = "\
29 25 0:25 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
30 29 0:26 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate
31 29 0:27 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,xattr,name=systemd
35 29 0:31 / /sys/fs/cgroup/net_cls,net_prio rw,nosuid,nodev,noexec,relatime shared:16 - cgroup cgroup rw,net_cls,net_prio
36 29 0:32 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:17 - cgroup cgroup rw,memory
37 29 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:18 - cgroup cgroup rw,cpu,cpuacct
";
    let own = "11:memory:/user.slice/user-0.slice/session-1.scope\n6:cpu,cpuacct:/user.slice\n\
               5:net_cls,net_prio:/\n1:name=systemd:/user.slice/user-0.slice/session-1.scope\n\
               0::/user.slice/user-0.slice/session-1.scope\n";
    let layout = CgroupLayout::parse(mountinfo, own);
    let session = "user.slice/user-0.slice/session-1.scope";
    assert_eq!(v1(&layout, "memory").unwrap(), format!("/sys/fs/cgroup/memory/{session}"));
    assert_eq!(v1(&layout, "cpuacct").unwrap(), "/sys/fs/cgroup/cpu,cpuacct/user.slice");
    assert_eq!(v1(&layout, "pids"), Err(NOT_MOUNTED));
    assert_eq!(v2(&layout).unwrap(), format!("/sys/fs/cgroup/unified/{session}"));
}

#[test]
fn a_group_that_no_mount_shows_is_not_located() {
    let table = [
        // Another container's directory, bind-mounted here.
        ("/docker/other", "/docker/5f3c8d"),
        // The same letters, not the same path.
        ("/docker/5f", "/docker/5f3c8d"),
        // A mount from outside our cgroup namespace.
        ("/..", "/"),
        ("/../..", "/"),
        // This process is outside of its cgroup namespace.
        ("/", "/../sibling"),
    ];
    for (root, own) in table {
        let mountinfo = format!("30 29 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let layout = CgroupLayout::parse(&mountinfo, &format!("0::{own}\n"));
        assert_eq!(v2(&layout), Err(OUT_OF_SIGHT), "{root} {own}");
    }
}

#[test]
fn a_writable_mount_is_taken_before_a_read_only_and_a_later_before_an_earlier() {
    let line = |mountpoint: &str, access: &str| {
        format!("30 29 0:26 / {mountpoint} {access},nosuid - cgroup2 cgroup2 rw\n")
    };
    let table = [
        ([("/a", "rw"), ("/b", "ro")], "/a"),
        ([("/a", "ro"), ("/b", "rw")], "/b"),
        ([("/a", "rw"), ("/b", "rw")], "/b"),
        ([("/a", "ro"), ("/b", "ro")], "/b"),
    ];
    for (mounts, taken) in table {
        let mountinfo: String = mounts.iter().map(|(at, access)| line(at, access)).collect();
        assert_eq!(v2(&CgroupLayout::parse(&mountinfo, "0::/\n")).unwrap(), taken, "{mounts:?}");
    }
}

#[test]
fn escaped_mount_points_and_colons_in_group_names_are_read_as_they_are() {
    let mountinfo = "30 29 0:26 / /my\\040cgroups\\134x rw - cgroup2 cgroup2 rw\n";
    let layout = CgroupLayout::parse(mountinfo, "0::/a:b\n");
    assert_eq!(v2(&layout).unwrap(), "/my cgroups\\x/a:b");
    assert_eq!(unescape("a\\9z\\"), PathBuf::from("a\\9z\\"));
}

#[test]
fn malformed_texts_give_no_layout_and_no_panic() {
    for text in ["", "\n", "0", "0:", ":::", "x - cgroup", "1 2 3 - cgroup2 a b", " - "] {
        let layout = CgroupLayout::parse(text, text);
        assert_eq!(v2(&layout), Err(NOT_MOUNTED), "{text:?}");
        assert_eq!(v1(&layout, "memory"), Err(NOT_MOUNTED), "{text:?}");
    }
}
