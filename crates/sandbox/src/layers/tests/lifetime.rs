//! Deep chains, and the resources that are freed when they are dropped.

use std::fs;

use cofferdam_tree::StopCheck;

use super::support::*;
use crate::layers::chain::FrozenChain;
use crate::layers::host::LayerHost;
use crate::layers::space::Storage;
use crate::layers::workspace_fs::WorkspaceFs;

#[test]
fn a_chain_of_70_shows_every_layer_and_is_kept_below_the_maximum() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    let first = {
        write(&fs, "workspace/first", b"first").unwrap();
        fs.freeze(StopCheck::never()).unwrap()
    };
    let mut kept = vec![first];
    for number in 0..70_u32 {
        write(&fs, &format!("workspace/{number}"), b"x").unwrap();
        write(&fs, "workspace/last", number.to_string().as_bytes()).unwrap();
        // Each layer also removes what the one before has added.
        let root = path_of(&fs).join("workspace");
        fs::create_dir(root.join(format!("directory{number}"))).unwrap();
        fs::write(root.join(format!("directory{number}/file")), "").unwrap();
        if let Some(before) = number.checked_sub(1) {
            fs::remove_file(root.join(format!("directory{before}/file"))).unwrap();
        }
        let before = listing(&fs, fs.host_id().id());
        kept.push(fs.freeze(StopCheck::never()).unwrap());
        assert_eq!(listing(&fs, fs.host_id().id()), before, "layer {number}");
    }
    assert!(kept.iter().all(|chain| chain.depth() <= 65), "{}", kept[70].depth());
    let fork = layers().fork(&kept[70], LIMIT, Storage::Memory, &host_id()).unwrap();
    for fs in [&fs, &fork] {
        assert_eq!(read(fs, "workspace/first").unwrap(), "first");
        assert_eq!(read(fs, "workspace/last").unwrap(), "69");
        assert!((0..70).all(|number| read(fs, &format!("workspace/{number}")).unwrap() == "x"));
    }
    let early = layers().fork(&kept[5], LIMIT, Storage::Memory, &host_id()).unwrap();
    assert_eq!(read(&early, "workspace/last").unwrap(), "4");
}

#[test]
fn a_frozen_layer_is_unmounted_with_its_last_user_and_not_before() {
    if !is_root() {
        return;
    }
    // A separate host, so that no other test mounts in its namespace.
    let host = LayerHost::open(&host_id()).unwrap();
    let mounts = || mounts_of(&host);
    assert_eq!(mounts(), 1, "the root of the stage alone: the probe has left nothing");
    let mut fs = host.create(LIMIT, Storage::Memory, &host_id()).unwrap();
    assert_eq!(mounts(), 3, "a layer and its view");
    let chain = fs.freeze(StopCheck::never()).unwrap();
    let fork = host.fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    let handed_out = fork.mounts().unwrap();
    assert_eq!(mounts(), 6, "the frozen layer, two tops and two views");
    drop((fs, chain));
    assert_eq!(mounts(), 4, "the fork needs the frozen layer");
    drop(fork);
    assert_eq!(mounts(), 1);
    // What a sandbox still has does not depend on the stage.
    assert!(status(&handed_out.tmp, "home").is_ok());
}

/// The mounts on the stage of `host`, after what its thread still had to do.
fn mounts_of(host: &LayerHost) -> usize {
    let thread = host.thread_of_mounts();
    fs::read_to_string(format!("/proc/self/task/{thread}/mountinfo")).unwrap().lines().count()
}

/// Adds a layer with the file `workspace/<number>`.
fn add_layer(fs: &mut WorkspaceFs, number: usize) -> FrozenChain {
    write(fs, &format!("workspace/{number}"), b"x").unwrap();
    fs.freeze(StopCheck::never()).unwrap()
}

#[test]
fn forks_of_a_deep_chain_share_one_tree_of_mounts_that_goes_with_its_layers() {
    if !is_root() {
        return;
    }
    let host = LayerHost::open(&host_id()).unwrap();
    let mut fs = host.create(LIMIT, Storage::Memory, &host_id()).unwrap();
    let mut kept: Vec<FrozenChain> = (0..8).map(|number| add_layer(&mut fs, number)).collect();
    // A kernel that cannot map ids has no such tree: it mounts the layers themselves.
    let tree = |layers: usize| if host.features().id_maps.is_ok() { 1 + layers } else { 0 };
    let deep = 1 + 8 + 2 + tree(8);
    assert_eq!(mounts_of(&host), deep, "the stage, the layers, top and view, and the tree");
    let fork = |chain: &FrozenChain| host.fork(chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    let mut forks = [&kept[7], &kept[7], &kept[5]].map(fork);
    assert_eq!(mounts_of(&host), deep + 3 * 2, "top and view of each fork");
    for (fork, count) in forks.iter().zip([8, 8, 6]) {
        let names = fs::read_dir(path_of(fork).join("workspace")).unwrap().count();
        assert_eq!(names, count);
        let owner = status(fork, "workspace/0").unwrap().st_uid;
        assert_eq!(owner, fork.host_id().id(), "each has its own ids");
    }
    // Another branch cannot go on in the same tree.
    add_layer(&mut forks[2], 100);
    assert!(read(&forks[2], "workspace/100").is_ok() && read(&forks[2], "workspace/6").is_err());
    assert_eq!(mounts_of(&host), deep + 3 * 2 + 1 + tree(7));
    drop(forks);
    assert_eq!(mounts_of(&host), deep + tree(6), "the branch's tree lost its last layer");
    kept.truncate(5);
    fs.merge(StopCheck::never()).unwrap();
    // The branch's tree serves: it ends with the layer that is the top now.
    assert_eq!(mounts_of(&host), 1 + 5 + 2 + tree(6));
    assert_eq!(fs::read_dir(path_of(&fs).join("workspace")).unwrap().count(), 8);
    drop((fs, kept));
    assert_eq!(mounts_of(&host), 1, "nothing holds a layer that no one needs");
}

#[test]
fn what_is_deleted_is_freed_by_a_merge_once_no_snapshot_needs_it() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    write(&fs, "workspace/large", &vec![1; usize::try_from(8 * MIB).unwrap()]).unwrap();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    remove(&fs, "workspace/large").unwrap();
    fs.merge(StopCheck::never()).unwrap();
    assert_eq!(fs.usage().unwrap().used_bytes, 8 * MIB, "the snapshot needs it");
    drop(chain);
    fs.merge(StopCheck::never()).unwrap();
    wait_until_used(&fs, 0);
    assert_eq!(fs.usage().unwrap().used_inodes, 3);
    // The limits are those of the whole workspace again.
    write(&fs, "workspace/most", &vec![1; usize::try_from(LIMIT.bytes).unwrap()]).unwrap();
    assert!(write(&fs, "workspace/more", b"x").is_err());
}

#[test]
fn no_mount_of_a_workspace_is_visible_to_this_process() {
    if !is_root() {
        return;
    }
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let mut fs = workspace();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    let _fork = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    let _mounts = fs.mounts().unwrap();
    assert_eq!(mounts(), before);
}
