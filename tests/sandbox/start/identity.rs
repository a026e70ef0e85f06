//! The identity of a program: user 10001, without privileges or a way to gain them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cofferdam_test_support::{self as support, Program, lines_of, stdout_of};

fn status_field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let prefix = format!("{name}:");
    let line = status.lines().find_map(|line| line.strip_prefix(prefix.as_str()));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).split_whitespace().collect()
}

#[test]
fn every_id_is_10001_and_there_are_no_other_groups() {
    let Some(host) = support::host() else { return };
    if !host.maps_users() {
        return;
    }
    let status = stdout_of(&host.run(Program::new(&["cat", "/proc/self/status"])));
    assert_eq!(status_field(&status, "Uid"), ["10001"; 4]);
    assert_eq!(status_field(&status, "Gid"), ["10001"; 4]);
    assert_eq!(status_field(&status, "Groups"), [""; 0]);
}

#[test]
fn every_capability_set_is_empty_and_exec_adds_none() {
    let Some(host) = support::host() else { return };
    let status = stdout_of(&host.run(Program::new(&["cat", "/proc/self/status"])));
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status_field(&status, set), ["0000000000000000"], "{set}");
    }
    assert_eq!(status_field(&status, "NoNewPrivs"), ["1"]);
    assert_eq!(status_field(&status, "Seccomp"), ["2"], "a filter is installed");
}

#[test]
fn a_program_leads_a_session_of_its_own_without_a_terminal() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import os\n\
         print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())\n\
         try: os.open('/dev/tty', os.O_RDWR); print('a terminal')\n\
         except OSError: print('none')\n",
    ));
    assert_eq!(lines_of(&report), ["True True", "none"]);
}

#[test]
fn the_id_maps_have_one_line_each_and_cannot_be_changed() {
    let Some(host) = support::host() else { return };
    if !host.maps_users() {
        return;
    }
    let report = host.run(Program::sh(
        "cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups
         for file in uid_map gid_map setgroups; do
             (echo 0 0 1 >/proc/self/$file) 2>/dev/null && echo written: $file
         done; true",
    ));
    let lines = lines_of(&report);
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in &lines[..2] {
        let parts: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((parts[0], parts[2], parts.len()), ("10001", "1", 3), "{line}");
    }
    assert_eq!(lines[2], "deny");
}

#[test]
fn no_namespace_can_be_created_or_entered() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import ctypes, errno, os\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def refused(result): print(result, errno.errorcode.get(ctypes.get_errno()))\n\
         for flag in 0x10000000, 0x00020000, 0x40000000, 0x20000000, 0x02000000:\n\
         \u{20}   refused(libc.unshare(flag))\n\
         for name in 'net', 'user', 'pid', 'mnt':\n\
         \u{20}   refused(libc.setns(os.open('/proc/self/ns/' + name, os.O_RDONLY), 0))\n",
    ));
    assert_eq!(lines_of(&report), ["-1 EPERM"; 9]);
}

#[test]
fn no_namespace_can_be_created_without_the_filter_either() {
    let Some(host) = support::host_without_filter() else { return };
    if !host.maps_users() {
        return;
    }
    let report = host.run(Program::python(
        "import ctypes, errno, os\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         kinds = 0x10000000, 0x20000000, 0x20000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80\n\
         for kind in kinds:\n\
         \u{20}   print(libc.unshare(kind), errno.errorcode[ctypes.get_errno()])\n",
    ));
    // A user namespace exceeds its limit. The others need a capability in one.
    let mut want = vec!["-1 EPERM"; 8];
    want[0] = "-1 ENOSPC";
    assert_eq!(lines_of(&report), want);
}

/// What a program sees of its init at its very start.
#[test]
fn no_program_runs_before_its_init_has_dropped_its_privileges() {
    let Some(host) = support::host() else { return };
    for _ in 0..50 {
        let status = stdout_of(&host.run(Program::new(&["cat", "/proc/1/status"])));
        assert_eq!(status_field(&status, "Seccomp"), ["2"]);
        assert_eq!(status_field(&status, "NoNewPrivs"), ["1"]);
        for set in ["CapInh", "CapPrm", "CapEff"] {
            assert_eq!(status_field(&status, set), ["0000000000000000"], "{set}");
        }
    }
}

/// The worst case is a host file with the set-user-id bit, shown in the sandbox: its owner is the
/// root of the host.
#[test]
fn no_user_namespace_can_be_nested_below_that_of_a_program() {
    let Some(host) = support::host() else { return };
    if !host.maps_users() {
        return;
    }
    let limit = "/proc/sys/user/max_user_namespaces";
    let script = format!("cat {limit}; (echo 1 >{limit}) 2>/dev/null && echo raised; true");
    assert_eq!(stdout_of(&host.run(Program::sh(&script))), "0\n");
}

#[test]
fn a_set_user_id_program_gives_nothing() {
    let Some(host) = support::host() else { return };
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("cat");
    fs::copy("/bin/cat", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    let report =
        host.run(Program::sh("test -u /suid/cat && exec /suid/cat /proc/self/status").bind(
            place.path(),
            "/suid",
            true,
        ));
    let status = stdout_of(&report);
    let uids = status_field(&status, "Uid");
    assert!(uids.iter().all(|uid| *uid == uids[0]) && uids[0] != "0", "{uids:?}");
    let gids = status_field(&status, "Gid");
    assert!(gids.iter().all(|gid| *gid == gids[0]) && gids[0] != "0", "{gids:?}");
    assert_eq!(status_field(&status, "CapEff"), ["0000000000000000"]);
}
