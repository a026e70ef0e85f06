//! The limits of archives, and the memory that they take.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{archive, gzip, made, spool};
use crate::files::archive::header::{BLOCK_BYTES, TarHeader};
use crate::files::tests::{TestWorkspace, word};
use crate::files::{ArchiveContents, ArchiveLimits, FilesError, Spool, unpack};
use crate::testing::{OwnProcess, in_own_process};

const MIB: usize = 1 << 20;

fn unpack_within(
    workspace: &TestWorkspace,
    bytes: &[u8],
    limits: ArchiveLimits,
) -> Result<ArchiveContents, FilesError> {
    unpack(&workspace.root(), &workspace.at("work"), &spool(bytes), limits)
}

#[test]
fn each_limit_is_taken_whole_and_refused_one_above() {
    let file = |path: &str, size: usize| made(b'0', path, "", &vec![b'x'; size]);
    let limits = ArchiveLimits { entries_max: 3, bytes_max: 10, depth_max: 3 };
    for (entries, expected) in [
        (vec![file("a", 5), file("b", 5), file("c", 0)], "ok"),
        (vec![file("a/b/c", 10)], "ok"),
        (vec![file("a", 5), file("b", 6)], "too_large"),
        (vec![file("a", 0), file("b", 0), file("c", 0), file("d", 0)], "too_large"),
        (vec![file("a/b/c", 0), file("d", 0)], "too_large"),
        (vec![file("a/b/c/d", 0)], "archive_unsafe"),
        (vec![file("a", 6), made(b'1', "b", "a", b"")], "too_large"),
        (vec![file("a", 5), made(b'1', "b", "a", b"")], "ok"),
    ] {
        let workspace = TestWorkspace::new();
        assert_eq!(
            word(unpack_within(&workspace, &archive(&entries), limits)),
            expected,
            "{entries:?}"
        );
        assert_eq!(workspace.names("work").is_empty(), expected != "ok");
    }
}

#[test]
fn a_spool_takes_no_more_than_its_limit() {
    let fill =
        |bytes: &[u8], max| word(Spool::fill(tempfile::tempfile().unwrap(), &mut &*bytes, max));
    assert_eq!((fill(&[0; 100], 100), fill(&[0; 101], 100)), ("ok", "too_large"));
}

/// Members of gzip data that decompress to `mib` MiB of zeros.
fn zeros(mib: usize) -> Vec<u8> {
    gzip(&vec![0; MIB]).repeat(mib)
}

/// The header of a file of `size` bytes, without contents.
fn header(kind: u8, size: u64) -> Vec<u8> {
    let (path, link) = (b"bomb".to_vec(), Vec::new());
    gzip(&TarHeader { kind, path, link, mode: 0o644, size, modified: 0 }.encode())
}

#[test]
fn a_bomb_is_refused_in_bounded_memory_and_work() {
    let name = "files::archive::tests::bounds::a_bomb_is_refused_in_bounded_memory_and_work";
    in_own_process(name, OwnProcess::Descriptors(64), || {
        let limits = ArchiveLimits { entries_max: 200_000, bytes_max: 24 << 20, depth_max: 256 };
        // Past the end of a whole archive, up to what entries may take.
        let small = ArchiveLimits { entries_max: 100, ..limits };
        let entry = gzip(&made(b'0', "first", "", b"x"));
        let end = gzip(&[0; 2 * BLOCK_BYTES]);
        let mut many = GzEncoder::new(Vec::new(), Compression::fast());
        for number in 0..=limits.entries_max {
            many.write_all(&made(b'0', &format!("f{number}"), "", b"")).unwrap();
        }
        let many = many.finish().unwrap();
        let bombs = [
            ("contents", [header(b'0', 32 << 20), zeros(32)].concat(), limits, "too_large"),
            ("a name", [header(b'L', 32 << 20), zeros(32)].concat(), limits, "archive_unsafe"),
            ("records", [header(b'x', 32 << 20), zeros(32)].concat(), limits, "archive_unsafe"),
            ("a lie", [header(b'0', u64::MAX), zeros(1)].concat(), limits, "too_large"),
            ("a tail", [entry, end, zeros(32)].concat(), small, "too_large"),
            ("entries", many, limits, "too_large"),
        ];
        let workspace = TestWorkspace::new();
        for (what, bytes, limits, expected) in bombs {
            let spool = spool(&bytes);
            drop(bytes);
            let before = reset_peak();
            let refused = unpack(&workspace.root(), &workspace.at("work"), &spool, limits);
            let grown = peak_bytes().saturating_sub(before);
            assert_eq!(word(refused), expected, "{what}");
            assert!(grown < 16 << 20, "{what}: {grown} bytes");
            assert!(workspace.names("work").is_empty(), "{what}");
        }
    });
}

#[test]
fn contents_are_unpacked_in_bounded_memory() {
    let name = "files::archive::tests::bounds::contents_are_unpacked_in_bounded_memory";
    in_own_process(name, OwnProcess::Descriptors(64), || {
        let workspace = TestWorkspace::new();
        let spool = spool(&[header(b'0', 48 << 20), zeros(48)].concat());
        let before = reset_peak();
        let limits = ArchiveLimits::default();
        unpack(&workspace.root(), &workspace.at("work"), &spool, limits).unwrap();
        let grown = peak_bytes().saturating_sub(before);
        assert!(grown < 16 << 20, "{grown} bytes");
        assert_eq!(fs::metadata(workspace.host("work/bomb")).unwrap().len(), 48 << 20);
    });
}

/// The most memory that this process has had resident since it was reset, bytes.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    peak * 1024
}

/// Resets the peak to what is resident now, and returns that.
fn reset_peak() -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    peak_bytes()
}
