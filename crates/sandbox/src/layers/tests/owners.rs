//! Whom files belong to, on disk and in a view.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use cofferdam_tree::{ExtendedAttributes, StopCheck};

use super::support::*;
use crate::layers::mounts::attributes::AttributeCalls;
use crate::layers::space::Storage;

/// Writes to `path` in the mount `mount` as the user `id`; returns the owner that this user sees.
fn write_as(mount: &std::os::fd::OwnedFd, path: &str, id: u32) -> Result<u32, Errno> {
    std::thread::scope(|scope| {
        let job = || {
            crate::sys::take_effective_ids(id).unwrap();
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            let file = nix::fcntl::openat(mount, path, flags, Mode::from_bits_truncate(0o600))?;
            nix::unistd::write(&file, b"mine")?;
            Ok(nix::sys::stat::fstat(&file)?.st_uid)
        };
        scope.spawn(job).join().unwrap()
    })
}

#[test]
fn two_host_ids_see_the_same_frozen_files_as_their_own() {
    if !is_root() || layers().features().id_maps.is_err() {
        return;
    }
    let mut fs = workspace();
    write(&fs, "workspace/file", b"frozen").unwrap();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    let fork = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    assert_ne!(fs.host_id().id(), fork.host_id().id());
    for fs in [&fs, &fork] {
        let (id, mounts) = (fs.host_id().id(), fs.mounts().unwrap());
        for path in ["workspace", "tmp", "tmp/home", "workspace/file"] {
            assert_eq!(status(fs, path).unwrap().st_uid, id, "{path}");
        }
        assert_eq!(write_as(&mounts.workspace, "file", id), Ok(id), "a frozen file");
        assert_eq!(write_as(&mounts.workspace, "new", id), Ok(id), "a new file");
        assert_eq!(write_as(&mounts.tmp, "new", id), Ok(id), "a file in /tmp");
        let other = write_as(&mounts.workspace, "file", id + 1);
        assert_eq!(other, Err(Errno::EACCES), "another host id");
    }
}

#[test]
fn on_disk_files_belong_to_the_id_inside_and_trusted_ones_to_root() {
    if !is_root() || layers().features().id_maps.is_err() {
        return;
    }
    let fs = workspace();
    write(&fs, "workspace/own", b"").unwrap();
    nix::sys::stat::mkdirat(fs.tree(), "workspace/trusted", Mode::S_IRWXU).unwrap();
    let entries = fs.open_top_entries().unwrap();
    assert_eq!(status(&entries, "workspace/own").unwrap().st_uid, crate::plan::input::INSIDE_ID);
    assert_eq!(status(&entries, "workspace/trusted").unwrap().st_uid, 0);
}

#[test]
fn a_copy_has_the_attributes_that_an_owner_sets_and_none_of_the_hosts() {
    if !is_root() {
        return;
    }
    let fs = workspace();
    write(&fs, "workspace/file", b"").unwrap();
    let entries = fs.open_top_entries().unwrap();
    let file = open(&entries, "workspace/file").unwrap();
    // Files in memory have attributes of their owners from Linux 6.6 on.
    let has_own = AttributeCalls.set(file.as_fd(), c"user.own", b"value").is_ok();
    for name in [c"trusted.foreign", c"security.foreign"] {
        AttributeCalls.set(file.as_fd(), name, b"value").unwrap();
    }
    let chain = fs.copy_top(StopCheck::never()).unwrap();
    let copy = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    let copied = open(&copy, "workspace/file").unwrap();
    let value = |name| AttributeCalls.value(copied.as_fd(), name).unwrap();
    if has_own {
        assert_eq!(value(c"user.own").as_deref(), Some(&b"value"[..]));
    }
    assert_eq!([value(c"trusted.foreign"), value(c"security.foreign")], [None, None]);
}

#[test]
fn the_directories_of_a_new_workspace_have_their_modes() {
    if !is_root() {
        return;
    }
    let fs = workspace();
    let mode = |path| status(&fs, path).unwrap().st_mode & 0o7777;
    assert_eq!(
        ["", "workspace", "tmp", "tmp/home"].map(|path| match path {
            "" => mode("."),
            path => mode(path),
        }),
        [0o755, 0o755, 0o1777, 0o755]
    );
}
