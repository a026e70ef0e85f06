//! Tests of writing files.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, symlink};

use super::{TestWorkspace, word};
use crate::files::{FileLocation, NewFile, get, put_file, put_files};
use crate::testing::{TENANT, entry, in_own_mounts, mount_tmpfs};

#[test]
fn a_written_file_belongs_to_the_workspace_with_its_mode() {
    let workspace = TestWorkspace::new();
    for (mode, expected) in [(0, 0o644), (0o600, 0o600), (0o755, 0o755), (0o6_777, 0o777)] {
        let path = format!("work/new/deep/{mode:o}");
        let location = workspace.at(&path);
        assert!(put_file(&workspace.root(), &location, &mut &b"x"[..], mode).unwrap());
        assert!(!put_file(&workspace.root(), &location, &mut &b"new"[..], mode).unwrap());
        let file = entry(&workspace.host(&path));
        assert_eq!((file.contents.as_slice(), file.mode & 0o7777), (&b"new"[..], expected));
        assert_eq!(file.owner, TENANT);
    }
    let made = entry(&workspace.host("work/new/deep"));
    assert_eq!((made.mode, made.owner), (0o40_755, TENANT));
    assert_eq!(workspace.names("work/new/deep"), ["0", "600", "6777", "755"]);
}

#[test]
fn a_last_link_is_replaced_and_a_hard_link_is_not_written_to() {
    let workspace = TestWorkspace::new();
    let secret = workspace.outside().join("secret");
    symlink(&secret, workspace.host("work/link")).unwrap();
    symlink("nowhere", workspace.host("work/dangling")).unwrap();
    fs::hard_link(&secret, workspace.host("work/hard")).unwrap();
    for name in ["work/link", "work/dangling", "work/hard"] {
        assert!(!workspace.put(name, "new").unwrap(), "{name}");
        assert!(fs::symlink_metadata(workspace.host(name)).unwrap().is_file());
        assert_eq!(workspace.content(name), "new");
    }
    assert!(!workspace.host("work/nowhere").exists());
    workspace.assert_outside_untouched();
}

#[test]
fn a_link_on_the_way_is_refused_even_if_it_stays_inside() {
    let workspace = TestWorkspace::new();
    workspace.link("work/out", workspace.outside());
    workspace.link("work/inside", "../out");
    workspace.link("work/root", "/proc/self/root");
    for name in ["out", "inside", "root"] {
        for below in ["secret", "new", "deep/new"] {
            let path = format!("work/{name}/{below}");
            assert_eq!(word(workspace.put(&path, "x")), "through_link", "{path}");
        }
    }
    assert!(workspace.names("out").is_empty());
    workspace.assert_outside_untouched();
}

#[test]
fn other_types_are_refused_and_stay() {
    let workspace = TestWorkspace::new();
    for name in workspace.specials() {
        assert_eq!(word(workspace.put(name, "x")), "not_regular", "{name}");
        let below = format!("{name}/x");
        assert_eq!(word(workspace.put(&below, "x")), "not_regular", "{name}");
    }
    assert_eq!(word(workspace.put("work", "x")), "not_regular");
    assert_eq!(word(workspace.put(".", "x")), "not_regular");
    assert_eq!(word(workspace.put("/tmp", "x")), "not_regular");
    assert_eq!(word(workspace.put("metadata.json/x", "x")), "not_regular");
    assert_eq!(workspace.names("work"), ["device", "fifo", "socket"]);
}

#[test]
fn a_read_only_tree_takes_no_file_by_any_name_of_it() {
    let workspace = TestWorkspace::new();
    workspace.read_only("skills/pdf");
    for path in ["skills/pdf/new", "skills/pdf/inner/file", "skills/pdf/inner/new/deep"] {
        assert_eq!(word(workspace.put(path, "x")), "read_only", "{path}");
    }
    fs::rename(workspace.host("skills/pdf"), workspace.host("work/moved")).unwrap();
    for path in ["work/moved/new", "work/moved/inner/file"] {
        assert_eq!(word(workspace.put(path, "x")), "read_only", "{path}");
    }
    assert_eq!(workspace.content("work/moved/inner/file"), "kept");
    assert_eq!(workspace.names("work/moved"), ["inner"]);
    // A program's own directory without write permissions is not the service's.
    workspace.plant("work/own/file", "");
    crate::testing::chmod(&workspace.host("work/own"), 0o555);
    assert!(workspace.put("work/own/new", "x").unwrap());
}

struct Failing(u64);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("gone"))?;
        buffer.fill(b'x');
        Ok(buffer.len())
    }
}

#[test]
fn a_source_that_fails_leaves_the_old_file_and_nothing_else() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/file", "old");
    for path in ["work/file", "work/new/deep/file"] {
        let result = put_file(&workspace.root(), &workspace.at(path), &mut Failing(3), 0);
        assert_eq!(word(result), "input");
    }
    assert_eq!(workspace.content("work/file"), "old");
    assert_eq!(workspace.names("work"), ["file"]);
}

#[test]
fn a_full_disk_leaves_the_old_files_and_nothing_else() {
    // Removed when the mount is gone.
    let point = tempfile::tempdir().unwrap();
    let path = point.path().to_owned();
    in_own_mounts(move || {
        mount_tmpfs(&path);
        let directory = tempfile::tempdir_in(&path).unwrap();
        let workspace = TestWorkspace::in_directory(directory, "/workspace");
        workspace.put("work/file", "old").unwrap();
        workspace.put("work/other", "old").unwrap();
        let location = workspace.at("work/file");
        let result = put_file(&workspace.root(), &location, &mut Failing(u64::MAX), 0);
        assert_eq!(word(result), "disk_full");
        let large = vec![b'x'; 600_000];
        let locations =
            ["work/file", "work/new/deep/file", "work/other"].map(|path| workspace.at(path));
        let files: Vec<NewFile<'_>> = locations
            .iter()
            .map(|location| NewFile { location, content: &large, mode: 0 })
            .collect();
        assert_eq!(word(put_files(&workspace.root(), &files)), "disk_full");
        assert_eq!(
            (workspace.content("work/file"), workspace.content("work/other")),
            ("old".into(), "old".into())
        );
        assert_eq!(workspace.names("work"), ["file", "other"]);
        // The room is back.
        put_files(&workspace.root(), &files[..1]).unwrap();
    });
}

fn put_all(workspace: &TestWorkspace, paths: &[&str]) -> &'static str {
    let locations: Vec<FileLocation> = paths.iter().map(|path| workspace.at(path)).collect();
    let files: Vec<NewFile<'_>> =
        locations.iter().map(|location| NewFile { location, content: b"new", mode: 0 }).collect();
    word(put_files(&workspace.root(), &files))
}

#[test]
fn every_path_is_judged_before_the_first_write() {
    let workspace = TestWorkspace::new();
    workspace.read_only("skills/pdf");
    workspace.link("work/link", "../out");
    workspace.plant("work/file", "old");
    for (bad, expected) in [
        ("work/link/x", "through_link"),
        ("work", "not_regular"),
        ("work/file/x", "not_regular"),
        ("skills/pdf/x", "read_only"),
        ("skills/pdf/deep/x", "read_only"),
        ("out/a/b", "not_regular"),
    ] {
        assert_eq!(put_all(&workspace, &["out/a", "out/new/b", bad]), expected, "{bad}");
        assert!(workspace.names("out").is_empty(), "{bad}");
    }
    assert_eq!(put_all(&workspace, &["out/a", "out/new/b", "out/new/c", "work/file"]), "ok");
    assert_eq!(workspace.names("out"), ["a", "new"]);
    assert_eq!(
        (workspace.names("out/new").len(), workspace.content("work/file")),
        (2, "new".into())
    );
}

#[test]
fn a_reader_of_a_replaced_file_keeps_the_old_one_whole() {
    let workspace = TestWorkspace::new();
    workspace.put("work/file", "old").unwrap();
    let mut opened = get(&workspace.root(), &workspace.at("work/file")).unwrap();
    workspace.put("work/file", "replaced").unwrap();
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    assert_eq!(fs::metadata(workspace.host("work/file")).unwrap().nlink(), 1);
}

#[test]
fn a_file_in_transfer_has_no_name_and_no_part_of_it_is_seen() {
    struct Watching<'a>(&'a TestWorkspace, u64);
    impl Read for Watching<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert_eq!(self.0.names("work"), ["old"]);
            assert_eq!(self.0.content("work/old"), "old");
            let Some(left) = self.1.checked_sub(1) else { return Ok(0) };
            self.1 = left;
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }
    let workspace = TestWorkspace::new();
    workspace.put("work/old", "old").unwrap();
    for (path, is_new) in [("work/old", false), ("out/new", true)] {
        let mut source = Watching(&workspace, 3);
        let put = put_file(&workspace.root(), &workspace.at(path), &mut source, 0).unwrap();
        assert_eq!((put, source.1), (is_new, 0));
        fs::remove_file(workspace.host("work/old")).unwrap();
        workspace.put("work/old", "old").unwrap();
    }
    assert_eq!(
        (workspace.names("work"), workspace.names("out")),
        (vec!["old".to_owned()], vec!["new".to_owned()])
    );
}
