//! Which commit is checked out, and what of its repository is left out.

use cofferdam::evaluation::repository::RepositoryError;

use super::scene::{CloneScene, Wanted, seen};

/// A repository with two commits, a branch, tags and notes on both.
fn history(scene: &CloneScene, name: &str) -> (String, String) {
    let repository = scene.server.repository(name);
    repository.git(&["tag", "light-0"]);
    let base = repository.commit("src/a.txt", "base\n");
    repository.git(&["tag", "-a", "v1", "-m", "annotated"]);
    repository.git(&["branch", "release/1.x"]);
    repository.git(&["notes", "add", "-m", "a note"]);
    let later = repository.commit("src/a.txt", "the solution\n");
    repository.git(&["tag", "v2"]);
    repository.git(&["tag", "-a", "v2a", "-m", "later"]);
    (base, later)
}

#[test]
fn a_hash_its_beginning_a_branch_and_a_tag_name_the_same_commit() {
    let Some(scene) = CloneScene::new() else { return };
    let (base, _) = history(&scene, "r");
    for revision in [base.as_str(), &base[..9], "release/1.x", "v1", "refs/tags/v1"] {
        let made = scene.base_of("r", revision);
        assert_eq!(made.base_commit, base, "{revision}");
        assert_eq!(seen(&made, "cat src/a.txt; git rev-parse HEAD"), format!("base\n{base}"));
    }
}

#[test]
fn the_repository_has_one_branch_its_history_and_the_tags_of_that_history_alone() {
    let Some(scene) = CloneScene::new() else { return };
    let (base, later) = history(&scene, "r");
    let made = scene.base_of("r", &base);
    let refs = seen(&made, "git for-each-ref --format='%(objecttype) %(refname)'");
    assert_eq!(refs, "commit refs/heads/main\ncommit refs/tags/light-0\ncommit refs/tags/v1");
    assert_eq!(seen(&made, "git rev-list --count --all; git describe --tags"), "2\nv1");
    assert_eq!(seen(&made, "git status --porcelain --ignored; git fsck --strict 2>&1"), "");
    let objects = seen(&made, "git cat-file --batch-all-objects --batch-check");
    assert!(!objects.contains(&later) && objects.contains(&base));
    assert!(!seen(&made, "git cat-file --batch-all-objects --batch").contains("the solution"));
    let files = seen(&made, "cd .git; find . -type f | grep -v '^./objects/pack/pack-' | sort");
    assert_eq!(files, "./HEAD\n./config\n./index\n./packed-refs");
    assert_eq!(seen(&made, "git remote; git stash list; git reflog; git notes 2>/dev/null"), "");
    assert_eq!(
        seen(&made, "git config --local --list | sort | head -3"),
        ["core.bare=false", "core.filemode=true", "core.logallrefupdates=true"].join("\n")
    );
}

#[test]
fn a_server_that_refuses_a_single_commit_is_asked_for_all_refs() {
    let Some(scene) = CloneScene::new() else { return };
    let (base, _) = history(&scene, "r");
    let made = scene.base_of("old/r", &base);
    assert_eq!(seen(&made, "cat src/a.txt"), "base");
    assert_eq!(seen(&made, "git for-each-ref refs/tags | wc -l"), "2");
}

#[test]
fn a_server_of_plain_files_is_cloned_by_its_objects() {
    let Some(scene) = CloneScene::new() else { return };
    let (base, later) = history(&scene, "r");
    for revision in ["release/1.x", base.as_str()] {
        let made = scene.base_of("files/r", revision);
        assert_eq!(made.base_commit, base);
        assert_eq!(seen(&made, "cat src/a.txt; git fsck --strict 2>&1"), "base");
    }
    // What comes later is in a pack.
    scene.server.repository_at("r").git(&["repack", "-adq"]);
    assert_eq!(seen(&scene.base_of("files/r", &later), "cat src/a.txt"), "the solution");
}

#[test]
fn a_commit_that_the_repository_does_not_have_is_named() {
    let Some(scene) = CloneScene::new() else { return };
    history(&scene, "r");
    let absent = "0123456789012345678901234567890123456789";
    for revision in [absent, "0123456", "no-such-branch", "v1x"] {
        let source = scene.commit_of(&scene.server.url("r"), revision);
        let error = scene.base(&source, &Wanted::default()).unwrap_err();
        assert_eq!(error, RepositoryError::CommitNotFound { commit: revision.to_owned() });
        assert_eq!(error.code(), "repo.commit_not_found");
    }
}

#[test]
fn a_repository_that_is_not_there_is_a_failed_clone_with_gits_words() {
    let Some(scene) = CloneScene::new() else { return };
    let source = scene.commit_of(&scene.server.url("none"), "main");
    let error = scene.base(&source, &Wanted::default()).unwrap_err();
    assert_eq!((error.code(), error.limit()), ("repo.clone_failed", None));
    assert!(error.to_string().contains("not found"), "{error}");
}

#[test]
fn a_commit_deep_in_the_history_is_found_by_its_hash() {
    let Some(scene) = CloneScene::new() else { return };
    let repository = scene.server.repository("deep");
    let deep = repository.commit("n", "0");
    for number in 1..60 {
        repository.commit("n", &number.to_string());
    }
    let made = scene.base_of("deep", &deep);
    assert_eq!(seen(&made, "cat n; git rev-list --count HEAD"), "02");
}

#[test]
fn the_repository_of_a_directory_of_the_host_is_read_without_its_configuration() {
    let Some(scene) = CloneScene::new() else { return };
    let (base, _) = history(&scene, "local");
    let directory = scene.server.path("local");
    let canary = directory.join("canary");
    let config = format!(
        "\n[core]\n\tfsmonitor = touch {0}\n\tsshCommand = touch {0}\n\thooksPath = /tmp\n[uploadpack]\n\
         \tpackObjectsHook = touch {0}\n[include]\n\tpath = /nonexistent\n[broken\n",
        canary.display()
    );
    let place = directory.join(".git/config");
    let own = std::fs::read_to_string(&place).unwrap();
    std::fs::write(&place, own + &config).unwrap();
    // Everyone may read it, as the sandbox has to.
    for revision in [base.as_str(), "release/1.x", "v1", &base[..8]] {
        let source = scene.commit_of(&directory.display().to_string(), revision);
        let made = scene.base(&source, &Wanted::default()).unwrap().1.base;
        assert_eq!(seen(&made, "cat src/a.txt; git tag | wc -l"), "base\n2");
    }
    assert!(!canary.exists());
    let source = scene.commit_of(&directory.display().to_string(), "nothing");
    let error = scene.base(&source, &Wanted::default()).unwrap_err();
    assert_eq!(error.code(), "repo.commit_not_found");
}

#[test]
fn files_are_the_only_commit() {
    let Some(scene) = CloneScene::new() else { return };
    let files = scene.server.path("files");
    std::fs::create_dir_all(files.join("a/.git")).unwrap();
    std::fs::write(files.join("a/.git/config"), "[core]\n").unwrap();
    std::fs::write(files.join("a/x"), "x\n").unwrap();
    std::fs::write(files.join(".gitignore"), "ignored\n").unwrap();
    std::fs::write(files.join("ignored"), "i\n").unwrap();
    std::os::unix::fs::symlink("a/x", files.join("link")).unwrap();
    let source = scene.files_of(&files);
    let (_, made) = scene.base(&source, &Wanted::default()).unwrap();
    assert!(!made.cached);
    let listed =
        seen(&made.base, "git ls-files; git rev-list --count --all; git status --porcelain");
    assert_eq!(listed, ".gitignore\na/x\nignored\nlink\n1");
    assert_eq!(
        seen(&made.base, "git rev-parse HEAD; find . -name .git"),
        [made.base.base_commit.as_str(), "./.git"].join("\n")
    );
    assert!(scene.base(&source, &Wanted::default()).unwrap().1.cached);
}
