//! Tests of staging trees, copies and links.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{TestWorkspace, staged, word};
use crate::files::{DirectorySource, FilesError, HostEntry, HostRoots, StagedAccess, digest};
use crate::testing::{TENANT, chmod, entry, picture};
use crate::{SourceDir, StopCheck, TreeLimits};

/// A host directory to stage.
fn source(workspace: &TestWorkspace) -> SourceDir {
    let path = workspace.outside().join("skill");
    if path.exists() {
        return SourceDir::open_without_links(&path.canonicalize().unwrap()).unwrap();
    }
    fs::create_dir_all(path.join("scripts/.git")).unwrap();
    fs::write(path.join("SKILL.md"), "skill").unwrap();
    fs::write(path.join("scripts/run.sh"), "run").unwrap();
    fs::write(path.join("scripts/.git/config"), "git").unwrap();
    chmod(&path.join("scripts/run.sh"), 0o6_755);
    symlink("../SKILL.md", path.join("scripts/link")).unwrap();
    nix::unistd::mkfifo(&path.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    SourceDir::open_without_links(&path.canonicalize().unwrap()).unwrap()
}

fn stage(workspace: &TestWorkspace, to: &str, access: StagedAccess) -> Result<String, FilesError> {
    stage_within(workspace, to, access, &TreeLimits::default())
}

fn stage_within(
    workspace: &TestWorkspace,
    to: &str,
    access: StagedAccess,
    limits: &TreeLimits,
) -> Result<String, FilesError> {
    let source = source(workspace);
    let source = DirectorySource::Directory(source.as_fd());
    staged(&workspace.root(), |batch| batch.directory(&workspace.at(to), source, access, limits))
        .map(|digest| digest.digest)
}

#[test]
fn a_staged_tree_replaces_what_was_there_and_has_the_digest_of_its_source() {
    let workspace = TestWorkspace::new();
    workspace.plant("skills/pdf/old/file", "old");
    let staged = stage(&workspace, "skills/pdf", StagedAccess::Writable).unwrap();
    let limits = TreeLimits::default();
    let here = digest(&workspace.root(), &workspace.at("skills/pdf"), &limits, StopCheck::never())
        .unwrap();
    assert_eq!((here.digest, here.files), (staged.clone(), 3));
    let script = entry(&workspace.host("skills/pdf/scripts/run.sh"));
    assert_eq!((script.mode, script.owner), (0o100_755, TENANT));
    assert_eq!(entry(&workspace.host("skills/pdf")).owner, TENANT);
    assert_eq!(workspace.names("skills/pdf"), ["SKILL.md", "scripts"]);
    assert_eq!(workspace.content("skills/pdf/scripts/link"), "skill");
    // Over a file, over a link and over a read-only tree.
    workspace.plant("work/file", "");
    workspace.link("work/link", workspace.outside());
    workspace.read_only("work/tree");
    for to in ["work/file", "work/link", "work/tree", "work/new/deep"] {
        assert_eq!(stage(&workspace, to, StagedAccess::Writable).unwrap(), staged, "{to}");
        assert_eq!(workspace.content(&format!("{to}/SKILL.md")), "skill");
    }
    assert_eq!(workspace.names("work"), ["file", "link", "new", "tree"]);
    assert_eq!(fs::read(workspace.outside().join("secret")).unwrap(), b"secret");
}

#[test]
fn a_read_only_tree_belongs_to_the_service_without_write_permissions() {
    let workspace = TestWorkspace::new();
    let first = stage(&workspace, "skills/pdf", StagedAccess::ReadOnly).unwrap();
    for (path, entry) in picture(&workspace.host("skills/pdf")) {
        assert_eq!(entry.owner.uid, 0, "{path:?}");
        let is_link = entry.mode & 0o170_000 == 0o120_000;
        assert!(is_link || entry.mode & 0o6_222 == 0, "{path:?} {:o}", entry.mode);
    }
    let top = entry(&workspace.host("skills/pdf"));
    assert_eq!((top.mode & 0o7777, top.owner.uid), (0o555, 0));
    assert_eq!(entry(&workspace.host("skills/pdf/scripts/run.sh")).mode & 0o777, 0o555);
    assert_eq!(word(workspace.put("skills/pdf/SKILL.md", "x")), "read_only");
    assert_eq!(word(stage(&workspace, "skills/pdf/inner", StagedAccess::Writable)), "read_only");
    assert_eq!(stage(&workspace, "skills/pdf", StagedAccess::ReadOnly).unwrap(), first);
    assert_eq!(workspace.names("skills"), ["pdf"]);
}

#[test]
fn a_link_that_leaves_the_tree_is_refused_and_nothing_is_changed() {
    let workspace = TestWorkspace::new();
    workspace.plant("skills/pdf/old", "old");
    source(&workspace);
    for text in ["/etc/passwd", "../secret", "scripts/../../secret", "/workspace/work"] {
        let link = workspace.outside().join("skill/bad");
        symlink(text, &link).unwrap();
        for to in ["skills/pdf", "skills/new/deep"] {
            let refused = stage(&workspace, to, StagedAccess::ReadOnly);
            assert_eq!(word(refused), "through_link", "{text}");
        }
        fs::remove_file(link).unwrap();
    }
    let small = TreeLimits { entries_max: 3, ..TreeLimits::default() };
    let refused = stage_within(&workspace, "skills/pdf", StagedAccess::Writable, &small);
    assert_eq!(word(refused), "too_large");
    assert_eq!(
        (workspace.names("skills"), workspace.content("skills/pdf/old")),
        (vec!["pdf".to_owned()], "old".into())
    );
}

#[test]
fn a_copy_is_a_file_or_a_tree_of_its_own() {
    let workspace = TestWorkspace::new();
    let limits = TreeLimits::default();
    let copy = |from: &str, to: &str| {
        let (from, to) = (workspace.at(from), workspace.at(to));
        word(staged(&workspace.root(), |batch| batch.copy(&to, &from, &limits)))
    };
    workspace.plant("work/data/a", "a");
    workspace.link("work/link", "data/a");
    workspace.link("work/out", "/etc/passwd");
    for (from, to, expected) in [
        ("work/data/a", "work/inputs/a", "ok"),
        ("work/link", "work/inputs/b", "ok"),
        ("work/data", "work/inputs/data", "ok"),
        ("work/data", "work/data/inner", "into_itself"),
        ("work/data", "work", "into_itself"),
        ("work/out", "work/inputs/c", "through_link"),
        ("work/none", "work/inputs/c", "not_found"),
        ("work/data/a", "work/data", "not_regular"),
    ] {
        assert_eq!(copy(from, to), expected, "{from} {to}");
    }
    assert_eq!(workspace.names("work/inputs"), ["a", "b", "data"]);
    assert_eq!(workspace.content("work/inputs/data/a"), "a");
    assert!(fs::symlink_metadata(workspace.host("work/inputs/b")).unwrap().is_file());
}

#[test]
fn a_staged_link_is_relative_and_replaces_what_was_there() {
    let workspace = TestWorkspace::shown_at("/home/agent");
    workspace.plant("work/data/a", "a");
    workspace.plant("work/inputs/tree/x", "");
    let link = |at: &str, target: &str| {
        let (at, target) = (workspace.at(at), workspace.at(target));
        word(staged(&workspace.root(), |batch| batch.link(&at, &target)))
    };
    for (at, target, text) in [
        ("work/inputs/a", "work/data/a", "../data/a"),
        ("work/inputs/tree", "work/data", "../data"),
        ("new/deep/x", "work", "../../work"),
        ("x", "work/data/a", "work/data/a"),
        ("/tmp/x", "work/data/a", "/home/agent/work/data/a"),
        ("work/inputs/top", ".", "../.."),
        ("work/data/here", "work/data", "."),
    ] {
        assert_eq!(link(at, target), "ok", "{at}");
        assert_eq!(fs::read_link(workspace.host(at)).unwrap(), Path::new(text), "{at}");
        assert_eq!(entry(&workspace.host(at)).owner, TENANT);
    }
    assert_eq!(workspace.content("/tmp/x"), "a");
    assert_eq!(link("work", "work/data/a"), "into_itself");
    workspace.read_only("skills/pdf");
    assert_eq!(link("skills/pdf/x", "work"), "read_only");
    assert_eq!(workspace.names("work/inputs"), ["a", "top", "tree"]);
}

#[test]
fn a_batch_has_all_its_entries_or_none_and_nothing_else_is_left() {
    let workspace = TestWorkspace::new();
    let limits = TreeLimits::default();
    workspace.plant("work/data/a", "a");
    workspace.plant("work/old", "old");
    workspace.plant("work/tree/x", "x");
    workspace.read_only("skills/pdf");
    // Without times: directories have others than before.
    let files = || {
        let entries = picture(&workspace.host(".")).into_iter();
        let facts = entries.map(|(path, entry)| (path, entry.mode, entry.owner, entry.contents));
        facts.collect::<Vec<_>>()
    };
    let before = files();
    let at = |path: &str| workspace.at(path);
    let refused = staged(&workspace.root(), |batch| {
        batch.file(&at("work/old"), &mut &b"new"[..], 0)?;
        batch.link(&at("work/tree"), &at("work/data"))?;
        batch.copy(&at("new/deep/data"), &at("work/data"), &limits)?;
        batch.metadata(b"{}")?;
        batch.file(&at("skills/pdf/x"), &mut &b""[..], 0)
    });
    assert_eq!(word(refused), "read_only");
    assert_eq!(files(), before);
    // The last entry cannot have its place: a directory has taken it meanwhile.
    let refused = staged(&workspace.root(), |batch| {
        batch.file(&at("work/old"), &mut &b"new"[..], 0)?;
        batch.link(&at("work/tree"), &at("work/data"))?;
        batch.copy(&at("new/deep/data"), &at("work/data"), &limits)?;
        batch.file(&at("work/late"), &mut &b""[..], 0)?;
        fs::create_dir(workspace.host("work/late")).unwrap();
        Ok(())
    });
    assert_eq!(word(refused), "not_regular");
    fs::remove_dir(workspace.host("work/late")).unwrap();
    assert_eq!(files(), before);
    let done = staged(&workspace.root(), |batch| {
        batch.file(&at("work/old"), &mut &b"new"[..], 0o600)?;
        batch.link(&at("work/tree"), &at("work/data"))?;
        batch.metadata(b"[]")
    });
    assert_eq!(word(done), "ok");
    assert_eq!(workspace.names("work"), ["data", "old", "tree"]);
    assert_eq!(
        (workspace.content("work/old"), workspace.content("work/tree/a")),
        ("new".into(), "a".into())
    );
    assert_eq!(workspace.content("metadata.json"), "[]");
}

#[test]
fn a_file_of_the_host_is_found_below_the_roots_and_through_no_link() {
    let workspace = TestWorkspace::new();
    let place = workspace.outside().canonicalize().unwrap();
    let at = |name: &str| place.join(name);
    fs::create_dir_all(at("root/inner")).unwrap();
    fs::create_dir_all(at("rooted")).unwrap();
    for file in ["root/file", "root/inner/file", "rooted/file"] {
        fs::write(at(file), file).unwrap();
    }
    symlink("file", at("root/link")).unwrap();
    symlink("../rooted", at("root/out")).unwrap();
    symlink("inner", at("root/in")).unwrap();
    symlink("root", at("linked")).unwrap();
    nix::unistd::mkfifo(&at("root/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(HostRoots::open(&[at("linked")]).is_err());
    assert!(HostRoots::open(&[at("secret")]).is_err());
    let roots = HostRoots::open(&[at("root/inner"), at("root")]).unwrap();
    let found = |path: &Path| {
        let found = roots.entry(path.to_str().unwrap());
        match &found {
            Ok(HostEntry::File { .. }) => "file",
            Ok(HostEntry::Directory(_)) => "directory",
            Err(_) => word(found),
        }
    };
    for (path, expected) in [
        ("root/file", "file"),
        ("root/./inner//file/", "file"),
        ("root/inner", "directory"),
        ("root", "directory"),
        ("root/none", "not_found"),
        ("root/file/x", "not_found"),
        ("root/fifo", "not_regular"),
        ("root/link", "through_link"),
        ("root/in/file", "through_link"),
        ("root/out/file", "through_link"),
        ("rooted/file", "path_escape"),
        ("linked/file", "path_escape"),
        ("root/../rooted/file", "path_escape"),
        ("root/inner/../file", "path_escape"),
        ("", "path_escape"),
    ] {
        assert_eq!(found(&at(path)), expected, "{path}");
    }
    for path in ["", "root/file", "/", "/root\0"] {
        assert_eq!(word(roots.entry(path)), "path_escape", "{path}");
    }
    assert_eq!(word(HostRoots::default().entry("/etc/passwd")), "path_escape");
    // A root stays the directory that was opened.
    fs::rename(at("root"), at("moved")).unwrap();
    symlink("rooted", at("root")).unwrap();
    let Ok(HostEntry::File { mut file, .. }) = roots.entry(at("root/file").to_str().unwrap())
    else {
        panic!("not found");
    };
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "root/file");
}
