//! Tests of what a copy keeps, leaves out and refuses.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use nix::unistd::mkfifo;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::copy::copy_file::BUFFER_BYTES;
use crate::testing::{
    TENANT, chmod, directory, entry, in_own_mounts, mount_tmpfs, without_rights_over_files,
};
use crate::walk::budget::TreeLimit;

/// An empty source and an empty target.
fn pair() -> (TempDir, PathBuf, PathBuf) {
    let place = tempdir().unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    (place, source, target)
}

fn copy_within(
    source: &Path,
    target: &Path,
    limits: &TreeLimits,
) -> Result<Copied, WorkspaceError> {
    copy_tree(directory(source).as_fd(), directory(target).as_fd(), TENANT, limits)
}

#[test]
fn modes_times_and_owner_are_those_the_tenant_needs() {
    let (_place, source, target) = pair();
    fs::create_dir(source.join("folder")).unwrap();
    fs::write(source.join("folder/run"), "x").unwrap();
    let time = TimeSpec::new(1_000_000_000, 123_456_789);
    for (path, mode) in [("folder/run", 0o6_751), ("folder", 0o3_055), (".", 0o050)] {
        chmod(&source.join(path), mode);
        let file = File::open(source.join(path)).unwrap();
        futimens(&file, &time, &time).unwrap();
    }
    copy_within(&source, &target, &TreeLimits::default()).unwrap();
    for (path, mode) in [("folder/run", 0o751), ("folder", 0o755), (".", 0o750)] {
        let entry = entry(&target.join(path));
        assert_eq!(entry.mode & 0o7777, mode, "{path}");
        assert_eq!(entry.modified, (1_000_000_000, 123_456_789), "{path}");
        assert_eq!(entry.owner, TENANT, "{path}");
    }
}

#[test]
fn a_copy_needs_no_capability_over_files_of_others() {
    let (_place, source, target) = pair();
    fs::create_dir(source.join("folder")).unwrap();
    fs::write(source.join("folder/run"), "x").unwrap();
    std::os::unix::fs::symlink("run", source.join("folder/link")).unwrap();
    for (path, mode) in [("folder/run", 0o4_751), ("folder", 0o2_710)] {
        chmod(&source.join(path), mode);
    }
    without_rights_over_files({
        let (source, target) = (source.clone(), target.clone());
        move || copy_within(&source, &target, &TreeLimits::default()).unwrap()
    });
    for (path, mode) in [("folder/run", 0o751), ("folder", 0o710), ("folder/link", 0o777)] {
        let (copy, original) = (entry(&target.join(path)), entry(&source.join(path)));
        assert_eq!((copy.mode & 0o7777, copy.owner), (mode, TENANT), "{path}");
        assert_eq!(copy.modified, original.modified, "{path}");
    }
}

#[test]
fn special_files_and_git_are_skipped() {
    let (_place, source, target) = pair();
    mkfifo(&source.join("fifo"), Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(source.join("socket")).unwrap();
    fs::create_dir_all(source.join("folder/.git/objects")).unwrap();
    fs::write(source.join(".git"), "gitdir: elsewhere").unwrap();
    fs::write(source.join(".gitignore"), "x").unwrap();
    let copied = copy_within(&source, &target, &TreeLimits::default()).unwrap();
    assert_eq!(copied, Copied { files: 1, bytes: 1, skipped: 2 });
    assert!(target.join("folder").exists() && target.join(".gitignore").exists());
    assert!(!target.join("folder/.git").exists() && !target.join(".git").exists());
}

#[test]
fn mounts_inside_are_not_part_of_the_tree() {
    let (_place, source, target) = pair();
    in_own_mounts(move || {
        fs::create_dir(source.join("point")).unwrap();
        fs::write(source.join("file"), "").unwrap();
        let none = None::<&str>;
        mount(Some("/dev/null"), &source.join("file"), none, MsFlags::MS_BIND, none).unwrap();
        mount_tmpfs(&source.join("point"));
        fs::write(source.join("point/inside"), "").unwrap();
        let copied = copy_within(&source, &target, &TreeLimits::default()).unwrap();
        assert_eq!(copied, Copied { files: 0, bytes: 0, skipped: 2 });
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    });
}

#[test]
fn a_hole_stays_a_hole_and_costs_nothing() {
    let (_place, source, target) = pair();
    let file = File::create(source.join("sparse")).unwrap();
    file.write_all_at(b"middle", 1 << 30).unwrap();
    file.set_len(1 << 40).unwrap();
    let limits = TreeLimits { bytes_max: 1 << 20, ..TreeLimits::default() };
    let copied = copy_within(&source, &target, &limits).unwrap();
    assert!(copied.bytes >= 6);
    let copy = File::open(target.join("sparse")).unwrap();
    let metadata = copy.metadata().unwrap();
    assert_eq!(metadata.len(), 1 << 40);
    assert!(metadata.blocks() * 512 <= 1 << 20);
    let mut middle = [0; 6];
    copy.read_exact_at(&mut middle, 1 << 30).unwrap();
    assert_eq!(&middle, b"middle");
}

#[test]
fn a_file_larger_than_the_buffer_is_copied_whole() {
    let (_place, source, target) = pair();
    let contents: Vec<u8> = (0..=250_u8).cycle().take(3 * BUFFER_BYTES + 17).collect();
    fs::write(source.join("large"), &contents).unwrap();
    copy_within(&source, &target, &TreeLimits::default()).unwrap();
    assert_eq!(fs::read(target.join("large")).unwrap(), contents);
}

#[test]
fn each_limit_ends_the_copy_and_names_the_path() {
    let (_place, source, target) = pair();
    fs::create_dir(source.join("folder")).unwrap();
    fs::write(source.join("folder/file"), "12345678").unwrap();
    let whole = TreeLimits { entries_max: 2, bytes_max: 8, depth_max: 1 };
    let table = [
        (TreeLimits { entries_max: 1, ..whole }, TreeLimit::Entries { max: 1 }, "folder/file"),
        (TreeLimits { bytes_max: 7, ..whole }, TreeLimit::Bytes { max: 7 }, "folder/file"),
        (TreeLimits { depth_max: 0, ..whole }, TreeLimit::Depth { max: 0 }, "folder"),
    ];
    for (number, (limits, limit, path)) in table.into_iter().enumerate() {
        let target = target.join(number.to_string());
        fs::create_dir(&target).unwrap();
        let expected = WorkspaceError::TooLarge { path: path.into(), source: limit };
        assert_eq!(copy_within(&source, &target, &limits), Err(expected));
    }
    assert_eq!(copy_within(&source, &target, &whole).map(|copied| copied.bytes), Ok(8));
}

#[test]
fn an_existing_entry_of_the_target_is_never_written_through() {
    let (place, source, target) = pair();
    let sentinel = place.path().join("sentinel");
    fs::write(&sentinel, "untouched").unwrap();
    fs::write(source.join("file"), "new").unwrap();
    std::os::unix::fs::symlink(&sentinel, target.join("file")).unwrap();
    let before = entry(&sentinel);
    let expected =
        WorkspaceError::System { operation: "create", path: "file".into(), source: Errno::EEXIST };
    assert_eq!(copy_within(&source, &target, &TreeLimits::default()), Err(expected));
    assert_eq!(entry(&sentinel), before);
}

#[test]
fn a_selected_copy_lacks_what_is_left_out_at_any_depth_without_reading_it() {
    let (_place, source, target) = pair();
    for path in ["kept", "deep/deeper/kept", "deep/out/a/b", "out/c", "z/kept"] {
        fs::create_dir_all(source.join(path).parent().unwrap()).unwrap();
        fs::write(source.join(path), "x").unwrap();
    }
    fs::write(source.join("z/out"), "a file of that name").unwrap();
    // More than the limit allows, if it counted.
    for number in 0..20 {
        fs::write(source.join(format!("out/{number}")), "x").unwrap();
    }
    let limits = TreeLimits { entries_max: 7, ..TreeLimits::default() };
    let (from, to) = (directory(&source), directory(&target));
    let is_left_out = |name: &[u8]| name == b"out";
    let stop = StopCheck::never();
    let copied =
        copy_selected(from.as_fd(), to.as_fd(), TENANT, &limits, &is_left_out, stop).unwrap();
    assert_eq!(copied.files, 3);
    for path in ["kept", "deep/deeper/kept", "z/kept"] {
        assert!(target.join(path).is_file(), "{path}");
    }
    for path in ["out", "deep/out", "z/out"] {
        assert!(!target.join(path).exists(), "{path}");
    }
}
