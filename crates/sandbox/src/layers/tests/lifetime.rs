//! Deep chains, and the resources that are freed when they are dropped.

use std::fs;

use cofferdam_tree::StopCheck;

use super::support::*;
use crate::layers::host::LayerHost;
use crate::layers::space::Storage;

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
    let mounts = || {
        // Reads after what the thread still had to do.
        let thread = host.thread_of_mounts();
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/mountinfo")).unwrap();
        text.lines().count()
    };
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
