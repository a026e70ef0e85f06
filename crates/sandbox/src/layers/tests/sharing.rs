//! What forks share, and what they do not.

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use cofferdam_tree::StopCheck;

use super::support::*;
use crate::layers::chain::FrozenChain;
use crate::layers::error::LayerError;
use crate::layers::space::Storage;
use crate::layers::workspace_fs::WorkspaceFs;

#[test]
fn a_fork_and_its_source_do_not_see_each_others_later_changes() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    write(&fs, "workspace/both", b"before").unwrap();
    write(&fs, "workspace/gone", b"before").unwrap();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    let fork = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    write(&fs, "workspace/both", b"source").unwrap();
    remove(&fork, "workspace/gone").unwrap();
    write(&fork, "workspace/new", b"fork").unwrap();
    assert_eq!(read(&fs, "workspace/both").unwrap(), "source");
    assert_eq!(read(&fork, "workspace/both").unwrap(), "before");
    assert_eq!(read(&fs, "workspace/gone").unwrap(), "before");
    assert_eq!(read(&fork, "workspace/gone"), Err(Errno::ENOENT));
    assert_eq!(read(&fs, "workspace/new"), Err(Errno::ENOENT));
    let second = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    assert_eq!(read(&second, "workspace/both").unwrap(), "before");
    assert_eq!(read(&second, "workspace/gone").unwrap(), "before");
}

#[test]
fn nothing_is_frozen_while_a_file_is_open_for_writing() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    write(&fs, "workspace/file", b"before").unwrap();
    let flags = nix::fcntl::OFlag::O_WRONLY;
    let open = nix::fcntl::openat(&fs, "workspace/file", flags, nix::sys::stat::Mode::empty());
    assert_eq!(fs.freeze(StopCheck::never()).map(drop), Err(LayerError::Busy));
    // The workspace goes on as before.
    write(&fs, "workspace/other", b"still writable").unwrap();
    drop(open);
    fs.freeze(StopCheck::never()).unwrap();
}

#[test]
fn the_files_of_a_workspace_that_is_needed_no_more_are_frozen_without_another_layer() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    let mut chains = Vec::new();
    // More layers than an overlay takes.
    for number in 0..70 {
        write(&fs, &format!("workspace/{number}"), b"content").unwrap();
        let before = listing(&fs, fs.host_id().id());
        let depth = fs.chain().depth();
        let chain = fs.into_frozen(StopCheck::never()).unwrap();
        assert!(chain.depth() == depth + 1 || chain.depth() < depth, "{depth}");
        fs = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
        assert_eq!(listing(&fs, fs.host_id().id()), before);
        assert_eq!(fs.own_used().unwrap().bytes, 0);
        chains.push(chain);
    }
    let depth = fs.chain().depth();
    assert_eq!(fs.into_frozen(StopCheck::never()).unwrap().depth(), depth, "nothing is changed");
}

#[test]
fn a_view_that_is_unmounted_late_does_not_hinder_a_merge() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    for name in ["workspace/one", "workspace/two"] {
        write(&fs, name, b"before").unwrap();
        fs.freeze(StopCheck::never()).unwrap();
    }
    let view = layers().view(&fs.chain()).unwrap();
    drop(open(view.tree(), "workspace/one").unwrap());
    let held = layers().hold_unmounted();
    drop(view);
    remove(&fs, "workspace/one").unwrap();
    remove(&fs, "workspace/two").unwrap();
    // Longer than a file may be in use.
    let released = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(3));
        held.recv()
    });
    fs.merge(StopCheck::never()).unwrap();
    assert_eq!(released.join().unwrap(), Ok(()));
    assert_eq!(fs.chain().depth(), 0, "one layer is left");
}

#[test]
fn a_file_whose_first_name_is_gone_with_its_directory_does_not_hinder_a_freeze() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    drop(fs.freeze(StopCheck::never()).unwrap());
    for sandbox_is_there in [false, true] {
        let clone = sandbox_is_there.then(|| fs.mounts().unwrap());
        make(&fs, "workspace/d").unwrap();
        write(&fs, "workspace/d/first", b"content").unwrap();
        let at = AtFlags::empty();
        linkat(fs.tree(), "workspace/d/first", fs.tree(), "workspace/second", at).unwrap();
        assert_eq!(read(&fs, "workspace/second").unwrap(), "content");
        remove(&fs, "workspace/d/first").unwrap();
        unlinkat(fs.tree(), "workspace/d", UnlinkatFlags::RemoveDir).unwrap();
        fs.freeze(StopCheck::never()).unwrap();
        assert_eq!(read(&fs, "workspace/second").unwrap(), "content");
        remove(&fs, "workspace/second").unwrap();
        drop(clone);
    }
}

#[test]
fn a_descriptor_from_before_cannot_write_to_a_frozen_layer() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    let before = fs.mounts().unwrap();
    fs.freeze(StopCheck::never()).unwrap();
    let made = nix::sys::stat::mkdirat(&before.workspace, "d", nix::sys::stat::Mode::S_IRWXU);
    assert_eq!(made, Err(Errno::EROFS));
}

#[test]
fn an_unchanged_workspace_gets_no_further_layer() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    let depth = fs.freeze(StopCheck::never()).unwrap().depth();
    assert_eq!((depth, fs.freeze(StopCheck::never()).unwrap().depth()), (1, 1));
    write(&fs, "workspace/file", b"").unwrap();
    assert_eq!(fs.freeze(StopCheck::never()).unwrap().depth(), 2);
}

/// A workspace whose directory `workspace/d` has a file in a frozen layer that is kept, and another layer
/// above that one, which is not.
fn with_directory_below() -> (WorkspaceFs, FrozenChain) {
    let mut fs = workspace();
    make(&fs, "workspace/d").unwrap();
    write(&fs, "workspace/d/file", b"below").unwrap();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    write(&fs, "workspace/between", b"").unwrap();
    fs.freeze(StopCheck::never()).unwrap();
    (fs, chain)
}

fn replace_directory(fs: &WorkspaceFs) {
    std::fs::remove_dir_all(path_of(fs).join("workspace/d")).unwrap();
    make(fs, "workspace/d").unwrap();
    write(fs, "workspace/d/new", b"").unwrap();
}

#[test]
fn nothing_shows_through_a_directory_that_was_replaced() {
    if !is_root() {
        return;
    }
    let (mut fs, chain) = with_directory_below();
    replace_directory(&fs);
    let names = |fs: &WorkspaceFs| {
        let entries = std::fs::read_dir(path_of(fs).join("workspace/d")).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(&fs), ["new"]);
    let copied = fs.copy_top(StopCheck::never()).unwrap();
    let copy = layers().fork(&copied, LIMIT, Storage::Memory, &host_id()).unwrap();
    assert_eq!(names(&copy), ["new"], "in a copy");
    drop(copied);
    drop(copy);
    fs.merge(StopCheck::never()).unwrap();
    assert_eq!(fs.freeze(StopCheck::never()).unwrap().depth(), 2, "the one that is kept, and one");
    assert_eq!(names(&fs), ["new"], "after a merge");
    let fork = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    assert_eq!(names(&fork), ["file"], "in the snapshot");
}

#[test]
fn a_merge_that_is_stopped_anywhere_changes_nothing_that_is_seen() {
    if !is_root() {
        return;
    }
    // Each check that the merge makes is the one that stops it once.
    for after in 0.. {
        let (mut fs, _chain) = with_directory_below();
        replace_directory(&fs);
        make(&fs, "workspace/e").unwrap();
        write(&fs, "workspace/e/file", b"").unwrap();
        let before = listing(&fs, fs.host_id().id());
        let left = std::cell::Cell::new(after);
        let stop = || left.replace(left.get() - 1) == 0;
        let merged = fs.merge(StopCheck(&stop));
        assert_eq!(listing(&fs, fs.host_id().id()), before, "stopped at check {after}");
        if merged.is_ok() {
            assert!(after > 5, "only {after} checks");
            break;
        }
        fs.merge(StopCheck::never()).unwrap();
        assert_eq!(listing(&fs, fs.host_id().id()), before, "stopped at {after}, then merged");
    }
}

#[test]
fn a_directory_of_a_frozen_layer_is_renamed_by_a_copy_as_between_file_systems() {
    if !is_root() {
        return;
    }
    let (fs, _chain) = with_directory_below();
    let rename = |from: &str, to: &str| {
        let root = path_of(&fs).join("workspace");
        std::fs::rename(root.join(from), root.join(to)).map_err(|error| error.raw_os_error())
    };
    assert_eq!(rename("d", "elsewhere"), Err(Some(libc::EXDEV)));
    make(&fs, "workspace/own").unwrap();
    assert_eq!(rename("own", "elsewhere"), Ok(()));
    assert_eq!(rename("d/file", "elsewhere/file"), Ok(()));
    assert_eq!(read(&fs, "workspace/elsewhere/file").unwrap(), "below");
}

#[test]
fn a_merge_leaves_no_trace_of_what_was_only_in_the_merged_layers() {
    if !is_root() {
        return;
    }
    let (mut fs, _chain) = with_directory_below();
    make(&fs, "workspace/late").unwrap();
    write(&fs, "workspace/late/file", b"").unwrap();
    fs.freeze(StopCheck::never()).unwrap();
    remove(&fs, "workspace/late/file").unwrap();
    remove(&fs, "workspace/d/file").unwrap();
    fs.merge(StopCheck::never()).unwrap();
    for empty in ["workspace/late", "workspace/d"] {
        // Overlayfs lists a whiteout that is in one layer alone.
        assert_eq!(std::fs::read_dir(path_of(&fs).join(empty)).unwrap().count(), 0, "{empty}");
    }
}
