//! Tests that need a host with version 1 hierarchies.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use crate::cgroup::control::{CgroupControl, CgroupVersion};
use crate::cgroup::limit_files::{V1_SOCKETS_FILE, V1_SWAP_FILE};
use crate::cgroup::sweep;
use crate::cgroup::tests::host::{MIB, close, open_v1_only, soon, spawn_in, wait_for_output};
use cofferdam_core::Limits;

#[test]
fn swap_and_sockets_are_bounded_where_version_1_can() {
    let tree = open_v1_only("swap");
    let limits = Limits { memory_bytes_max: 32 * MIB, ..Limits::default() };
    let made = tree.create("b", &limits).unwrap();
    for (file, bytes) in [(V1_SWAP_FILE, 32 * MIB), (V1_SOCKETS_FILE, 4 * MIB)] {
        let memory = tree.directories().into_iter().find(|d| d.join(file).exists());
        let text = fs::read_to_string(memory.unwrap().join("b").join(file)).unwrap();
        assert_eq!(text.trim(), bytes.to_string(), "{file}");
    }
    close(tree, made);
}

#[test]
fn a_frozen_sandbox_is_swept_too() {
    let tree = open_v1_only("frozen");
    let directories = tree.directories();
    let made = tree.create("b", &Limits::default()).unwrap();
    let mut child = spawn_in(&made, "echo in; exec sleep 600");
    wait_for_output(&mut child);
    let freezer = directories.first().unwrap().join("b/freezer.state");
    fs::write(freezer, "FROZEN").unwrap();
    std::mem::forget((made, tree));
    for directory in &directories {
        sweep(directory, soon()).unwrap();
        assert!(!directory.exists());
    }
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn version_1_alone_provides_every_control() {
    let tree = open_v1_only("v1only");
    let mut support = tree.support().clone();
    for control in CgroupControl::ALL {
        assert_eq!(support.of_mut(control).by, Some(CgroupVersion::V1), "{control:?}");
    }
    let made = tree.create("b", &Limits::default()).unwrap();
    assert!(made.clone_into().is_none());
    assert_eq!((made.task_files().len(), made.program_task_files().len()), (3, 2));
    close(tree, made);
}
