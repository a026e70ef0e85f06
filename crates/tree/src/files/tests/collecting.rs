//! Tests of collecting files.

use std::fs;
use std::path::PathBuf;

use super::{TestWorkspace, word};
use crate::files::{CollectLimits, CollectOmission, CollectedFiles, collect};
use crate::testing::in_time;

fn collected(
    workspace: &TestWorkspace,
    patterns: &[&str],
    limits: CollectLimits,
) -> CollectedFiles {
    let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    collect(&workspace.root(), &patterns, limits).unwrap()
}

fn names(workspace: &TestWorkspace, patterns: &[&str]) -> Vec<String> {
    let collected = collected(workspace, patterns, CollectLimits::default());
    assert!(!collected.limits_hit);
    collected.files.iter().map(|file| file.name.display().to_string()).collect()
}

fn omitted(workspace: &TestWorkspace, patterns: &[&str]) -> Vec<(String, CollectOmission)> {
    let collected = collected(workspace, patterns, CollectLimits::default());
    collected.omitted.iter().map(|(path, why)| (path.display().to_string(), *why)).collect()
}

#[test]
fn files_come_by_pattern_and_name_each_once() {
    let workspace = TestWorkspace::new();
    for path in
        ["out/b.txt", "out/a.txt", "out/deep/c.txt", "out/z.bin", "work/a.txt", "out/.hidden"]
    {
        workspace.plant(path, path);
    }
    fs::create_dir(workspace.host("out/dir.txt")).unwrap();
    for (patterns, expected) in [
        (&["out/*.txt"][..], &["out/a.txt", "out/b.txt"][..]),
        (&["out/z.bin", "out/*.txt"], &["out/z.bin", "out/a.txt", "out/b.txt"]),
        (
            &["out/b.txt", "out/**"],
            &["out/b.txt", "out/.hidden", "out/a.txt", "out/deep/c.txt", "out/z.bin"],
        ),
        (&["**/a.txt", "out/a.txt"], &["out/a.txt", "work/a.txt"]),
        (&["./out/../work/*"], &["work/a.txt"]),
        (&["out", "nowhere/*", ".", "out/a.txt/x", "metadata.jso?"], &["metadata.json"]),
        (&["{out,work}/[ab].txt"], &["out/a.txt", "out/b.txt", "work/a.txt"]),
        (&[], &[]),
    ] {
        assert_eq!(names(&workspace, patterns), expected, "{patterns:?}");
    }
    for (pattern, expected) in
        [("../x", "path_escape"), ("/etc/*", "path_escape"), ("[", "bad_pattern")]
    {
        let refused = collect(&workspace.root(), &[pattern.to_owned()], CollectLimits::default());
        assert_eq!(word(refused), expected);
    }
}

#[test]
fn a_link_to_a_file_inside_counts_once_by_the_real_name() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/real/file", "content");
    workspace.link("out/one", "../work/real/file");
    workspace.link("out/two", "/workspace/work/real/file");
    workspace.link("out/dir", "../work/real");
    workspace.link("out/self", ".");
    assert_eq!(names(&workspace, &["out/*", "work/**"]), ["work/real/file"]);
    assert_eq!(names(&workspace, &["out/one"]), ["work/real/file"]);
    // A directory that is a link is entered where it is named.
    assert_eq!(names(&workspace, &["out/dir/*"]), ["work/real/file"]);
    assert_eq!(names(&workspace, &["out/dir/file"]), ["work/real/file"]);
    // By wildcards it is not.
    assert_eq!(names(&workspace, &["out/**/file", "out/d*/file"]), Vec::<String>::new());
    assert_eq!(omitted(&workspace, &["**"]), []);
}

#[test]
fn links_out_dangling_links_and_special_files_are_omitted_and_never_read() {
    in_time(|| {
        let workspace = TestWorkspace::new();
        workspace.link("work/host", workspace.outside().join("secret"));
        workspace.link("work/etc", "/etc");
        workspace.link("work/dangling", "nowhere");
        workspace.link("work/loop", "loop");
        workspace.plant("/tmp/file", "tmp");
        workspace.link("work/tmp", "/tmp/file");
        workspace.specials();
        workspace.link("work/to-fifo", "fifo");
        workspace.plant("work/file", "content");
        let expected = [
            ("work/dangling", CollectOmission::LinkDangles),
            ("work/device", CollectOmission::NotRegular),
            ("work/etc", CollectOmission::LinkLeaves),
            ("work/fifo", CollectOmission::NotRegular),
            ("work/host", CollectOmission::LinkLeaves),
            ("work/loop", CollectOmission::LinkLeaves),
            ("work/socket", CollectOmission::NotRegular),
            ("work/tmp", CollectOmission::LinkLeaves),
            ("work/to-fifo", CollectOmission::NotRegular),
        ]
        .map(|(path, why)| (path.to_owned(), why));
        for patterns in [&["work/*"][..], &["**", "work/**"]] {
            assert_eq!(omitted(&workspace, patterns), expected);
        }
        assert_eq!(names(&workspace, &["work/*"]), ["work/file"]);
        let link = [("work/etc".to_owned(), CollectOmission::LinkLeaves)];
        assert_eq!(omitted(&workspace, &["work/etc/passwd", "work/etc/*"]), link);
        assert_eq!(omitted(&workspace, &["work/fifo"]).len(), 1);
        assert_eq!(names(&workspace, &["work/none"]), Vec::<String>::new());
    });
}

#[test]
fn what_is_collected_has_limits_and_the_real_size() {
    let workspace = TestWorkspace::new();
    for (path, content) in [("out/a", "aaaa"), ("out/b", "bbéb"), ("out/c", "cccc"), ("out/d", "")]
    {
        workspace.plant(path, content);
    }
    let limits = CollectLimits { files_max: 10, file_bytes_max: 10, total_bytes_max: 100 };
    let shown = |limits| {
        let collected = collected(&workspace, &["out/*"], limits);
        let files = collected.files.iter().map(|file| {
            let content = String::from_utf8(file.content.clone()).unwrap();
            assert_eq!(file.truncated, content.len() as u64 != file.size_bytes);
            assert_eq!(file.mime_type, "text/plain; charset=utf-8");
            format!("{}={content}/{}", file.name.display(), file.size_bytes)
        });
        (files.collect::<Vec<_>>(), collected.limits_hit)
    };
    let whole = ["out/a=aaaa/4", "out/b=bbéb/5", "out/c=cccc/4", "out/d=/0"];
    let shown_as =
        |files: &[&str], hit| (files.iter().map(|file| (*file).to_owned()).collect(), hit);
    for (files_max, file_bytes_max, total_bytes_max, files, hit) in [
        (10, 10, 100, &whole[..], false),
        (4, 5, 14, &whole, false),
        (3, 10, 100, &whole[..3], true),
        (10, 3, 100, &["out/a=aaa/4", "out/b=bb/5", "out/c=ccc/4", "out/d=/0"], true),
        (10, 10, 7, &["out/a=aaaa/4", "out/b=bb/5"], true),
        (10, 10, 9, &whole[..2], true),
        (0, 10, 100, &[], true),
    ] {
        let limits = CollectLimits { files_max, file_bytes_max, total_bytes_max };
        assert_eq!(shown(limits), shown_as(files, hit), "{limits:?}");
    }
    assert_eq!(limits.files_max, 10);
}

#[test]
fn many_matches_keep_the_first_in_order() {
    let workspace = TestWorkspace::new();
    for number in 0..300 {
        workspace.plant(&format!("out/{number:03}"), "x");
    }
    for number in 0..50 {
        workspace.link(&format!("work/{number:03}"), format!("../out/{:03}", 299 - number));
    }
    let limits = CollectLimits { files_max: 100, ..CollectLimits::default() };
    let collected = collected(&workspace, &["out/0[0-4]?", "work/*", "out/*"], limits);
    let names: Vec<PathBuf> = collected.files.into_iter().map(|file| file.name).collect();
    let expected = (0..50).chain(250..300).map(|number| PathBuf::from(format!("out/{number:03}")));
    assert!(names.into_iter().eq(expected));
    assert!(collected.limits_hit);
}
