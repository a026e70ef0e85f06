//! Tests of archives: those of other programs, hand-made ones, and our own.

mod bounds;
mod refusals;

use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::header::{BLOCK_BYTES, TarHeader};
use super::{ArchiveContents, ArchiveLimits, Spool, pack, unpack};
use crate::files::tests::{TestWorkspace, staged, word};
use crate::files::{DirectorySource, FilesError, StageBatch, StagedAccess, digest};
use crate::testing::{TENANT, chmod, entry, in_own_mounts, mount_tmpfs, picture};
use crate::{StopCheck, TreeLimits};

const VECTORS: &str = include_str!("vectors.txt");

/// The archive `name` of another program, compressed.
fn vector(name: &str) -> Vec<u8> {
    let line = VECTORS.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
    let byte = |at| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    (0..line.len()).step_by(2).map(byte).collect()
}

pub(super) fn spool(bytes: &[u8]) -> Spool {
    Spool::fill(tempfile::tempfile().unwrap(), &mut &*bytes, u64::MAX).unwrap()
}

pub(super) fn unpack_to(
    workspace: &TestWorkspace,
    to: &str,
    archive: &[u8],
) -> Result<ArchiveContents, FilesError> {
    unpack(&workspace.root(), &workspace.at(to), &spool(archive), ArchiveLimits::default())
}

/// An entry of a hand-made archive: its header and contents.
pub(super) fn made(kind: u8, path: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let size = content.len() as u64;
    let (path, link) = (path.into(), link.into());
    let header = TarHeader { kind, path, link, mode: 0o644, size, modified: 1 };
    let mut bytes = [&header.encode()[..], content].concat();
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

pub(super) fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 2 * BLOCK_BYTES]].concat()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn packed(workspace: &TestWorkspace, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (limits, never) = (TreeLimits::default(), StopCheck::never());
    pack(&workspace.root(), &workspace.at(path), &limits, never, &mut bytes).unwrap();
    bytes
}

#[test]
fn archives_of_gnu_tar_are_unpacked_in_every_format() {
    for format in ["gnu", "posix", "ustar", "v7"] {
        let workspace = TestWorkspace::new();
        unpack_to(&workspace, "out", &vector(format)).unwrap();
        for (path, content) in [("a", "one"), ("sub/b", "two"), ("hard", "one"), ("ä", "umlaut")] {
            assert_eq!(workspace.content(&format!("out/dir/{path}")), content, "{format}");
        }
        assert_eq!(workspace.content("out/dir/link"), "two");
        let setid = entry(&workspace.host("out/dir/setid"));
        assert_eq!((setid.mode, setid.owner, setid.modified.0), (0o100_755, TENANT, 1_700_000_000));
        assert_eq!(entry(&workspace.host("out/dir")).mode, 0o40_755);
        let hard = fs::metadata(workspace.host("out/dir/hard")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&hard), 1, "a copy");
        if format == "gnu" || format == "posix" {
            let long = "n".repeat(150);
            assert_eq!(workspace.content(&format!("out/dir/{long}")), "long");
            assert_eq!(workspace.content("out/dir/longlink"), "long");
        }
        if format != "v7" {
            let deep = format!("out/{}/{}/file", "deep".repeat(20), "down".repeat(15));
            assert_eq!(workspace.content(&deep), "ustar");
        }
    }
}

#[test]
fn archives_of_python_are_unpacked() {
    for format in ["python_gnu", "python_pax"] {
        let workspace = TestWorkspace::new();
        unpack_to(&workspace, ".", &vector(format)).unwrap();
        assert_eq!(workspace.content(&format!("dir/{}", "é".repeat(120))), "long", "{format}");
        assert_eq!(workspace.content("dir/link"), "one");
        assert_eq!(workspace.content("dir/hard"), "one");
        assert_eq!(entry(&workspace.host("dir/a")).mode, 0o100_600);
        assert_eq!(entry(&workspace.host("dir/float")).modified, (1_700_000_000, 0));
        let link = fs::read_link(workspace.host(&format!("dir/{}", "l".repeat(120)))).unwrap();
        assert_eq!(link.as_os_str().len(), 200);
    }
}

#[test]
fn a_packed_tree_is_the_same_when_it_is_unpacked_and_packed_again() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/tree/a/file", "content");
    workspace.plant("work/tree/a-b", "sorted");
    workspace.plant(&format!("work/tree/{}/{}", "long".repeat(40), "name".repeat(60)), "long");
    workspace.plant("work/tree/exact-512", &"x".repeat(512));
    chmod(&workspace.host("work/tree/a/file"), 0o4_751);
    workspace.link("work/tree/link", "a/file");
    workspace.link("work/tree/far", format!("a/{}", "x".repeat(150)));
    let first = packed(&workspace, "work/tree");
    assert_eq!(first, packed(&workspace, "work/tree"));
    unpack_to(&workspace, "out/new/deep", &first).unwrap();
    assert_eq!(workspace.content("out/new/deep/a/file"), "content");
    assert_eq!(entry(&workspace.host("out/new/deep/a/file")).mode, 0o100_751);
    // The times of directories are not kept.
    for name in ["a".to_owned(), "long".repeat(40)] {
        let modified =
            fs::metadata(workspace.host(&format!("work/tree/{name}"))).unwrap().modified().unwrap();
        let copy = fs::File::open(workspace.host(&format!("out/new/deep/{name}"))).unwrap();
        copy.set_modified(modified).unwrap();
    }
    let again = packed(&workspace, "out/new/deep");
    assert_eq!(without_link_times(&again), without_link_times(&first));
    assert_eq!(again.len(), first.len());
    // Special files are left out.
    workspace.plant("/tmp/tree/file", "x");
    let before = packed(&workspace, "/tmp/tree");
    nix::unistd::mkfifo(&workspace.host("/tmp/tree/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let has_fifo = |bytes: &[u8]| bytes.windows(4).any(|part| part == b"fifo");
    assert!(!has_fifo(&packed(&workspace, "/tmp/tree")));
    assert_eq!(before.len(), packed(&workspace, "/tmp/tree").len());
}

/// The archive with the times and checksums of links cleared: they are not kept.
fn without_link_times(archive: &[u8]) -> Vec<u8> {
    let mut bytes = archive.to_vec();
    for block in bytes.chunks_mut(BLOCK_BYTES) {
        if block.len() == BLOCK_BYTES && block[156] == b'2' && &block[257..262] == b"ustar" {
            block[136..156].fill(0);
        }
    }
    bytes
}

#[test]
fn a_packed_tree_is_read_by_tar() {
    let workspace = TestWorkspace::new();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    workspace.plant("work/tree/file", "content");
    workspace.plant(&format!("work/tree/{long}"), "long");
    workspace.link("work/tree/link", "x".repeat(140));
    let mut tar = Command::new("tar")
        .args(["-x", "-C"])
        .arg(workspace.outside())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(&packed(&workspace, "work/tree")).unwrap();
    assert!(tar.wait().unwrap().success());
    assert_eq!(fs::read(workspace.outside().join("file")).unwrap(), b"content");
    assert_eq!(fs::read(workspace.outside().join(long)).unwrap(), b"long");
    let link = fs::read_link(workspace.outside().join("link")).unwrap();
    assert_eq!(link.as_os_str().len(), 140);
}

#[test]
fn one_file_is_packed_by_its_name_and_errors_come_before_the_first_byte() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/file", "content");
    unpack_to(&workspace, "out", &packed(&workspace, "work/file")).unwrap();
    assert_eq!(workspace.content("out/file"), "content");
    workspace.link("work/out", "/etc");
    workspace.specials();
    for (path, expected) in
        [("work/none", "not_found"), ("work/out", "through_link"), ("work/fifo", "not_regular")]
    {
        let (limits, mut bytes) = (TreeLimits::default(), Vec::new());
        let never = StopCheck::never();
        let refused = pack(&workspace.root(), &workspace.at(path), &limits, never, &mut bytes);
        assert_eq!((word(refused), bytes.len()), (expected, 0), "{path}");
    }
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (limits, never) = (TreeLimits::default(), StopCheck::never());
    let refused = pack(&workspace.root(), &workspace.at("work/file"), &limits, never, &mut Closed);
    assert_eq!(word(refused), "output");
}

#[test]
fn an_archive_merges_into_what_exists() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/kept", "kept");
    workspace.plant("work/file", "old");
    workspace.plant("work/dir/kept", "kept");
    workspace.link("work/link", workspace.outside().join("secret"));
    chmod(&workspace.host("work/dir"), 0o700);
    let bytes = archive(&[
        made(b'5', "./", "", b""),
        made(b'5', "dir/", "", b""),
        made(b'0', "dir/new", "", b"new"),
        made(b'0', "./file", "", b"new"),
        made(b'0', "link", "", b"new"),
        made(b'2', "dir/to", "../file", b""),
    ]);
    for bytes in [bytes.clone(), gzip(&bytes), [gzip(&bytes[..700]), gzip(&bytes[700..])].concat()]
    {
        let contents = unpack_to(&workspace, "work", &bytes).unwrap();
        assert_eq!(contents, ArchiveContents { files: 3, bytes: 9 });
    }
    for (path, content) in [
        ("kept", "kept"),
        ("file", "new"),
        ("link", "new"),
        ("dir/kept", "kept"),
        ("dir/to", "new"),
    ] {
        assert_eq!(workspace.content(&format!("work/{path}")), content);
    }
    assert_eq!(entry(&workspace.host("work/dir")).mode & 0o777, 0o700);
    assert_eq!(workspace.names("work"), ["dir", "file", "kept", "link"]);
    assert_eq!(entry(&workspace.host("work/dir/to")).owner, TENANT);
    workspace.assert_outside_untouched();
}

#[test]
fn a_full_disk_leaves_whole_files() {
    // Removed when the mount is gone.
    let point = tempfile::tempdir().unwrap();
    let path = point.path().to_owned();
    in_own_mounts(move || {
        mount_tmpfs(&path);
        let directory = tempfile::tempdir_in(&path).unwrap();
        let workspace = TestWorkspace::in_directory(directory, "/workspace");
        workspace.put("work/b", "old").unwrap();
        let large = vec![b'x'; 700_000];
        let bytes = archive(&[made(b'0', "a", "", &large), made(b'0', "b", "", &large)]);
        assert_eq!(word(unpack_to(&workspace, "work", &bytes)), "disk_full");
        assert_eq!(workspace.names("work"), ["a", "b"]);
        assert_eq!(
            (workspace.content("work/a").len(), workspace.content("work/b")),
            (700_000, "old".into())
        );
    });
}

#[test]
fn a_staged_archive_replaces_a_tree_and_can_be_read_only() {
    let workspace = TestWorkspace::new();
    workspace.plant("skills/pdf/old", "old");
    let bytes = archive(&[
        made(b'0', "inner/file", "", b"content"),
        made(b'5', "empty", "", b""),
        made(b'2', "link", "inner/file", b""),
    ]);
    let (root, to, limits) =
        (workspace.root(), workspace.at("skills/pdf"), ArchiveLimits::default());
    let stage = |bytes: &[u8], access| {
        let spool = spool(bytes);
        let source = DirectorySource::Archive(&spool, limits);
        let fill = |batch: &mut StageBatch<'_>| {
            batch.directory(&to, source, access, &TreeLimits::default())
        };
        staged(&root, fill)
    };
    for access in [StagedAccess::ReadOnly, StagedAccess::Writable, StagedAccess::ReadOnly] {
        let staged = stage(&bytes, access).unwrap();
        let here = digest(&root, &to, &TreeLimits::default(), StopCheck::never()).unwrap();
        assert_eq!((staged.digest, staged.files), (here.digest, 1));
        assert_eq!(workspace.names("skills/pdf"), ["empty", "inner", "link"]);
        let (uid, mode) = match access {
            StagedAccess::ReadOnly => (0, 0o444),
            StagedAccess::Writable => (TENANT.uid, 0o644),
        };
        let before = picture(&workspace.host("skills/pdf"));
        assert!(before.values().all(|entry| entry.owner.uid == uid), "{before:?}");
        assert_eq!(entry(&workspace.host("skills/pdf/inner/file")).mode & 0o777, mode);
        let top = entry(&workspace.host("skills/pdf"));
        assert_eq!((top.mode & 0o222 == 0, top.owner.uid), (uid == 0, uid));
        // A link that leaves the tree, though not the workspace.
        let bad = archive(&[made(b'0', "x", "", b"x"), made(b'2', "link", "../../work", b"")]);
        let refused = stage(&bad, access);
        assert_eq!(word(refused), "archive_unsafe");
        assert_eq!(picture(&workspace.host("skills/pdf")), before);
    }
    assert_eq!(word(unpack_to(&workspace, "skills/pdf", &bytes)), "read_only");
    assert_eq!(workspace.names("skills"), ["pdf"]);
}
