//! Tests of whole workspaces on real file systems.

mod generated;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use tempfile::tempdir;

use crate::testing::{
    OwnProcess, TENANT, chmod, depth, directory, entry, in_own_mounts, in_own_process, make_deep,
    mount_tmpfs, picture,
};
use crate::{
    Removal, Template, TreeLimits, WorkspaceError, copy_tree, put, put_over_template, remove_tree,
};
use cofferdam_core::values::rel_path::RelPath;

fn copy(source: &Path, target: &Path) -> crate::Copied {
    fs::create_dir(target).unwrap();
    let limits = TreeLimits::default();
    copy_tree(directory(source).as_fd(), directory(target).as_fd(), TENANT, &limits).unwrap()
}

fn remove(parent: &Path, name: &str) -> Removal {
    remove_tree(directory(parent).as_fd(), OsStr::new(name)).unwrap()
}

fn a_deep_tree_comes_and_goes(place: &Path, levels: usize) {
    let (source, target) = (place.join("source"), place.join("target"));
    fs::create_dir(&source).unwrap();
    make_deep(&source, levels);
    let template = Template::scan(&source).unwrap();
    assert_eq!(template.directories, levels as u64);
    assert_eq!(copy(&source, &target).files, 1);
    assert_eq!(depth(&target), (levels, true));
    for name in ["source", "target"] {
        let whole = Removal { removed: levels as u64 + 2, left: 0 };
        assert_eq!(remove(place, name), whole);
    }
    assert_eq!(fs::read_dir(place).unwrap().count(), 0);
}

#[test]
fn a_tree_3000_levels_deep_needs_few_descriptors() {
    in_own_process(
        "tests::a_tree_3000_levels_deep_needs_few_descriptors",
        OwnProcess::Descriptors(64),
        || a_deep_tree_comes_and_goes(tempdir().unwrap().path(), 3_000),
    );
}

#[test]
fn a_tree_20000_levels_deep_needs_few_descriptors_and_no_stack() {
    in_own_process(
        "tests::a_tree_20000_levels_deep_needs_few_descriptors_and_no_stack",
        OwnProcess::Descriptors(64),
        || {
            let place = tempdir().unwrap();
            let root = place.path().to_owned();
            in_own_mounts(move || {
                // Workspaces are on tmpfs; a disk would need seconds for 40,000 directories.
                mount_tmpfs(&root);
                a_deep_tree_comes_and_goes(&root, 20_000);
            });
        },
    );
}

#[test]
fn any_name_the_kernel_accepts_is_copied_and_removed() {
    let place = tempdir().unwrap();
    let source = place.path().join("source");
    fs::create_dir(&source).unwrap();
    let long = [b'x'; 255];
    let names: [&[u8]; 7] = [b"-rf", b"a\nb", b"\xff\xfe", b" ", b"*", b"...", long.as_slice()];
    for name in names {
        let folder = source.join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(OsStr::from_bytes(name)), name).unwrap();
    }
    assert_eq!(copy(&source, &place.path().join("target")).files, 7);
    for name in names {
        let name = OsStr::from_bytes(name);
        let copied = place.path().join("target").join(name).join(name);
        assert_eq!(fs::read(copied).unwrap(), name.as_bytes());
    }
    assert_eq!(remove(place.path(), "target"), Removal { removed: 15, left: 0 });
    assert_eq!(remove(place.path(), "source"), Removal { removed: 15, left: 0 });
}

#[test]
fn links_out_of_the_tree_are_never_followed() {
    let place = tempdir().unwrap();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let sentinel = outside.join("sentinel");
    fs::write(&sentinel, "untouched").unwrap();
    chmod(&sentinel, 0o640);
    let source = place.path().join("source");
    fs::create_dir(&source).unwrap();
    symlink(&sentinel, source.join("file")).unwrap();
    symlink(&outside, source.join("folder")).unwrap();
    symlink("../outside", source.join("relative")).unwrap();
    symlink("/proc/self/root", source.join("magic")).unwrap();
    let before = picture(&outside);

    let target = place.path().join("target");
    assert_eq!(copy(&source, &target).files, 4);
    assert_eq!(fs::read_link(target.join("relative")).unwrap(), Path::new("../outside"));
    assert_eq!(entry(&target.join("file")).owner, TENANT);
    assert_eq!(remove(place.path(), "target"), Removal { removed: 5, left: 0 });
    symlink(&outside, place.path().join("alias")).unwrap();
    assert_eq!(remove(place.path(), "alias"), Removal { removed: 1, left: 0 });
    assert_eq!(picture(&outside), before);
}

#[test]
fn a_put_over_a_template_is_a_put_into_the_mounted_overlay() {
    let place = tempdir().unwrap();
    let root = place.path().to_owned();
    in_own_mounts(move || {
        mount_tmpfs(&root);
        let at = |name: &str| root.join(name);
        for folder in ["template/check", "upper", "work", "merged"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("template/check/old"), "old").unwrap();
        fs::write(at("template/check/kept"), "kept").unwrap();
        chmod(&at("template/check"), 0o750);
        let (upper, template) = (directory(&at("upper")), directory(&at("template")));
        for path in ["check/old", "check/new", "lib/new"] {
            let path = RelPath::parse(path).unwrap();
            put_over_template(upper.as_fd(), template.as_fd(), &path, b"new", TENANT).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            at("template").display(),
            at("upper").display(),
            at("work").display()
        );
        let (overlay, merged) = (Some("overlay"), at("merged"));
        mount(overlay, &merged, overlay, MsFlags::empty(), Some(options.as_str())).unwrap();
        let merged = picture(&merged);
        let contents = |path: &str| merged[Path::new(path)].contents.as_slice();
        assert_eq!(contents("check/kept"), b"kept");
        for path in ["check/old", "check/new", "lib/new"] {
            assert_eq!(contents(path), b"new", "{path}");
        }
        assert_eq!(merged[Path::new("check")].mode, 0o40_750);
        assert_eq!(merged[Path::new("check")].owner, TENANT);
    });
}

#[test]
fn a_put_that_does_not_fit_leaves_no_part() {
    let place = tempdir().unwrap();
    let root = place.path().to_owned();
    in_own_mounts(move || {
        mount_tmpfs(&root);
        let path = RelPath::parse("file").unwrap();
        let refused = put(directory(&root).as_fd(), &path, &[b'x'; 2 << 20], TENANT);
        let full = WorkspaceError::System {
            operation: "write",
            path: "file".into(),
            source: Errno::ENOSPC,
        };
        assert_eq!(refused, Err(full));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    });
}
