//! Read-only trees that workspaces share.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;

use cofferdam_core::sync::retained::Retained;
use cofferdam_tree::StopCheck;

use super::support::*;
use crate::layers::error::LayerError;
use crate::layers::mounts::read_only::{MountedTree, ReadOnlyTree};
use crate::layers::space::{DiskSpace, Storage};
use crate::layers::workspace_fs::WorkspaceFs;

/// Room for a tree.
const ROOM: DiskSpace = DiskSpace { bytes: 8 * MIB, inodes: 100 };

/// A tree with the files `big`, of 4 MiB, and `inner/file`.
fn tree_of(fs: &WorkspaceFs) -> Arc<ReadOnlyTree> {
    let draft = fs.begin_tree(ROOM).unwrap();
    let root = path_of(draft.directory());
    fs::create_dir(root.join("inner")).unwrap();
    fs::write(root.join("inner/file"), "shared").unwrap();
    fs::write(root.join("big"), vec![7; 4 << 20]).unwrap();
    Arc::new(draft.finish(Retained::default()).unwrap())
}

fn mount(fs: &mut WorkspaceFs, path: &str, tree: &Arc<ReadOnlyTree>) -> Result<(), LayerError> {
    nix::sys::stat::mkdirat(fs.tree(), path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::set_permissions(path_of(&*fs).join(path), fs::Permissions::from_mode(0o555)).unwrap();
    fs.mark(path.as_ref(), tree)?;
    fs.mount_tree(MountedTree { tree: Arc::clone(tree), path: path.into() })
}

fn shows(fs: &WorkspaceFs, path: &str) -> bool {
    read(fs, &format!("{path}/inner/file")).as_deref() == Ok("shared")
        && status(fs, &format!("{path}/big")).is_ok_and(|stat| stat.st_size == 4 << 20)
}

#[test]
fn workspaces_share_one_copy_that_counts_for_none_and_that_nothing_changes() {
    if !is_root() {
        return;
    }
    let (mut first, mut second) = (workspace(), workspace());
    let small = DiskSpace { bytes: MIB, inodes: 40 };
    let mut third = layers().create(small, Storage::Memory, &host_id()).unwrap();
    let before = first.usage().unwrap();
    let tree = tree_of(&first);
    assert!(tree.used().bytes >= 4 * MIB);
    for (fs, path) in
        [(&mut first, "workspace/a"), (&mut second, "workspace/b"), (&mut third, "tmp/c")]
    {
        mount(fs, path, &tree).unwrap();
        assert!(shows(fs, path), "{path}");
        let own = status(tree.open().unwrap(), "inner/file").unwrap().st_ino;
        assert_eq!(status(&*fs, &format!("{path}/inner/file")).unwrap().st_ino, own, "{path}");
        let file = path_of(&*fs).join(path).join("inner/file");
        // Root through the view of a workspace changes that workspace only.
        fs::write(&file, "mine").unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(read(&*fs, &format!("{path}/inner/file")), Err(Errno::ENOENT));
    }
    let shared = tree.open().unwrap();
    let inner = path_of(&shared);
    assert_eq!(fs::read(inner.join("inner/file")).unwrap(), b"shared");
    assert_eq!(
        fs::write(inner.join("inner/file"), "x").unwrap_err().raw_os_error(),
        Some(Errno::EROFS as i32)
    );
    let after = first.usage().unwrap();
    assert_eq!(after.used_bytes, before.used_bytes);
    assert!(after.used_inodes < before.used_inodes + 8, "{before:?} {after:?}");
    // The limit is that of what the workspace itself holds.
    assert_eq!(write(&third, "workspace/full", &vec![1; 2 << 20]), Err(Errno::ENOSPC));
}

#[test]
fn a_tree_is_shown_under_new_names_and_in_snapshots_forks_copies_and_merged_layers() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    make(&fs, "workspace/skills").unwrap();
    let tree = tree_of(&fs);
    mount(&mut fs, "workspace/skills/pdf", &tree).unwrap();
    let root = path_of(&fs).join("workspace");
    fs::rename(root.join("skills"), root.join("moved")).unwrap();
    fs::rename(root.join("moved/pdf"), root.join("moved/other")).unwrap();
    let place = "workspace/moved/other";
    assert!(shows(&fs, place));
    let copied = fs.copy_top(StopCheck::never()).unwrap();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    for (chain, what) in [(&copied, "copy"), (&chain, "snapshot")] {
        let fork = layers().fork(chain, LIMIT, Storage::Memory, &host_id()).unwrap();
        assert!(shows(&fork, place), "{what}");
        assert_eq!(fork.usage().unwrap().used_bytes, 0, "{what}");
        let view = layers().view(chain).unwrap();
        assert_eq!(read_at(&view, &format!("{place}/inner/file")), "shared", "{what}");
    }
    // It is written to, and so gets another time.
    let seen = |fs: &WorkspaceFs| {
        let mut seen = listing(open(fs, "workspace").unwrap(), fs.host_id().id());
        seen.remove(Path::new("moved"));
        seen
    };
    let before = seen(&fs);
    drop((copied, chain));
    write(&fs, "workspace/moved/more", b"x").unwrap();
    remove(&fs, "workspace/moved/more").unwrap();
    fs.merge(StopCheck::never()).unwrap();
    assert!(shows(&fs, place), "after a merge");
    assert_eq!(seen(&fs), before);
    // More layers than an overlay takes.
    let mut chains = Vec::new();
    for number in 0..70 {
        write(&fs, &format!("workspace/{number}"), b"x").unwrap();
        chains.push(fs.freeze(StopCheck::never()).unwrap());
    }
    assert!(shows(&fs, place), "after layers were put together");
    chains.clear();
    fs.merge(StopCheck::never()).unwrap();
    assert!(shows(&fs, place), "after all were merged");
    fs::rename(path_of(&fs).join(place), path_of(&fs).join("workspace/moved/last")).unwrap();
    assert!(shows(&fs, "workspace/moved/last"), "with a name of its own again");
}

#[test]
fn a_workspace_that_was_frozen_before_goes_on_with_one_layer_above_the_tree() {
    if !is_root() {
        return;
    }
    for storage in [Storage::Memory, Storage::Disk] {
        let directory = tempfile::tempdir().unwrap();
        let layers = layers().clone().with_images(directory.path());
        if storage == Storage::Disk && layers.images().is_err() {
            eprintln!("SKIP: {:?}", layers.images());
            continue;
        }
        let mut fs = layers.create(LIMIT, storage, &host_id()).unwrap();
        write(&fs, "workspace/file", b"x").unwrap();
        drop(fs.freeze(StopCheck::never()).unwrap());
        let tree = tree_of(&fs);
        assert_eq!(tree.storage(), storage);
        mount(&mut fs, "workspace/t", &tree).unwrap();
        let used = fs.usage().unwrap().used_inodes;
        fs.merge(StopCheck::never()).unwrap();
        assert_eq!(fs.chain().depth(), 0);
        assert!(shows(&fs, "workspace/t"));
        write(&fs, "workspace/late", b"x").unwrap();
        assert!(fs.usage().unwrap().used_inodes <= used + 2, "{used} {:?}", fs.usage());
        let chain = fs.freeze(StopCheck::never()).unwrap();
        let fork = layers.fork(&chain, LIMIT, storage, &host_id()).unwrap();
        assert!(shows(&fork, "workspace/t"));
    }
}

#[test]
fn a_stopped_merge_of_a_directory_that_shows_a_tree_changes_nothing_that_is_seen() {
    if !is_root() {
        return;
    }
    for after in 0.. {
        let mut fs = workspace();
        write(&fs, "workspace/first", b"x").unwrap();
        let kept = fs.freeze(StopCheck::never()).unwrap();
        write(&fs, "workspace/second", b"x").unwrap();
        fs.freeze(StopCheck::never()).unwrap();
        let tree = tree_of(&fs);
        mount(&mut fs, "workspace/t", &tree).unwrap();
        // As the service does when it removes a part of a tree and fails.
        fs::remove_file(path_of(&fs).join("workspace/t/big")).unwrap();
        let seen = |fs: &WorkspaceFs| listing(open(fs, "workspace").unwrap(), fs.host_id().id());
        let before = seen(&fs);
        let left = std::cell::Cell::new(after);
        let stop = || left.replace(left.get() - 1) == 0;
        let merged = fs.merge(StopCheck(&stop));
        assert_eq!(seen(&fs), before, "stopped at check {after}");
        if merged.is_ok() {
            assert!(after > 3, "only {after} checks");
            break;
        }
        fs.merge(StopCheck::never()).unwrap();
        assert_eq!(seen(&fs), before, "stopped at {after}, then merged");
        drop(kept);
    }
}

#[test]
fn a_tree_that_no_directory_shows_is_freed() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    let (first, second) = (tree_of(&fs), tree_of(&fs));
    mount(&mut fs, "workspace/t", &first).unwrap();
    assert_eq!(Arc::strong_count(&first), 2);
    fs::remove_dir_all(path_of(&fs).join("workspace/t")).unwrap();
    mount(&mut fs, "workspace/t", &second).unwrap();
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
    // A snapshot still shows it.
    let chain = fs.freeze(StopCheck::never()).unwrap();
    fs::remove_dir_all(path_of(&fs).join("workspace/t")).unwrap();
    mount(&mut fs, "workspace/u", &first).unwrap();
    assert_eq!(fs.chain().trees().len(), 2, "the frozen layer has it");
    drop(fs);
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
    let fork = layers().fork(&chain, LIMIT, Storage::Memory, &host_id()).unwrap();
    assert!(shows(&fork, "workspace/t"));
    drop((fork, chain));
    assert_eq!(Arc::strong_count(&second), 1);
}

#[test]
fn a_tree_is_shown_where_a_directory_of_a_frozen_layer_gets_it() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    make(&fs, "workspace/skills").unwrap();
    drop(fs.freeze(StopCheck::never()).unwrap());
    let tree = tree_of(&fs);
    let skills = path_of(&fs).join("workspace/skills");
    // As the service does: the directory gets its name when it is marked.
    fs::create_dir(skills.join("temp")).unwrap();
    fs.mark("workspace/skills/temp".as_ref(), &tree).unwrap();
    fs::rename(skills.join("temp"), skills.join("t")).unwrap();
    let path = "workspace/skills/t".into();
    fs.mount_tree(MountedTree { tree: Arc::clone(&tree), path }).unwrap();
    assert!(shows(&fs, "workspace/skills/t"));
}

fn read_at(view: &crate::layers::frozen_view::FrozenView, path: &str) -> String {
    fs::read_to_string(path_of(view.tree().as_fd()).join(path)).unwrap()
}
