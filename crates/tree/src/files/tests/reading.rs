//! Tests of reading, listing and digests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{TestWorkspace, word};
use crate::files::{EntryType, ListRange, digest, get, list, load_metadata, save_metadata, stat};
use crate::testing::{chmod, in_time, make_deep};
use crate::{StopCheck, TreeLimits};

#[test]
fn a_link_that_stays_inside_is_followed_as_in_the_sandbox() {
    for shown in ["/workspace", "/home/agent/ws"] {
        let workspace = TestWorkspace::shown_at(shown);
        workspace.plant("work/deep/file", "content");
        workspace.plant("/tmp/home/other", "other");
        let shown_file = format!("{shown}/work/deep/file");
        for (name, text, expected) in [
            ("work/relative", "deep/file", "content"),
            ("work/dotted", "./deep/../deep//file", "content"),
            ("work/absolute", "/workspace/work/deep/file", "content"),
            ("work/shown", shown_file.as_str(), "content"),
            ("work/chain", "relative", "content"),
            ("work/dir", "deep", ""),
            ("work/deep/here", ".", ""),
            ("work/up", "deep/..", ""),
            ("work/tmp", "/tmp/home/other", "other"),
            ("/tmp/back", shown_file.as_str(), "content"),
        ] {
            workspace.link(name, text);
            if !expected.is_empty() {
                assert_eq!(workspace.content(name), expected, "{shown} {name}");
            }
        }
        for path in
            ["dir/file", "deep/here/file", "deep/here/here/file", "up/deep/file", "up/up/dir/file"]
        {
            assert_eq!(workspace.content(&format!("work/{path}")), "content", "{path}");
        }
        let range = ListRange { depth: 1, entries_max: 9, after: None };
        for (path, top) in
            [("work/deep/here", "work/deep"), ("work/up", "work"), ("work/up/up", "work")]
        {
            let page = list(&workspace.root(), &workspace.at(path), range).unwrap();
            let parent = page.entries[0].location.shown();
            assert_eq!(parent.parent().unwrap(), Path::new(top), "{path}");
        }
        let found = get(&workspace.root(), &workspace.at("work/dir/file")).unwrap();
        assert_eq!(found.location.shown(), Path::new("work/deep/file"));
    }
}

#[test]
fn a_relative_link_can_pass_above_the_workspace_and_come_back() {
    let workspace = TestWorkspace::new();
    workspace.plant("/tmp/file", "tmp");
    workspace.plant("work/file", "work");
    workspace.link("work/up", "../../tmp/file");
    workspace.link("/tmp/over", "../workspace/work/file");
    assert_eq!(workspace.content("work/up"), "tmp");
    assert_eq!(workspace.content("/tmp/over"), "work");
}

#[test]
fn a_link_that_leads_out_is_refused_and_nothing_outside_is_read() {
    let workspace = TestWorkspace::new();
    workspace.link("work/loop", "loop");
    workspace.link("work/ping", "pong");
    workspace.link("work/pong", "ping");
    for (number, text) in [
        "/etc/passwd",
        "../../etc/passwd",
        "../../../outside/secret",
        "..//..//..//",
        "/",
        "../..",
        "/proc/self/root/etc/passwd",
        "/workspacex",
        "../../workspace/../etc/passwd",
        "/tmp/../etc/passwd",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("work/link{number}");
        workspace.link(&name, text);
        assert_eq!(word(get(&workspace.root(), &workspace.at(&name))), "through_link", "{text}");
        let below = format!("{name}/passwd");
        assert_eq!(word(get(&workspace.root(), &workspace.at(&below))), "through_link", "{text}");
        assert_eq!(word(stat(&workspace.root(), &workspace.at(&below))), "through_link", "{text}");
    }
    workspace.link("work/host", workspace.outside());
    for name in ["work/host", "work/host/secret", "work/loop", "work/ping", "work/loop/x"] {
        assert_eq!(word(get(&workspace.root(), &workspace.at(name))), "through_link", "{name}");
    }
    workspace.link("work/dangling", "nowhere/file");
    assert_eq!(word(get(&workspace.root(), &workspace.at("work/dangling"))), "not_found");
}

#[test]
fn many_links_end_at_a_bound() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/file", "content");
    let long = "x/../".repeat(600);
    fs::create_dir(workspace.host("work/x")).unwrap();
    for number in 0..50 {
        let next = |letter: &str| match number {
            0 => "file".to_owned(),
            _ => format!("{letter}{}", number - 1),
        };
        workspace.link(&format!("work/l{number}"), next("l"));
        workspace.link(&format!("work/m{number}"), format!("{long}{}", next("m")));
    }
    assert_eq!(workspace.content("work/l39"), "content");
    assert_eq!(word(get(&workspace.root(), &workspace.at("work/l40"))), "through_link");
    assert_eq!(workspace.content("work/m0"), "content");
    assert_eq!(word(get(&workspace.root(), &workspace.at("work/m39"))), "through_link");
}

#[test]
fn special_files_are_answered_at_once_and_never_opened() {
    in_time(|| {
        let workspace = TestWorkspace::new();
        for name in workspace.specials() {
            assert_eq!(word(get(&workspace.root(), &workspace.at(name))), "not_regular", "{name}");
            let info = stat(&workspace.root(), &workspace.at(name)).unwrap();
            assert_eq!((info.entry_type, info.bytes), (EntryType::Other, 0), "{name}");
        }
        assert_eq!(word(get(&workspace.root(), &workspace.at("work"))), "not_regular");
        assert_eq!(word(get(&workspace.root(), &workspace.at("absent"))), "not_found");
        assert_eq!(word(get(&workspace.root(), &workspace.at("metadata.json/x"))), "not_found");
    });
}

#[test]
fn a_status_is_that_of_the_entry_itself() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/file", "12345");
    chmod(&workspace.host("work/file"), 0o4_751);
    workspace.link("work/link", "nowhere");
    let file = stat(&workspace.root(), &workspace.at("work/file")).unwrap();
    assert_eq!(
        (file.entry_type, file.bytes, file.mode_text()),
        (EntryType::File, 5, "4751".into())
    );
    let modified = fs::metadata(workspace.host("work/file")).unwrap().modified().unwrap();
    assert_eq!(file.modified, modified);
    let link = stat(&workspace.root(), &workspace.at("work/link")).unwrap();
    assert_eq!((link.entry_type, link.bytes), (EntryType::Link, 7));
    assert_eq!(link.target.unwrap(), "nowhere");
    let top = stat(&workspace.root(), &workspace.at(".")).unwrap();
    assert_eq!((top.entry_type, top.mode_text()), (EntryType::Directory, "0755".into()));
}

#[test]
fn a_tag_changes_with_contents_of_the_same_size_and_time() {
    let workspace = TestWorkspace::new();
    let tag = |content: &str| {
        workspace.plant("work/file", content);
        let file = fs::File::options().write(true).open(workspace.host("work/file")).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        get(&workspace.root(), &workspace.at("work/file")).unwrap().tag
    };
    let one = tag("one");
    assert_ne!(one, tag("two"));
    assert_eq!(one, tag("one"));
    let large = "x".repeat(2 << 20);
    assert_ne!(tag(&large), tag(&large.replace('x', "y")));
}

fn listed(
    workspace: &TestWorkspace,
    path: &str,
    range: ListRange<'_>,
) -> (Vec<String>, Option<Vec<u8>>) {
    let page = list(&workspace.root(), &workspace.at(path), range).unwrap();
    let names = page.entries.iter().map(|info| info.location.shown().display().to_string());
    (names.collect(), page.next)
}

#[test]
fn a_list_is_sorted_by_path_in_pages_that_meet() {
    let workspace = TestWorkspace::new();
    for path in ["work/a/b/c", "work/a/d", "work/a-", "work/a0", "work/z"] {
        workspace.plant(path, "");
    }
    workspace.link("work/link", "a");
    let whole =
        ["a", "a-", "a/b", "a/b/c", "a/d", "a0", "link", "z"].map(|name| format!("work/{name}"));
    let all = ListRange { depth: 9, entries_max: 100, after: None };
    assert_eq!(listed(&workspace, "work", all), (whole.to_vec(), None));
    let one = ListRange { depth: 1, ..all };
    assert_eq!(listed(&workspace, "work", one).0.len(), 5);
    assert_eq!(listed(&workspace, "work", ListRange { depth: 0, ..all }).0.len(), 5);
    let mut paged = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let range = ListRange { entries_max: 3, after: after.as_deref(), ..all };
        let (names, next) = listed(&workspace, "work", range);
        paged.extend(names);
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, whole);
    assert_eq!(listed(&workspace, "work/link", one).0, ["work/a/b", "work/a/d"]);
    assert_eq!(word(list(&workspace.root(), &workspace.at("work/z"), one)), "not_regular");
    assert_eq!(word(list(&workspace.root(), &workspace.at("nowhere"), one)), "not_found");
}

#[test]
fn a_tree_20000_levels_deep_is_listed_digested_and_removed() {
    let workspace = TestWorkspace::new();
    make_deep(&workspace.host("work"), 20_000);
    let range = ListRange { depth: usize::MAX, entries_max: 1_000, after: None };
    let (names, next) = listed(&workspace, "work", range);
    assert_eq!(names.len(), 1_000);
    let after = next.unwrap();
    let (more, _) = listed(&workspace, "work", ListRange { after: Some(&after), ..range });
    assert_eq!(more.first().unwrap().len(), "work".len() + 2 * 1_001);
    let limits = TreeLimits::default();
    let all =
        digest(&workspace.root(), &workspace.at("work"), &limits, StopCheck::never()).unwrap();
    assert_eq!(all.files, 1);
    crate::files::delete(&workspace.root(), &workspace.at("work/d"), true).unwrap();
    assert!(workspace.names("work").is_empty());
}

#[test]
fn a_digest_covers_paths_and_contents_of_regular_files() {
    let workspace = TestWorkspace::new();
    let limits = TreeLimits::default();
    let digested = |path: &str| {
        digest(&workspace.root(), &workspace.at(path), &limits, StopCheck::never()).unwrap()
    };
    workspace.plant("work/tree/a/b/x.txt", "one");
    workspace.plant("work/tree/a/c.txt", "two");
    let expected = "d5eed389030d3cf3ca8173debfe3cf5ff3d1b861c1c6a7367b907e082b67f243";
    let found = digested("work/tree");
    assert_eq!((found.digest.as_str(), found.files, found.bytes), (expected, 2, 6));
    workspace.link("work/tree/link", "a/c.txt");
    workspace.link("work/tree/out", "/etc/passwd");
    fs::create_dir(workspace.host("work/tree/empty")).unwrap();
    nix::unistd::mkfifo(&workspace.host("work/tree/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(digested("work/tree"), found);
    workspace.plant("work/tree/a/c.txt", "changed");
    let changed = "3be5399eb3717c998805318c9ce50203011ddc7296127e0c7ab1c32552a62b7a";
    assert_eq!(digested("work/tree").digest, changed);
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(digested("out").digest, nothing);
}

#[test]
fn a_digest_of_a_huge_sparse_file_ends_at_its_limit() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/sparse", "");
    let file = fs::File::options().write(true).open(workspace.host("work/sparse")).unwrap();
    file.set_len(1 << 50).unwrap();
    let limits = TreeLimits { bytes_max: 1 << 20, ..TreeLimits::default() };
    let refused = digest(&workspace.root(), &workspace.at("work"), &limits, StopCheck::never());
    assert_eq!(word(refused), "too_large");
    let limits = TreeLimits { bytes_max: u64::MAX, ..limits };
    let stopped = digest(&workspace.root(), &workspace.at("work"), &limits, StopCheck(&|| true));
    assert_eq!(word(stopped), "stopped");
}

#[test]
fn metadata_that_programs_replaced_counts_as_absent() {
    in_time(|| {
        let workspace = TestWorkspace::new();
        let path = workspace.host("metadata.json");
        assert_eq!(load_metadata(&workspace.root()).unwrap().unwrap(), b"{}");
        let replace = |make: &dyn Fn(&Path)| {
            fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).unwrap();
            make(&path);
            load_metadata(&workspace.root()).unwrap()
        };
        let long = vec![b' '; (1 << 20) + 1];
        assert_eq!(
            replace(&|path| symlink(workspace.outside().join("secret"), path).unwrap()),
            None
        );
        assert_eq!(replace(&|path| fs::write(path, &long).unwrap()), None);
        assert_eq!(replace(&|path| fs::write(path, &long[1..]).unwrap()).unwrap().len(), 1 << 20);
        let fifo = |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(replace(&fifo), None);
        save_metadata(&workspace.root(), b"[1]").unwrap();
        assert_eq!(load_metadata(&workspace.root()).unwrap().unwrap(), b"[1]");
        assert_eq!(replace(&|path| fs::create_dir_all(path.join("inner")).unwrap()), None);
        save_metadata(&workspace.root(), b"[2]").unwrap();
        let saved = crate::testing::entry(&path);
        assert_eq!((saved.contents.as_slice(), saved.mode), (&b"[2]"[..], 0o100_600));
        assert_eq!(saved.owner, crate::testing::TENANT);
        assert_eq!(workspace.names("."), ["metadata.json", "out", "runs", "skills", "work"]);
        fs::remove_file(&path).unwrap();
        assert_eq!(load_metadata(&workspace.root()).unwrap(), None);
        workspace.assert_outside_untouched();
    });
}
