//! Directories that are copied.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use cofferdam::case::file::Availability;
use cofferdam::case::source::{FoundFile, PreparedSource, SourcePlan};
use cofferdam_core::values::deadline::Deadline;

use super::scene::{SourceScene, names};

#[test]
fn a_copy_is_the_directory_at_one_moment_without_what_no_copy_has() {
    let Some(scene) = SourceScene::new() else { return };
    let source = scene.at("src");
    for path in ["a", "d/b", ".git/x", "d/__pycache__/x", "d/x.pyc", ".venv/x", "node_modules/x"] {
        fs::create_dir_all(source.join(path).parent().unwrap()).unwrap();
        fs::write(source.join(path), path).unwrap();
    }
    fs::set_permissions(source.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("../a", source.join("d/link")).unwrap();
    symlink("/etc/passwd", source.join("out")).unwrap();
    let plan = SourcePlan::Copy(source.clone());
    let prepared = scene.prepare(&plan).unwrap();
    let same = scene.prepare(&plan).unwrap();
    fs::write(source.join("d/b"), "changed").unwrap();
    let changed = scene.prepare(&plan).unwrap();
    for (index, each) in [&prepared, &same].into_iter().enumerate() {
        let copy = scene.copy(each, &index.to_string());
        assert_eq!(names(&copy), ["a", "d", "d/b", "d/link", "out"]);
        assert!(!copy.join(".git").exists());
        assert_eq!(fs::read_to_string(copy.join("d/b")).unwrap(), "d/b");
    }
    assert_eq!(prepared.digest(), same.digest());
    assert_ne!(prepared.digest(), changed.digest());
    assert!(!prepared.keeps_git() && prepared.frozen().is_none() && prepared.commit().is_none());
    let found = Some(FoundFile { path: "a".into(), mode: 0o750 });
    for (path, wanted) in [
        ("a", found.clone()),
        ("d/link", found),
        ("d", None),
        ("none", None),
        ("out", None),
        ("../src/a", None),
    ] {
        assert_eq!(prepared.find_file(Path::new(path), None), wanted, "{path}");
    }
    drop((prepared, same, changed));
    assert_eq!(fs::read_dir(scene.at("scratch")).unwrap().count(), 0, "copies are removed");
}

#[test]
fn without_a_source_the_sandbox_is_empty() {
    let Some(scene) = SourceScene::new() else { return };
    let prepared = scene.prepare(&SourcePlan::Nothing).unwrap();
    assert!(names(&scene.copy(&prepared, "empty")).is_empty());
    assert_eq!(prepared.digest(), scene.prepare(&SourcePlan::Nothing).unwrap().digest());
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_says_why() {
    let Some(scene) = SourceScene::new() else { return };
    let missing = scene.prepare(&SourcePlan::Copy(scene.at("none"))).unwrap_err();
    assert_eq!(missing.code(), "source.failed");
    assert!(missing.to_string().starts_with("source: "), "{missing}");
    assert!(!missing.skips(Availability::Optional));
    let (plan, scratch) = (SourcePlan::Copy(scene.at("cache")), scene.at("scratch"));
    fs::write(scene.at("cache/file"), "").unwrap();
    let parts = scene.parts_until(&scratch, Deadline::after(Duration::ZERO));
    let late = PreparedSource::prepare(&plan, &parts).unwrap_err();
    assert_eq!(
        (late.code(), late.to_string().as_str()),
        ("source.timed_out", "source: it took too long")
    );
    assert_eq!(fs::read_dir(scratch).unwrap().count(), 0);
}
