//! The limits of bytes and inodes.

use nix::errno::Errno;

use cofferdam_tree::StopCheck;

use super::support::*;
use crate::layers::error::LayerError;
use crate::layers::space::{DiskSpace, LEAST_ROOM, Storage};

#[test]
fn bytes_beyond_the_limit_are_refused_and_those_within_are_not() {
    if !is_root() {
        return;
    }
    let fs = workspace();
    write(&fs, "workspace/most", &vec![1; usize::try_from(LIMIT.bytes).unwrap()]).unwrap();
    assert_eq!(fs.usage().unwrap().used_bytes, LIMIT.bytes);
    assert_eq!(write(&fs, "workspace/more", b"x"), Err(Errno::ENOSPC));
    remove(&fs, "workspace/most").unwrap();
    wait_until_used(&fs, 0);
    write(&fs, "workspace/more", b"x").unwrap();
}

#[test]
fn bytes_of_frozen_layers_count_in_a_fork() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    write(&fs, "workspace/most", &vec![1; usize::try_from(LIMIT.bytes - MIB).unwrap()]).unwrap();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    let fork = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    for fs in [&fs, &fork] {
        assert_eq!(fs.usage().unwrap().used_bytes, LIMIT.bytes - MIB);
        write(fs, "tmp/rest", &vec![1; usize::try_from(MIB).unwrap()]).unwrap();
        assert_eq!(fs.usage().unwrap().used_bytes, LIMIT.bytes);
        assert_eq!(write(fs, "workspace/more", b"x"), Err(Errno::ENOSPC));
    }
}

#[test]
fn inodes_beyond_the_limit_are_refused_in_every_layer() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    let own = fs.usage().unwrap().used_inodes;
    assert_eq!(own, 3, "workspace, tmp and tmp/home");
    for number in own..LIMIT.inodes - 100 {
        write(&fs, &format!("workspace/{number}"), b"").unwrap();
    }
    let chain = fs.freeze(StopCheck::never()).unwrap();
    let fork = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    for fs in [&fs, &fork] {
        assert_eq!(fs.usage().unwrap().used_inodes, LIMIT.inodes - 100);
        // The directory is copied up for its first new entry, and attributes of the overlay take room.
        let new = |number: &u64| write(fs, &format!("workspace/new{number}"), b"").is_ok();
        let made = (0..).take_while(new).count();
        assert!((97..100).contains(&made), "{made}");
        assert_eq!(fs.usage().unwrap().used_inodes, LIMIT.inodes);
        assert_eq!(write(fs, "workspace/one-more", b""), Err(Errno::ENOSPC));
    }
}

#[test]
fn without_room_for_the_least_there_is_no_workspace_and_no_fork() {
    if !is_root() {
        return;
    }
    let host_id = host_id();
    for limit in [
        DiskSpace::default(),
        DiskSpace { bytes: LEAST_ROOM.bytes - 1, ..LIMIT },
        DiskSpace { inodes: LEAST_ROOM.inodes - 1, ..LIMIT },
    ] {
        let made = layers().create(limit, Storage::Memory, &host_id).map(drop);
        assert_eq!(made, Err(LayerError::DiskFull { left: limit }));
    }
    layers().create(LEAST_ROOM, Storage::Memory, &host_id).unwrap();

    let mut fs = workspace();
    write(&fs, "workspace/file", &vec![1; usize::try_from(MIB).unwrap()]).unwrap();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    let least = LEAST_ROOM.plus(chain.used());
    let fork = |limit| layers().fork(&chain, limit, Storage::Memory, &host_id).map(drop);
    fork(least).unwrap();
    let short = DiskSpace { bytes: least.bytes - 1, ..least };
    assert_eq!(fork(short), Err(LayerError::DiskFull { left: short.minus(chain.used()) }));
}
