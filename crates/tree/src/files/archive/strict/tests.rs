//! Tests of archives of tasks: formats, refusals by their reasons, and memory.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use tempfile::TempDir;

use super::{StrictArchive, StrictContents, StrictError, StrictLimits, StrictRule, unpack_strict};
use crate::files::archive::tests::{archive, gzip, made};
use crate::files::error::FilesError;
use crate::files::stage::copy::service_owner;
use crate::testing::{OwnProcess, in_own_process};
use crate::walk::stop_check::StopCheck;

const MIB: usize = 1 << 20;

/// Unpacks `bytes` for a task whose description names the directory of its files.
fn unpacked(bytes: &[u8], limits: StrictLimits) -> (TempDir, Result<StrictContents, StrictError>) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let target = TempDir::new().unwrap();
    let done = StrictArchive::of(file).and_then(|archive| {
        let links_below = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            text.strip_prefix("files: ").map(|name| PathBuf::from(name.trim()))
        };
        let rule = StrictRule {
            manifest: "workspace.yaml",
            manifest_bytes_max: 1024,
            links_below: &links_below,
        };
        let directory = fs::File::open(target.path()).unwrap();
        unpack_strict(
            &archive,
            rule,
            directory.as_fd(),
            service_owner(),
            limits,
            StopCheck::never(),
        )
    });
    (target, done)
}

/// The entry and the reason that refuse `bytes`, with nothing written.
fn refused(bytes: &[u8]) -> (String, &'static str) {
    refused_within(bytes, StrictLimits::default())
}

fn refused_within(bytes: &[u8], limits: StrictLimits) -> (String, &'static str) {
    let (target, done) = unpacked(bytes, limits);
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0, "{done:?}");
    match done {
        Err(StrictError::Unsafe { entry, reason }) => (entry, reason.word()),
        other => panic!("{other:?}"),
    }
}

/// An entry of a hand-made zip archive: its name, mode and contents.
struct Zipped<'a>(&'a str, u32, &'a [u8]);

/// A zip archive; contents are deflated if they are long.
fn zip(entries: &[Zipped<'_>]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for Zipped(name, mode, contents) in entries {
        let is_deflated = contents.len() > 100;
        let data = if is_deflated {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(contents).unwrap();
            encoder.finish().unwrap()
        } else {
            contents.to_vec()
        };
        let mut crc = flate2::Crc::new();
        crc.update(contents);
        let method: u16 = if is_deflated { 8 } else { 0 };
        let mut common = Vec::new();
        common.extend(20_u16.to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        common.extend(method.to_le_bytes());
        common.extend([0, 0, 0x21, 0x58]);
        common.extend(crc.sum().to_le_bytes());
        common.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        common.extend(u32::try_from(contents.len()).unwrap().to_le_bytes());
        common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        let at = u32::try_from(bytes.len()).unwrap();
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend((mode << 16).to_le_bytes());
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&common);
        bytes.extend(name.as_bytes());
        bytes.extend(data);
    }
    let start = u32::try_from(bytes.len()).unwrap();
    let count = u16::try_from(entries.len()).unwrap();
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(count.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// A zstd frame of raw blocks, with a window of `window` as its header says.
fn zstd(window: u8, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window];
    let blocks = contents.chunks(128 * 1024).count();
    for (index, block) in contents.chunks(128 * 1024).enumerate() {
        let header = u32::try_from(block.len()).unwrap() << 3 | u32::from(index + 1 == blocks);
        bytes.extend(&header.to_le_bytes()[..3]);
        bytes.extend(block);
    }
    bytes
}

fn file(path: &str, contents: &[u8]) -> Vec<u8> {
    made(b'0', path, "", contents)
}

#[test]
fn every_format_is_unpacked_by_its_first_bytes() {
    let plain = archive(&[
        file("task/workspace.yaml", b"files: f\n"),
        file("task/._workspace.yaml", b"x"),
        file("__MACOSX/task/a", b"x"),
        file("task/tests/a.sh", b"exit 0\n"),
    ]);
    let zipped = zip(&[
        Zipped("task/", 0o040_755, b""),
        Zipped("task/workspace.yaml", 0o100_644, b"files: f\n"),
        Zipped("__MACOSX/._a", 0o100_644, b"x"),
        Zipped("task/tests/a.sh", 0o100_755, b"exit 0\n"),
        Zipped("task/big", 0, &[b'x'; 1000]),
    ]);
    let split =
        [zstd(0x58, &plain[..1000]), vec![0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9]].concat();
    let frames = [split, zstd(0x58, &plain[1000..])].concat();
    for bytes in [plain.clone(), gzip(&plain), zstd(0x58, &plain), frames, zipped] {
        let (target, done) = unpacked(&bytes, StrictLimits::default());
        done.unwrap();
        let script = fs::read_to_string(target.path().join("task/tests/a.sh")).unwrap();
        assert_eq!(script, "exit 0\n");
        assert!(!target.path().join("__MACOSX").exists());
        assert!(!target.path().join("task/._workspace.yaml").exists());
    }
    for bytes in [&b""[..], b"text", b"PK\x03\x04", &[0; 1024], b"\x1f\x8b", &zstd(0x58, b"x")[..8]]
    {
        let (_, done) = unpacked(bytes, StrictLimits::default());
        assert!(matches!(done, Err(StrictError::Malformed { .. })), "{bytes:?}: {done:?}");
    }
}

#[test]
fn a_stopped_archive_of_any_format_is_read_no_further() {
    let names: Vec<String> = (0..50).map(|number| format!("task/{number}")).collect();
    let tar = archive(&names.iter().map(|name| file(name, b"x")).collect::<Vec<_>>());
    let entries: Vec<_> = names.iter().map(|name| Zipped(name, 0o100_644, b"x")).collect();
    for bytes in [tar.clone(), gzip(&tar), zstd(0x58, &tar), zip(&entries)] {
        let target = TempDir::new().unwrap();
        let mut held = tempfile::tempfile().unwrap();
        held.write_all(&bytes).unwrap();
        let archive = StrictArchive::of(held).unwrap();
        let (directory, asked) = (crate::testing::directory(target.path()), Cell::new(0));
        let unpack = |asked_max| {
            asked.set(0);
            let is_over = || {
                asked.set(asked.get() + 1);
                asked.get() >= asked_max
            };
            let rule = StrictRule { manifest: "m", manifest_bytes_max: 0, links_below: &|_| None };
            let (limits, stop) = (StrictLimits::default(), StopCheck(&is_over));
            unpack_strict(&archive, rule, directory.as_fd(), service_owner(), limits, stop)
        };
        // The second reading writes; the last question is asked after its last entry.
        unpack(usize::MAX).unwrap();
        let all = asked.get();
        assert!(all > 100, "{all}");
        for asked_max in [1, all / 4, all / 2, all - 2] {
            let stopped = unpack(asked_max);
            assert!(matches!(stopped, Err(StrictError::Host(FilesError::Stopped))), "{stopped:?}");
            assert!(asked.get() <= asked_max + 2, "{} > {asked_max}", asked.get());
        }
    }
}

#[test]
fn an_unsafe_entry_refuses_a_tar_by_its_reason() {
    let link = |path: &str, text: &str| made(b'2', path, text, b"");
    let long = "x".repeat(256);
    let pax = b"21 path=evil\0name.py\n";
    for (entries, name, reason) in [
        (vec![file("../x", b"")], "../x", "traversal"),
        (vec![file("a/../x", b"")], "a/../x", "traversal"),
        (vec![file("/etc/x", b"")], "/etc/x", "absolute"),
        (vec![link("a", "b")], "a", "link"),
        (vec![link("a", "/etc/passwd")], "a", "link"),
        (vec![file("a", b""), made(b'1', "b", "a", b"")], "b", "link"),
        (vec![made(b'1', "b", "/etc/passwd", b"")], "b", "link"),
        (vec![made(b'3', "tty", "", b"")], "tty", "device"),
        (vec![made(b'4', "disk", "", b"")], "disk", "device"),
        (vec![made(b'6', "pipe", "", b"")], "pipe", "device"),
        (vec![file("", b"")], "", "name"),
        (vec![made(b'L', "x", "", long.as_bytes()), file("x", b"")], long.as_str(), "name"),
        (vec![made(b'x', "x", "", pax), file("x", b"")], "evil\0name.py", "name"),
        (vec![file("a", b"1"), file("./a", b"2")], "./a", "duplicate"),
        (vec![file("a", b"1"), file("a/b", b"2")], "a/b", "duplicate"),
        (vec![made(b'5', "a", "", b""), file("a", b"")], "a", "duplicate"),
    ] {
        let entries = [vec![file("first", b"1")], entries].concat();
        for bytes in [archive(&entries), gzip(&archive(&entries))] {
            assert_eq!(refused(&bytes), (name.to_owned(), reason));
        }
    }
}

#[test]
fn an_unsafe_entry_refuses_a_zip_by_its_reason() {
    for (entry, name, reason) in [
        (Zipped("../x", 0o100_644, b""), "../x", "traversal"),
        (Zipped("/x", 0o100_644, b""), "/x", "absolute"),
        (Zipped("a", 0o120_777, b"first"), "a", "link"),
        (Zipped("a", 0o060_644, b""), "a", "device"),
        (Zipped("first", 0o100_644, b""), "first", "duplicate"),
        (Zipped("a\0b", 0o100_644, b""), "a\0b", "name"),
    ] {
        let bytes = zip(&[Zipped("first", 0o100_644, b"1"), entry]);
        assert_eq!(refused(&bytes), (name.to_owned(), reason));
    }
    // The two names of an entry differ.
    let mut bytes = zip(&[Zipped("harmless", 0o100_644, b"1")]);
    bytes[30..38].copy_from_slice(b"../../xx");
    let (_, done) = unpacked(&bytes, StrictLimits::default());
    assert!(matches!(done, Err(StrictError::Malformed { .. })), "{done:?}");
    // The contents are not those of the checksum.
    let mut bytes = zip(&[Zipped("a", 0o100_644, b"1")]);
    bytes[31] = b'2';
    let (target, done) = unpacked(&bytes, StrictLimits::default());
    assert!(matches!(done, Err(StrictError::Malformed { .. })), "{done:?}");
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}

#[test]
fn links_are_kept_below_the_files_of_the_task_alone() {
    let description = || file("t/workspace.yaml", b"files: repo\n");
    let inside = [
        file("t/repo/a", b"contents"),
        made(b'2', "t/repo/sub/link", "../a", b""),
        made(b'1', "t/repo/hard", "t/repo/a", b""),
    ];
    // The description may come last.
    for entries in [[vec![description()], inside.to_vec()], [inside.to_vec(), vec![description()]]]
    {
        let (target, done) = unpacked(&archive(&entries.concat()), StrictLimits::default());
        done.unwrap();
        let repo = target.path().join("t/repo");
        assert_eq!(fs::read_to_string(repo.join("sub/link")).unwrap(), "contents");
        assert_eq!(fs::read_to_string(repo.join("hard")).unwrap(), "contents");
        assert!(fs::symlink_metadata(repo.join("sub/link")).unwrap().is_symlink());
    }
    for (entry, name) in [
        (made(b'2', "t/repo/out", "../workspace.yaml", b""), "t/repo/out"),
        (made(b'2', "t/tests/a.sh", "../repo/a", b""), "t/tests/a.sh"),
        (made(b'1', "t/repo/hard2", "t/workspace.yaml", b""), "t/repo/hard2"),
        (made(b'1', "t/tests/hard", "t/repo/a", b""), "t/tests/hard"),
        (file("t/repo/sub/link/x", b""), "t/repo/sub/link/x"),
    ] {
        let entries = [vec![description()], inside.to_vec(), vec![entry]].concat();
        assert_eq!(refused(&archive(&entries)), (name.to_owned(), "link"));
    }
}

#[test]
fn sizes_are_bounded_by_their_reasons() {
    let limits = StrictLimits { entries_max: 3, bytes_max: 10, depth_max: 8 };
    for (entries, refused) in [
        (vec![file("a", &[1; 5]), file("b", &[1; 5]), file("c", b"")], None),
        (vec![file("d/e/a", &[1; 10])], None),
        (vec![file("a", &[1; 5]), file("b", &[1; 6])], Some(("b", "size"))),
        (
            vec![file("a", b""), file("b", b""), file("c", b""), file("d", b"")],
            Some(("d", "entries")),
        ),
    ] {
        let bytes = gzip(&archive(&entries));
        match refused {
            None => assert!(unpacked(&bytes, limits).1.is_ok()),
            Some((name, reason)) => {
                assert_eq!(refused_within(&bytes, limits), (name.to_owned(), reason));
            }
        }
    }
    let zeros = vec![0; 17 * MIB];
    assert_eq!(refused(&gzip(&archive(&[file("bomb", &zeros)]))), ("bomb".to_owned(), "ratio"));
    assert_eq!(refused(&zip(&[Zipped("bomb", 0o100_644, &zeros)])), ("bomb".to_owned(), "ratio"));
    // Behind the end of the archive.
    let tail = [archive(&[file("a", b"")]), zeros].concat();
    assert_eq!(refused(&gzip(&tail)).1, "ratio");
    // 8 MiB is taken, the next larger window is not.
    let plain = archive(&[file("a", b"x")]);
    assert!(unpacked(&zstd(0x68, &plain), StrictLimits::default()).1.is_ok());
    assert_eq!(refused(&zstd(0x69, &plain)).1, "window");
    assert_eq!(refused(&zstd(0xf0, &plain)).1, "window");
}

/// A tar archive of a file of `mib` MiB that does not compress.
fn noise(mib: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..mib * MIB)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect();
    archive(&[file("noise", &noise)])
}

#[test]
fn a_large_archive_takes_at_most_24_mib_of_memory() {
    let name = "files::archive::strict::tests::a_large_archive_takes_at_most_24_mib_of_memory";
    in_own_process(name, OwnProcess::Descriptors(64), || {
        let noise = noise(32);
        // The frame has the largest window, and uses all of it.
        let mut archives = vec![("gzip", gzip(&noise)), ("zstd", zstd(0x68, &noise))];
        let mut many = GzEncoder::new(Vec::new(), Compression::fast());
        for number in 0..100_000 {
            many.write_all(&file(&format!("d{}/f{number}", number % 100), b"")).unwrap();
        }
        archives.push(("entries", many.finish().unwrap()));
        drop(noise);
        for (what, bytes) in archives {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            drop(bytes);
            let target = TempDir::new().unwrap();
            let directory = fs::File::open(target.path()).unwrap();
            let links_below = |_: &[u8]| None;
            let rule = StrictRule {
                manifest: "workspace.yaml",
                manifest_bytes_max: 1024,
                links_below: &links_below,
            };
            fs::write("/proc/self/clear_refs", "5").unwrap();
            let before = peak_bytes();
            let archive = StrictArchive::of(file).unwrap();
            let limits = StrictLimits::default();
            unpack_strict(
                &archive,
                rule,
                directory.as_fd(),
                service_owner(),
                limits,
                StopCheck::never(),
            )
            .unwrap();
            let grown = peak_bytes() - before;
            assert!(grown < 24 << 20, "{what}: {grown} bytes");
        }
    });
}

/// The most memory that this process has had resident since it was reset, bytes.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
