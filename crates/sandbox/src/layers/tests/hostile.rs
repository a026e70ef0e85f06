//! Trees that a program prepares against those who copy, merge and digest them.

use std::os::fd::{AsFd, OwnedFd};

use cofferdam_tree::StopCheck;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

use super::support::*;
use crate::layers::space::{DiskSpace, Storage};

const DEEP: usize = 3_000;

fn enter(parent: &OwnedFd) -> Option<OwnedFd> {
    openat(parent, c"d", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).ok()
}

/// Makes nested directories deeper than any path or table of descriptors.
fn dig(fs: impl AsFd) {
    let mut here = open(fs, "workspace").unwrap();
    for _ in 0..DEEP {
        mkdirat(&here, c"d", Mode::S_IRWXU).unwrap();
        here = enter(&here).unwrap();
    }
}

fn depth(fs: impl AsFd) -> usize {
    let mut here = open(fs, "workspace").unwrap();
    let mut depth = 0;
    while let Some(next) = enter(&here) {
        (here, depth) = (next, depth + 1);
    }
    depth
}

#[test]
fn a_tree_deeper_than_any_path_is_copied_digested_and_merged() {
    if !is_root() {
        return;
    }
    let limit = DiskSpace { inodes: 20_000, ..LIMIT };
    let mut fs = layers().create(limit, Storage::Memory, &host_id()).unwrap();
    fs.freeze(StopCheck::never()).unwrap();
    dig(&fs);
    let copied = fs.copy_top(StopCheck::never()).unwrap();
    let copy = layers().fork(&copied, limit, Storage::Memory, &host_id()).unwrap();
    assert_eq!(depth(&copy), DEEP);
    let before = layers().digest(&copied, StopCheck::never()).unwrap();
    fs.merge(StopCheck::never()).unwrap();
    assert_eq!(depth(&fs), DEEP);
    let merged = fs.freeze(StopCheck::never()).unwrap();
    assert_eq!(layers().digest(&merged, StopCheck::never()).unwrap(), before);
}

#[test]
fn a_digest_tells_names_modes_contents_and_links_apart_and_not_layers() {
    if !is_root() {
        return;
    }
    let digest = |change: &dyn Fn(&std::path::Path)| {
        let mut fs = workspace();
        let root = path_of(&fs).join("workspace");
        std::fs::write(root.join("file"), "content").unwrap();
        change(&root);
        let chain = fs.freeze(StopCheck::never()).unwrap();
        layers().digest(&chain, StopCheck::never()).unwrap().sha256
    };
    let link = |text: &'static str| {
        move |root: &std::path::Path| std::os::unix::fs::symlink(text, root.join("link")).unwrap()
    };
    let digests = [
        digest(&|_| ()),
        digest(&|root| std::fs::rename(root.join("file"), root.join("other")).unwrap()),
        digest(&|root| std::fs::write(root.join("file"), "another").unwrap()),
        digest(&|root| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(root.join("file"), mode).unwrap();
        }),
        digest(&|root| std::fs::create_dir(root.join("empty")).unwrap()),
        digest(&link("a")),
        digest(&link("b")),
    ];
    let distinct: std::collections::BTreeSet<_> = digests.iter().collect();
    assert_eq!(distinct.len(), digests.len());

    let mut fs = workspace();
    fs.freeze(StopCheck::never()).unwrap();
    std::fs::write(path_of(&fs).join("workspace/file"), "content").unwrap();
    let chain = fs.freeze(StopCheck::never()).unwrap();
    assert_eq!(chain.depth(), 2);
    assert_eq!(layers().digest(&chain, StopCheck::never()).unwrap().sha256, digests[0]);
}

#[test]
fn a_stopped_copy_ends_with_an_error_and_leaves_no_layer() {
    if !is_root() {
        return;
    }
    let mut fs = workspace();
    write(&fs, "workspace/file", &vec![1; 1 << 20]).unwrap();
    let stopped = fs.copy_top(StopCheck(&|| true)).map(drop);
    assert_eq!(stopped, Err(crate::layers::error::LayerError::Stopped));
    assert_eq!(fs.freeze(StopCheck::never()).unwrap().depth(), 1);
}

#[test]
fn hard_links_and_holes_stay_in_a_copy() {
    if !is_root() {
        return;
    }
    let fs = workspace();
    let root = path_of(&fs).join("workspace");
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 8 << 30).unwrap();
    std::fs::hard_link(root.join("sparse"), root.join("second")).unwrap();
    drop(sparse);
    let copied = fs.copy_top(StopCheck::never()).unwrap();
    assert!(copied.used().bytes < MIB, "{:?}", copied.used());
    let fork = layers().fork(&copied, LIMIT, Storage::Memory, &host_id()).unwrap();
    let [one, two] =
        ["sparse", "second"].map(|name| status(&fork, &format!("workspace/{name}")).unwrap());
    assert_eq!((one.st_size, one.st_nlink), ((8 << 30) + 3, 2));
    assert_eq!(one.st_ino, two.st_ino);
}
