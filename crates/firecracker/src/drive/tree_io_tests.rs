//! Tests of transferred trees and of hostile streams.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::stat::Mode;
use nix::unistd::{getegid, geteuid, mkfifo};
use tempfile::{TempDir, tempdir};

use super::archive::{ArchiveReader, ArchiveRecord, ArchiveWriter, Modified};
use super::tree_io::{DEPTH_MAX, TreeIoError, TreeOrigin, UnpackLimits, pack, unpack};
use cofferdam_tree::Owner;

const BOUNDS: UnpackLimits =
    UnpackLimits { entries_max: 1_000, bytes_max: 1 << 20, file_bytes_max: 1 << 33 };

fn ours() -> TreeOrigin {
    TreeOrigin::Ours(Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() })
}

fn packed(path: &Path, tree: TreeOrigin) -> Result<Vec<u8>, TreeIoError> {
    let mut writer = ArchiveWriter::begin(Vec::new()).unwrap();
    pack(File::open(path).unwrap().as_fd(), tree, &mut writer)?;
    Ok(writer.into_inner())
}

fn unpacked(
    bytes: &[u8],
    tree: TreeOrigin,
    bounds: UnpackLimits,
) -> (TempDir, Result<(), TreeIoError>) {
    let place = tempdir().unwrap();
    let root = File::open(place.path()).unwrap();
    let mut reader = ArchiveReader::begin(bytes).unwrap();
    let done = unpack(&mut reader, root.as_fd(), tree, bounds);
    (place, done)
}

/// A workspace with all kinds of files.
fn workspace() -> TempDir {
    let place = tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("src/deep")).unwrap();
    fs::write(path("src/deep/main.py"), "print(1)\n").unwrap();
    fs::write(path("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(path("run"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::write(path("no text \u{1F600}"), [0xFF; 700_000]).unwrap();
    fs::create_dir(path("empty")).unwrap();
    let sparse = File::create(path("sparse")).unwrap();
    sparse.set_len(5 << 30).unwrap();
    sparse.write_all_at(b"far", 4 << 30).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    for name in ["src/deep/main.py", "src/deep"] {
        File::open(path(name)).unwrap().set_modified(time).unwrap();
    }
    place
}

fn mode(path: PathBuf) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_workspace_is_transferred_whole() {
    let from = workspace();
    symlink("src/deep/main.py", from.path().join("link")).unwrap();
    let bytes = packed(from.path(), ours()).unwrap();
    assert!(bytes.len() < 800_000, "{} bytes: a hole was written out", bytes.len());
    let (to, done) = unpacked(&bytes, ours(), BOUNDS);
    done.unwrap();
    let path = |name: &str| to.path().join(name);
    assert_eq!(fs::read_to_string(path("link")).unwrap(), "print(1)\n");
    assert_eq!(fs::read(path("no text \u{1F600}")).unwrap(), [0xFF; 700_000]);
    assert_eq!(fs::metadata(path("sparse")).unwrap().len(), 5 << 30);
    let mut far = [0; 4];
    File::open(path("sparse")).unwrap().read_at(&mut far, (4 << 30) - 1).unwrap();
    assert_eq!(&far, b"\0far");
    // Without setuid.
    assert_eq!((mode(path("run")), mode(path("empty"))), (0o755, mode(from.path().join("empty"))));
    let time = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    for name in ["src/deep", "src/deep/main.py"] {
        assert_eq!(time(path(name)), time(from.path().join(name)), "{name}");
    }
    assert_eq!(packed(to.path(), ours()).unwrap(), packed(to.path(), ours()).unwrap());
}

#[test]
fn a_guests_tree_is_transferred_as_files_and_names() {
    let from = workspace();
    let path = |name: &str| from.path().join(name);
    symlink("/etc/passwd", path("link")).unwrap();
    symlink("/etc", path("src/up")).unwrap();
    mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    let (to, done) =
        unpacked(&packed(from.path(), TreeOrigin::Theirs).unwrap(), TreeOrigin::Theirs, BOUNDS);
    done.unwrap();
    for name in ["link", "src/up", "fifo", "socket"] {
        let target = fs::read_link(to.path().join(name)).unwrap();
        assert_eq!(target, Path::new("not-a-regular-file"), "{name}");
    }
    assert_eq!(fs::read(to.path().join("run")).unwrap(), b"#!/bin/sh\n");
    assert_eq!(mode(to.path().join("run")), 0o600);
    assert_eq!(mode(to.path().join("src")), 0o700);
}

#[test]
fn a_deep_tree_is_transferred_up_to_the_depth_limit() {
    let from = tempdir().unwrap();
    let mut path = from.path().to_owned();
    for _ in 0..DEPTH_MAX + 3 {
        path.push("d");
        fs::create_dir(&path).unwrap();
    }
    let (to, done) =
        unpacked(&packed(from.path(), TreeOrigin::Theirs).unwrap(), TreeOrigin::Theirs, BOUNDS);
    done.unwrap();
    let deepest = to.path().join(["d"; DEPTH_MAX].join("/"));
    assert!(fs::symlink_metadata(deepest).unwrap().is_symlink());
    let fault = packed(from.path(), ours()).unwrap_err();
    assert_eq!(fault.to_string(), "more directories within each other than 256");
}

fn stream(records: &[ArchiveRecord]) -> Vec<u8> {
    let mut writer = ArchiveWriter::begin(Vec::new()).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.into_inner()
}

fn file(name: &str, bytes: u64) -> ArchiveRecord {
    ArchiveRecord::File { name: name.into(), mode: 0o777, modified: Modified::default(), bytes }
}

fn directory(name: &str) -> ArchiveRecord {
    ArchiveRecord::Enter { name: name.into(), mode: 0o777, modified: Modified::default() }
}

#[test]
fn a_hostile_stream_is_refused_at_the_first_invalid_record() {
    let small = UnpackLimits { entries_max: 3, bytes_max: 10, file_bytes_max: 100 };
    let data = |offset, contents: &str| ArchiveRecord::Data { offset, contents: contents.into() };
    let link = ArchiveRecord::Link { name: b"l".to_vec(), target: b"/etc".to_vec() };
    let other = || ArchiveRecord::Other { name: b"o".to_vec() };
    let deep: Vec<ArchiveRecord> = (0..=DEPTH_MAX).map(|_| directory("d")).collect();
    for (want, records, bounds) in [
        ("more entries than 3", vec![file("a", 0), other(), directory("b"), file("c", 0)], small),
        ("more bytes in one file than 100", vec![file("a", 101)], small),
        ("more bytes than 10", vec![file("a", 99), data(0, "123456"), data(50, "12345")], small),
        ("an entry that is neither a regular file nor a directory", vec![link], small),
        ("create: EEXIST", vec![file("a", 0), file("a", 0)], small),
        ("mkdir: EEXIST", vec![other(), directory("o")], small),
        ("create: EEXIST", vec![other(), file("o", 0)], small),
        ("symlink: EEXIST", vec![directory("o"), ArchiveRecord::Leave, other()], small),
        ("more directories within each other than 256", deep, BOUNDS),
        ("cut off", vec![file("a", 3)], small),
    ] {
        let (_place, done) = unpacked(&stream(&records), TreeOrigin::Theirs, bounds);
        assert_eq!(done.unwrap_err().to_string(), want);
    }
    let (_place, done) = unpacked(&stream(&[other(), ArchiveRecord::End]), ours(), BOUNDS);
    assert!(matches!(done, Err(TreeIoError::Kind)), "the host sends no placeholders");
}
