//! Tests of making, removing and moving.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::{TestWorkspace, word};
use crate::TreeLimits;
use crate::files::{delete, make_directory, move_entry};
use crate::testing::{TENANT, chmod, entry, in_memory, in_own_mounts, in_time, picture};

fn mkdir(workspace: &TestWorkspace, path: &str, mode: u32) -> &'static str {
    word(make_directory(&workspace.root(), &workspace.at(path), mode))
}

fn mv(workspace: &TestWorkspace, from: &str, to: &str, overwrite: bool) -> &'static str {
    let limits = TreeLimits::default();
    word(move_entry(
        &workspace.root(),
        (&workspace.at(from), &workspace.at(to)),
        overwrite,
        &limits,
    ))
}

fn rm(workspace: &TestWorkspace, path: &str, recursive: bool) -> &'static str {
    word(delete(&workspace.root(), &workspace.at(path), recursive))
}

#[test]
fn a_directory_is_made_with_those_above_it() {
    let workspace = TestWorkspace::new();
    assert_eq!(mkdir(&workspace, "work/a/b", 0o3_750), "ok");
    let made = entry(&workspace.host("work/a/b"));
    assert_eq!((made.mode, made.owner), (0o40_750, TENANT));
    let above = entry(&workspace.host("work/a"));
    assert_eq!((above.mode, above.owner), (0o40_755, TENANT));
    workspace.plant("work/file", "");
    workspace.link("work/link", "a");
    workspace.read_only("skills/pdf");
    for (path, expected) in [
        ("work/a/b", "exists"),
        (".", "exists"),
        ("work/file", "exists"),
        ("work/link", "exists"),
        ("work/link/x", "through_link"),
        ("work/file/x", "not_regular"),
        ("skills/pdf/x", "read_only"),
    ] {
        assert_eq!(mkdir(&workspace, path, 0), expected, "{path}");
    }
}

#[test]
fn a_removal_follows_no_link_and_keeps_what_is_not_empty() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/dir/file", "");
    workspace.link("work/link", workspace.outside());
    workspace.link("work/dir/out", workspace.outside());
    workspace.specials();
    for (path, recursive, expected) in [
        ("work/dir", false, "not_empty"),
        ("work/link/secret", true, "through_link"),
        ("work/link", true, "ok"),
        ("work/dir/file", false, "ok"),
        ("work/dir", true, "ok"),
        ("work/fifo", false, "ok"),
        ("work/socket", true, "ok"),
        ("work/device", false, "ok"),
        ("work/none", true, "not_found"),
        ("work", false, "ok"),
        (".", true, "path_escape"),
        ("/tmp", true, "path_escape"),
    ] {
        assert_eq!(rm(&workspace, path, recursive), expected, "{path}");
    }
    workspace.assert_outside_untouched();
}

#[test]
fn a_read_only_tree_is_not_removed_with_what_contains_it() {
    let workspace = TestWorkspace::new();
    workspace.read_only("work/a/b/pdf");
    workspace.plant("work/a/before", "");
    let before = picture(&workspace.host("work"));
    for path in ["work/a/b/pdf/inner/file", "work/a/b/pdf", "work/a/b", "work/a"] {
        assert_eq!(rm(&workspace, path, true), "read_only", "{path}");
    }
    assert_eq!(picture(&workspace.host("work")), before);
}

#[test]
fn a_move_replaces_only_what_it_may() {
    let workspace = TestWorkspace::new();
    for path in ["work/file", "work/other", "work/dir/x", "work/full/y"] {
        workspace.plant(path, path);
    }
    fs::create_dir(workspace.host("work/empty")).unwrap();
    workspace.link("work/link", "dir");
    workspace.link("work/dangling", "nowhere");
    for (from, to, overwrite, expected) in [
        ("work/none", "work/x", false, "not_found"),
        ("work/file", "work/other", false, "exists"),
        ("work/file", "work/dangling", false, "exists"),
        ("work/file", "work/link/x", true, "through_link"),
        ("work/link/x", "work/y", true, "through_link"),
        ("work/file", "work/dir", true, "not_regular"),
        ("work/dir", "work/file", true, "not_regular"),
        ("work/dir", "work/full", true, "not_empty"),
        ("work/dir", "work/dir/inner/z", true, "into_itself"),
        ("work/dir", "work/dir", false, "exists"),
        ("work/dir", "work/dir", true, "ok"),
        (".", "work/x", true, "path_escape"),
        ("work/file", "/tmp", true, "path_escape"),
        ("work/file", "work/other", true, "ok"),
        ("work/other", "/tmp/new/deep", false, "ok"),
        ("work/dir", "work/empty", true, "ok"),
        ("work/link", "work/moved", false, "ok"),
    ] {
        assert_eq!(mv(&workspace, from, to, overwrite), expected, "{from} {to}");
    }
    assert_eq!(workspace.content("/tmp/new/deep"), "work/file");
    assert_eq!(workspace.content("work/empty/x"), "work/dir/x");
    assert_eq!(fs::read_link(workspace.host("work/moved")).unwrap(), Path::new("dir"));
    assert_eq!(workspace.names("work"), ["dangling", "empty", "full", "moved"]);
}

#[test]
fn a_failed_move_leaves_no_directories_behind() {
    let workspace = TestWorkspace::new();
    assert_eq!(mv(&workspace, "work/none", "out/a/b", false), "not_found");
    workspace.plant("work/dir/x", "");
    assert_eq!(mv(&workspace, "work/dir", "work/dir/a/b", false), "into_itself");
    assert!(workspace.names("out").is_empty());
    assert_eq!(workspace.names("work/dir"), ["x"]);
}

#[test]
fn two_names_of_one_file_become_one() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/one", "content");
    fs::hard_link(workspace.host("work/one"), workspace.host("work/two")).unwrap();
    assert_eq!(mv(&workspace, "work/one", "work/two", true), "ok");
    assert_eq!(
        (workspace.names("work"), workspace.content("work/two")),
        (vec!["two".to_owned()], "content".into())
    );
}

#[test]
fn a_read_only_tree_moves_by_its_name_and_stays_read_only() {
    let workspace = TestWorkspace::new();
    workspace.read_only("skills/pdf");
    assert_eq!(mv(&workspace, "skills/pdf/inner", "work/x", false), "read_only");
    assert_eq!(mv(&workspace, "skills/pdf/inner/file", "work/x", false), "read_only");
    workspace.plant("work/file", "");
    assert_eq!(mv(&workspace, "work/file", "skills/pdf/x", false), "read_only");
    assert_eq!(mv(&workspace, "work/file", "skills/pdf/inner/file", true), "read_only");
    assert_eq!(mv(&workspace, "skills/pdf", "work/moved", false), "ok");
    assert_eq!(word(workspace.put("work/moved/inner/file", "x")), "read_only");
    assert_eq!(workspace.content("work/moved/inner/file"), "kept");
}

/// An overlay over `root` whose file system cannot rename directories of the lower layer.
fn over_layers(body: impl FnOnce(&TestWorkspace, &dyn Fn(&str)) + Send + 'static) {
    // Removed when the mounts are gone.
    let above = in_memory();
    let path = above.path().to_owned();
    in_own_mounts(move || {
        let directory = tempfile::tempdir_in(&path).unwrap();
        let base = directory.path().to_owned();
        let workspace = TestWorkspace::in_directory(directory, "/workspace");
        let root = base.join("root");
        let remount = |option: &str| {
            for name in ["lower", "upper", "work"] {
                fs::create_dir_all(base.join(name)).unwrap();
            }
            let copied = std::process::Command::new("cp")
                .args(["-a", "--"])
                .args([root.join("."), base.join("lower")])
                .status();
            assert!(copied.unwrap().success());
            let [lower, upper, work] = ["lower", "upper", "work"].map(|name| base.join(name));
            let data = format!(
                "lowerdir={},upperdir={},workdir={},{option}",
                lower.display(),
                upper.display(),
                work.display()
            );
            mount(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(data.as_str()))
                .unwrap();
        };
        body(&workspace, &remount);
    });
}

#[test]
fn a_directory_that_an_overlay_cannot_rename_is_copied_whole() {
    over_layers(|workspace, remount| {
        workspace.plant("work/tree/a/file", "content");
        chmod(&workspace.host("work/tree/a/file"), 0o751);
        workspace.link("work/tree/out", "/etc/passwd");
        workspace.read_only("work/tree/pdf");
        workspace.plant("work/full/x", "");
        let path = workspace.host("work/tree/fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        remount("redirect_dir=off");
        // The descriptor of the test is that of the directory below the mount.
        let root = crate::testing::directory(&workspace.host(".").join(".."));
        let root = crate::files::WorkspaceRoot {
            directory: std::os::fd::AsFd::as_fd(&root),
            rule: &workspace.rule,
            owner: TENANT,
        };
        let limits = TreeLimits::default();
        let put = |path: &str| {
            crate::files::put_file(&root, &workspace.at(path), &mut &b"x"[..], 0).unwrap()
        };
        assert_eq!([put("work/new"), put("work/new"), put("metadata.json")], [true, false, false]);
        fs::remove_file(workspace.host("work/new")).unwrap();
        let before = picture(&workspace.host("work/tree"));
        let mv = |from: &str, to: &str, overwrite, limits: &TreeLimits| {
            word(move_entry(&root, (&workspace.at(from), &workspace.at(to)), overwrite, limits))
        };
        let control = fs::rename(workspace.host("work/tree"), workspace.host("work/renamed"));
        assert_eq!(control.unwrap_err().raw_os_error(), Some(nix::libc::EXDEV), "the control");
        assert_eq!(mv("work/tree", "work/full", true, &limits), "not_empty");
        assert_eq!(mv("work/tree", "work/full", false, &limits), "exists");
        assert_eq!(mv("work/tree", "work/tree/x", false, &limits), "into_itself");
        let small = TreeLimits { bytes_max: 3, ..limits };
        assert_eq!(mv("work/tree", "out/moved", false, &small), "too_large");
        assert_eq!(picture(&workspace.host("work/tree")), before);
        assert!(workspace.names("out").is_empty());
        assert_eq!(mv("work/tree", "out/new/moved", false, &limits), "ok");
        assert_eq!(picture(&workspace.host("out/new/moved")), before);
        assert_eq!(workspace.names("work"), ["full"]);
        let refused =
            crate::files::put_file(&root, &workspace.at("out/new/moved/pdf/x"), &mut &b""[..], 0);
        assert_eq!(word(refused), "read_only");
    });
}

#[test]
fn a_path_of_a_program_cannot_hang_a_change() {
    in_time(|| {
        let workspace = TestWorkspace::new();
        for name in workspace.specials() {
            let below = format!("{name}/x");
            assert_eq!(mkdir(&workspace, &below, 0), "not_regular");
            assert_eq!(mkdir(&workspace, name, 0), "exists");
            assert_eq!(rm(&workspace, &below, true), "not_regular");
            assert_eq!(mv(&workspace, name, "work/moved", false), "ok");
            assert_eq!(mv(&workspace, "work/moved", name, false), "ok");
        }
        symlink("x", workspace.host("work/link")).unwrap();
        assert_eq!(rm(&workspace, "work/link", false), "ok");
    });
}
