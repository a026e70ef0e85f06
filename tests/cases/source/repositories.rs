//! Repositories that are cloned.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam::case::file::{Availability, load_case};
use cofferdam::case::source::{CommitPlan, PreparedSource, SourceFault, SourcePlan};
use cofferdam_core::values::deadline::Deadline;

use super::scene::{SourceScene, commit, git, names, repository};

/// A repository whose HEAD has a commit before and one after it. Returns HEAD and what comes later.
fn with_a_future(path: &std::path::Path) -> (String, String) {
    repository(path);
    git(path, &["tag", "old"]);
    let head = commit(path, "d/b.txt", "second");
    git(path, &["tag", "-a", "-m", "now", "now"]);
    git(path, &["checkout", "-q", "-b", "later"]);
    let later = commit(path, "solution.txt", "third");
    git(path, &["tag", "solved"]);
    git(path, &["checkout", "-q", "main"]);
    git(path, &["remote", "add", "origin", "https://example.org/r"]);
    git(path, &["update-ref", "refs/remotes/origin/main", &later]);
    fs::write(path.join("a.txt"), "not committed").unwrap();
    (head, later)
}

#[test]
fn a_clone_has_the_history_up_to_head_and_nothing_later() {
    let Some(scene) = SourceScene::new() else { return };
    let path = scene.at("r");
    let (head, later) = with_a_future(&path);
    let prepared = scene.prepare(&SourcePlan::LocalClone(path.clone())).unwrap();
    assert_eq!(prepared.commit(), Some(head.as_str()));
    assert!(prepared.keeps_git() && prepared.frozen().is_some());
    let copy = scene.copy(&prepared, "clone");
    assert_eq!(names(&copy), ["a.txt", "d", "d/b.txt"]);
    assert_eq!(fs::read_to_string(copy.join("a.txt")).unwrap(), "first");
    assert_eq!(git(&copy, &["status", "--porcelain"]), "");
    assert_eq!(git(&copy, &["log", "--all", "--format=%s"]), "second\nfirst");
    assert_eq!(git(&copy, &["tag"]), "now\nold");
    assert_eq!(git(&copy, &["remote"]), "");
    assert_eq!(git(&copy, &["reflog", "--all"]), "");
    assert_eq!(git(&copy, &["fsck", "--unreachable", "--no-reflogs"]), "");
    assert_eq!(git(&copy, &["branch", "--all", "--format=%(refname)"]), "refs/heads/main");
    let objects = git(&copy, &["cat-file", "--batch-all-objects", "--batch-check"]);
    assert!(!objects.contains(&later), "the commit after HEAD is there");
    let again = scene.prepare(&SourcePlan::LocalClone(path)).unwrap();
    assert_eq!(prepared.digest(), again.digest());
}

#[test]
fn a_commit_is_cloned_whole_as_a_copy_or_by_a_directory() {
    let Some(scene) = SourceScene::new() else { return };
    let path = scene.at("r");
    let (head, later) = with_a_future(&path);
    let mut digests = Vec::new();
    for (index, (revision, subdir, is_copy, hash, files)) in [
        (head.as_str(), None, false, &head, &["a.txt", "d", "d/b.txt"][..]),
        (&head[..9], None, true, &head, &["a.txt", "d", "d/b.txt"]),
        ("now", Some("d"), false, &head, &["b.txt"]),
        ("solved", None, false, &later, &["a.txt", "d", "d/b.txt", "solution.txt"]),
    ]
    .into_iter()
    .enumerate()
    {
        let plan = SourceScene::commit(&path, revision, subdir, is_copy);
        let prepared = scene.prepare(&plan).unwrap();
        assert_eq!(prepared.commit(), Some(hash.as_str()), "{revision}");
        let is_whole = subdir.is_none() && !is_copy;
        assert_eq!((prepared.keeps_git(), prepared.frozen().is_some()), (is_whole, is_whole));
        let copy = scene.copy(&prepared, &index.to_string());
        assert_eq!(names(&copy), files, "{revision}");
        assert_eq!(copy.join(".git").exists(), is_whole, "{revision}");
        digests.push(prepared.digest().to_owned());
    }
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 4);
}

#[test]
fn only_an_optional_case_is_skipped_where_its_repository_cannot_be_reached() {
    let Some(scene) = SourceScene::new() else { return };
    let path = scene.at("r");
    repository(&path);
    let nowhere = |repository: &str| {
        SourcePlan::Clone(CommitPlan {
            repository: repository.to_owned(),
            commit: "0".repeat(40),
            subdir: None,
            is_copy: false,
        })
    };
    for (plan, is_unreachable, words) in [
        // Nothing listens there, and its address is not public.
        (nowhere("http://127.0.0.1:9/r"), true, "source: the repository cannot be reached: "),
        (
            nowhere("/no/such/repository"),
            true,
            "source: the repository cannot be reached: '/no/such",
        ),
        (
            SourceScene::commit(&path, "v9", None, false),
            false,
            "source: the repository has no commit 'v9'",
        ),
        (
            SourceScene::commit(&path, "main", Some("none"), false),
            false,
            "source: the repository has no directory 'none'",
        ),
        (SourcePlan::LocalClone(scene.at("cache")), false, "source: '"),
    ] {
        let error = scene.prepare(&plan).unwrap_err();
        assert_eq!(error.code(), "source.failed", "{error}");
        assert_eq!(error.skips(Availability::Optional), is_unreachable, "{error}");
        assert!(!error.skips(Availability::Required), "{error}");
        assert!(error.to_string().starts_with(words), "{error}");
    }
}

#[test]
fn a_clone_without_what_clones_is_refused() {
    let Some(scene) = SourceScene::new() else { return };
    let scratch = scene.at("scratch");
    let mut parts = scene.parts_until(&scratch, Deadline::after(Duration::from_secs(60)));
    parts.clones = None;
    let error = PreparedSource::prepare(&SourcePlan::LocalClone(scene.at("r")), &parts);
    let error = error.unwrap_err();
    assert_eq!(error.code(), "backend.unavailable");
    assert!(matches!(error.fault, SourceFault::NoSandbox(_)), "{error}");
}

#[test]
fn fixtures_are_the_directory_of_the_case_in_their_repository() {
    let Some(scene) = SourceScene::new() else { return };
    let path = scene.at("fixtures");
    repository(&path);
    commit(&path, "fix-add/test_hidden.py", "hidden");
    let case = |subdir: &str| {
        let directory = scene.at("case");
        fs::create_dir_all(&directory).unwrap();
        let repo = path.display();
        let yaml = format!(
            "id: fix-add\ntask: {{prompt: p}}\nmatrix: {{harnesses: [nop], models: [m]}}\n\
             fixtures: {{repo: {repo}, commit: main{subdir}}}\n"
        );
        fs::write(directory.join("case.yaml"), yaml).unwrap();
        load_case(&directory).unwrap().case
    };
    let scratch = scene.at("scratch");
    let parts = scene.parts_until(&scratch, Deadline::after(Duration::from_secs(60)));
    let prepared = PreparedSource::prepare_fixtures(&case(""), &parts).unwrap().unwrap();
    assert_eq!(names(&scene.copy(&prepared, "fixtures")), ["test_hidden.py"]);
    let found = prepared.find_file(&PathBuf::from("test_hidden.py"), None).unwrap();
    assert_eq!(found.path, PathBuf::from("test_hidden.py"));
    let error = PreparedSource::prepare_fixtures(&case(", subdir: other"), &parts).unwrap_err();
    assert_eq!(error.to_string(), "fixtures: the repository has no directory 'other'");
}
