//! Tests of staging trees, copies and links.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{TestWorkspace, word};
use crate::files::{StagedAccess, digest, stage_copy, stage_directory, stage_link};
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

fn stage(
    workspace: &TestWorkspace,
    to: &str,
    access: StagedAccess,
) -> Result<String, crate::files::FilesError> {
    let (source, limits) = (source(workspace), TreeLimits::default());
    stage_directory(&workspace.root(), &source, &workspace.at(to), access, &limits)
        .map(|staged| staged.digest)
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
    let skill = source(&workspace);
    for text in ["/etc/passwd", "../secret", "scripts/../../secret", "/workspace/work"] {
        let link = workspace.outside().join("skill/bad");
        symlink(text, &link).unwrap();
        let limits = TreeLimits::default();
        for to in ["skills/pdf", "skills/new/deep"] {
            let access = StagedAccess::ReadOnly;
            let refused =
                stage_directory(&workspace.root(), &skill, &workspace.at(to), access, &limits);
            assert_eq!(word(refused), "through_link", "{text}");
        }
        fs::remove_file(link).unwrap();
    }
    let small = TreeLimits { entries_max: 3, ..TreeLimits::default() };
    let to = workspace.at("skills/pdf");
    let refused = stage_directory(&workspace.root(), &skill, &to, StagedAccess::Writable, &small);
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
        word(stage_copy(&workspace.root(), &workspace.at(from), &workspace.at(to), &limits))
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
        word(stage_link(&workspace.root(), &workspace.at(at), &workspace.at(target)))
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
