//! Archives that are refused, with nothing written.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::{archive, gzip, made, spool, unpack_to, vector};
use crate::files::tests::{TestWorkspace, word};
use crate::files::{ArchiveLimits, FilesError, unpack};
use crate::testing::{in_time, picture};

/// The entry that `archive` is refused for; it follows one that is fine.
fn refused_for(workspace: &TestWorkspace, archive: &[u8]) -> (String, &'static str) {
    let before = picture(&workspace.host("."));
    let refused = unpack_to(workspace, "work", archive);
    assert_eq!(picture(&workspace.host(".")), before, "{refused:?}");
    workspace.assert_outside_untouched();
    match refused {
        Err(FilesError::ArchiveUnsafe { entry, reason }) => (entry.display().to_string(), reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_entry_that_is_or_leads_elsewhere_is_refused_by_its_name() {
    let workspace = TestWorkspace::new();
    let plain = |kind, path: &str| made(kind, path, "", b"");
    let link = |path: &str, text: &str| made(b'2', path, text, b"");
    let long = "x".repeat(256);
    for (entry, name) in [
        (plain(b'0', "/etc/passwd"), "/etc/passwd"),
        (plain(b'0', "../x"), "../x"),
        (plain(b'0', "a/../../x"), "a/../../x"),
        (plain(b'0', "a/../x"), "a/../x"),
        (plain(b'5', "/"), "/"),
        (plain(b'5', ".."), ".."),
        (plain(b'0', "."), "."),
        (plain(b'0', ""), ""),
        (plain(b'0', "file/"), "file/"),
        (plain(b'3', "device"), "device"),
        (plain(b'4', "disk"), "disk"),
        (plain(b'6', "fifo"), "fifo"),
        (plain(b'S', "sparse"), "sparse"),
        (plain(b'V', "volume"), "volume"),
        (plain(b'D', "dump"), "dump"),
        (plain(b'M', "part"), "part"),
        (plain(b'Z', "unknown"), "unknown"),
        (link("out", "/etc/passwd"), "out"),
        (link("out", "../../../etc"), "out"),
        (link("out", "../../etc"), "out"),
        (link("out", "/workspace/../etc"), "out"),
        (link("out", "first/../../../.."), "out"),
        (link("out", "/proc/self/root"), "out"),
        (link("out", ""), "out"),
        (link("./", "x"), "./"),
        (made(b'1', "hard", "/etc/passwd", b""), "hard"),
        (made(b'1', "hard", "../metadata.json", b""), "hard"),
        (made(b'1', "hard", "absent", b""), "hard"),
        (made(b'1', "hard", "hard", b""), "hard"),
        (made(b'5', "dir/", "", b"contents"), "dir/"),
        (made(b'2', "link", "first", b"contents"), "link"),
        (made(b'1', "hard", "first", b"contents"), "hard"),
        ([made(b'L', "x", "", long.as_bytes()), plain(b'0', "short")].concat(), long.as_str()),
    ] {
        let first = made(b'0', "first", "", b"first");
        for bytes in [archive(&[first.clone(), entry.clone()]), gzip(&archive(&[first, entry]))] {
            assert_eq!(refused_for(&workspace, &bytes).0, name);
        }
    }
    for name in ["sparse_gnu", "sparse_posix"] {
        assert_eq!(refused_for(&workspace, &vector(name)).1, "it is a sparse file");
    }
}

#[test]
fn two_entries_that_play_together_are_refused() {
    let workspace = TestWorkspace::new();
    let file = |path: &str| made(b'0', path, "", b"x");
    let link = |path: &str, text: &str| made(b'2', path, text, b"");
    let directory = |path: &str| made(b'5', path, "", b"");
    for (entries, name) in [
        ([link("a", "b"), file("a/x")], "a/x"),
        ([link("a", "b"), file("a")], "a"),
        ([link("a", "."), link("a", "..")], "a"),
        ([link("a", "b"), directory("a")], "a"),
        ([directory("a"), link("a", "b")], "a"),
        ([directory("a"), file("a")], "a"),
        ([file("a/x"), file("a")], "a"),
        ([file("a/b/x"), link("a", "b")], "a"),
        ([file("a"), directory("a")], "a"),
        ([file("a"), file("a/b/c")], "a/b/c"),
        ([file("a"), link("./a", "b")], "./a"),
        ([link("a", "b"), made(b'1', "c", "a", b"")], "c"),
        ([directory("a"), made(b'1', "c", "a", b"")], "c"),
    ] {
        assert_eq!(refused_for(&workspace, &archive(&entries)).0, name);
    }
    // A file again is the newer one, as in an archive to which tar appends.
    let newer = [made(b'0', "a", "", b"old"), made(b'0', "a", "", b"new")];
    unpack_to(&workspace, "work", &archive(&newer)).unwrap();
    assert_eq!(workspace.content("work/a"), "new");
}

#[test]
fn links_may_lead_anywhere_in_the_workspace() {
    let workspace = TestWorkspace::new();
    for (number, text) in
        ["first", "../out", "../../tmp/x", "/workspace/out", "/tmp/x", "..", "./dir/x"]
            .iter()
            .enumerate()
    {
        let path = format!("link{number}");
        unpack_to(&workspace, "work", &archive(&[made(b'2', &path, text, b"")])).unwrap();
        let host = workspace.host(&format!("work/{path}"));
        assert_eq!(std::fs::read_link(host).unwrap(), Path::new(text));
    }
}

#[test]
fn the_place_is_judged_before_the_first_write() {
    in_time(|| {
        let workspace = TestWorkspace::new();
        workspace.link("work/link", "../out");
        workspace.plant("work/file", "old");
        workspace.plant("work/dir/x", "old");
        workspace.read_only("work/pdf");
        workspace.specials();
        let before = picture(&workspace.host("."));
        for (kind, path, expected) in [
            (b'0', "link/x", "through_link"),
            (b'5', "link", "through_link"),
            (b'0', "file/x", "not_regular"),
            (b'5', "file", "not_regular"),
            (b'0', "dir", "not_regular"),
            (b'0', "fifo", "not_regular"),
            (b'2', "device", "not_regular"),
            (b'0', "socket/x", "not_regular"),
            (b'0', "pdf/x", "read_only"),
            (b'0', "pdf/deep/x", "read_only"),
            (b'0', "pdf/inner/file", "read_only"),
        ] {
            let link = if kind == b'2' { "first" } else { "" };
            let bytes = archive(&[made(b'0', "first", "", b"x"), made(kind, path, link, b"")]);
            assert_eq!(word(unpack_to(&workspace, "work", &bytes)), expected, "{path}");
            assert_eq!(picture(&workspace.host(".")), before, "{path}");
        }
        let fine = archive(&[made(b'0', "first", "", b"x")]);
        for (to, expected) in [
            ("work/link/x", "through_link"),
            ("work/link", "through_link"),
            ("work/file", "not_regular"),
            ("work/pdf", "read_only"),
        ] {
            assert_eq!(word(unpack_to(&workspace, to, &fine)), expected, "{to}");
        }
        assert_eq!(picture(&workspace.host(".")), before);
    });
}

#[test]
fn what_is_no_archive_or_is_damaged_is_refused() {
    let workspace = TestWorkspace::new();
    let whole = archive(&[made(b'0', "a", "", &[b'x'; 1000])]);
    let mut compressed = gzip(&whole);
    let end = compressed.len();
    compressed[end - 6] ^= 1;
    let cases: [&[u8]; 9] = [
        b"",
        b"hello",
        &[b'x'; 1024],
        &whole[..100],
        &whole[..512],
        &whole[..1000],
        &gzip(&whole)[..end - 20],
        &compressed,
        &[0x1f, 0x8b],
    ];
    for bytes in cases {
        refused_for(&workspace, bytes);
    }
    // Without the blocks at the end, it is whole.
    unpack_to(&workspace, "work", &whole[..512 + 1024]).unwrap();
}

#[test]
fn extensions_that_lie_are_refused() {
    let workspace = TestWorkspace::new();
    let with = |kind, records: &str| {
        archive(&[made(kind, "x", "", records.as_bytes()), made(b'0', "a", "", b"content")])
    };
    for (kind, records) in [
        (b'x', "99999999999999999999 path=x\n"),
        (b'x', "5 path=x\n"),
        (b'x', "path=x\n"),
        (b'x', "10 path=xy\0"),
        (b'x', "0 \n"),
        (b'x', "12 size=7x7\n"),
        (b'x', "30 size=99999999999999999999\n"),
        (b'x', "12 path=a\0b\n"),
        (b'x', "22 GNU.sparse.major=1\n"),
        (b'x', "18 path=/etc/file\n"),
        (b'g', "11 path=ab\n"),
        (b'g', "10 size=1\n"),
    ] {
        refused_for(&workspace, &with(kind, records));
    }
    // The size of the extension counts, as it does for tar.
    let hidden = made(b'0', "b", "", b"hidden");
    let mut header = made(b'0', "a", "", b"");
    header.extend_from_slice(&hidden);
    let size = made(b'x', "x", "", b"13 size=1024\n");
    let bytes = archive(&[size, header]);
    let contents = unpack_to(&workspace, "work", &bytes).unwrap();
    assert_eq!((contents.files, workspace.names("work")), (1, vec!["a".to_owned()]));
    unpack_to(&workspace, "work", &with(b'g', "13 comment=x\n")).unwrap();
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    /// Bytes changed anywhere, and headers in any order, write nothing outside and leave no temporary names.
    #[test]
    fn no_archive_leads_out(
        entries in proptest::collection::vec(
            (r"[0-7xgLKS]", r"(a|b|\.|\.\.|/|link){1,4}", r"(a|\.\.|/|/etc){0,3}", 0_usize..3), 0..8),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let workspace = TestWorkspace::new();
        workspace.link("work/link", workspace.outside());
        let entries: Vec<Vec<u8>> = entries
            .iter()
            .map(|(kind, path, link, size)| made(kind.as_bytes()[0], path, link, &vec![b'x'; *size]))
            .collect();
        let mut bytes = archive(&entries);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let before = picture(&workspace.host("."));
        let limits = ArchiveLimits { bytes_max: 1 << 20, ..ArchiveLimits::default() };
        let result = unpack(&workspace.root(), &workspace.at("work"), &spool(&bytes), limits);
        let after = picture(&workspace.host("."));
        if result.is_err() {
            prop_assert_eq!(before, after);
        } else {
            prop_assert!(after.keys().all(|path| !path.to_str().unwrap().contains(".cofferdam")));
        }
        workspace.assert_outside_untouched();
    }
}
