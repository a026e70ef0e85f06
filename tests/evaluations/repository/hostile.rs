//! Repositories that attack the programs that clone them.

use std::fs;

use cofferdam::egress::AllowList;

use super::git_server::TestRepository;
use super::scene::{CloneScene, Wanted, seen};

#[test]
fn a_repository_on_a_private_address_is_denied_unless_it_is_allowed() {
    let Some(scene) =
        CloneScene::with(|settings| settings.egress.private_hosts = AllowList::default())
    else {
        return;
    };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let (made, records) = scene.base_and_egress(&source, &Wanted::default());
    let error = made.unwrap_err();
    assert_eq!(error.code(), "repo.url_denied", "{error}");
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(scene.server.requests(), Vec::<String>::new());
}

#[test]
fn filters_submodules_and_lfs_of_a_repository_do_nothing() {
    let Some(scene) = CloneScene::new() else { return };
    let other = scene.server.repository("other");
    other.commit("evil", "1");
    let repository = scene.server.repository("r");
    repository.git(&[
        "submodule",
        "add",
        "-q",
        &scene.server.path("other").display().to_string(),
        "sub",
    ]);
    repository
        .commit(".gitattributes", "*.bin filter=lfs diff=lfs\n*.x filter=evil\n* text=auto\n");
    repository.commit(".lfsconfig", "[lfs]\n\turl = http://127.0.0.1:1/\n");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    repository.commit("a.bin", pointer);
    let commit = repository.commit("b.x", "plain\n");
    let made = scene.base_of("r", &commit);
    assert_eq!(seen(&made, "cat b.x a.bin; ls -A sub"), format!("plain\n{}", pointer.trim_end()));
    let asked = scene.server.requests();
    assert!(asked.iter().all(|request| request.contains("/r/")), "{asked:?}");
}

#[test]
fn trees_with_names_that_mean_git_are_refused() {
    let Some(scene) = CloneScene::new() else { return };
    for (number, name) in [".git", ".GIT", "git~1", ".git ", "..", "a/b"].into_iter().enumerate() {
        let repository = scene.server.repository(&format!("r{number}"));
        let blob = repository.git_with(&["hash-object", "-w", "--stdin"], b"x");
        let hook = tree(&repository, &[("100755", "post-checkout", &blob)]);
        let root = tree(&repository, &[("40000", name, &hook)]);
        let commit = repository.git(&["commit-tree", "-m", "x", &root]);
        repository.git(&["update-ref", "refs/heads/evil", &commit]);
        for revision in [commit.as_str(), "evil"] {
            for path in [format!("r{number}"), format!("files/r{number}")] {
                let source = scene.commit_of(&scene.server.url(&path), revision);
                let error = scene.base(&source, &Wanted::default()).unwrap_err();
                assert_eq!(error.code(), "repo.clone_failed", "{path} {name:?}: {error}");
            }
        }
        // The same without a fetch, whose check finds it first.
        let path = repository.path().display().to_string();
        let error = scene.base(&scene.commit_of(&path, "evil"), &Wanted::default()).unwrap_err();
        assert_eq!(error.code(), "repo.clone_failed", "{name:?}: {error}");
    }
}

/// A tree as git itself would not write it.
fn tree(repository: &TestRepository, entries: &[(&str, &str, &str)]) -> String {
    let mut bytes = Vec::new();
    for (mode, name, hash) in entries {
        bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        let digit = |index: usize| u8::from_str_radix(&hash[index..index + 2], 16).unwrap();
        bytes.extend((0..hash.len()).step_by(2).map(digit));
    }
    repository.git_with(&["hash-object", "-w", "-t", "tree", "--literally", "--stdin"], &bytes)
}

#[test]
fn links_of_a_repository_lead_nowhere_outside() {
    let Some(scene) = CloneScene::new() else { return };
    let repository = scene.server.repository("r");
    std::os::unix::fs::symlink("/etc", repository.path().join("etc")).unwrap();
    std::os::unix::fs::symlink("../../../..", repository.path().join("up")).unwrap();
    repository.git(&["add", "-A"]);
    let commit = repository.commit("z", "1");
    let made = scene.base_of("r", &commit);
    assert_eq!(seen(&made, "readlink etc up; git status --porcelain"), "/etc\n../../../..");
}

#[test]
fn old_repositories_with_common_faults_are_cloned() {
    let Some(scene) = CloneScene::new() else { return };
    let repository = scene.server.repository("r");
    let root = repository.git(&["rev-parse", "HEAD^{tree}"]);
    let blob = repository.git_with(&["hash-object", "-w", "--stdin"], b"x\n");
    let padded = tree(&repository, &[("100644", "f", &blob), ("040000", "t", &root)]);
    let text =
        format!("tree {padded}\nauthor A<a@b> 1 +051800\ncommitter  <c> 0001 +0000\n\nold\n");
    let args = ["hash-object", "-w", "-t", "commit", "--literally", "--stdin"];
    let commit = repository.git_with(&args, text.as_bytes());
    repository.git(&["update-ref", "refs/heads/old", &commit]);
    assert_eq!(seen(&scene.base_of("r", "old"), "cat f t/README"), "x\nfirst");
}

#[test]
fn a_repository_over_the_limit_is_too_large() {
    let Some(scene) = CloneScene::with(|settings| settings.repository_bytes_max = 4 << 20) else {
        return;
    };
    let repository = scene.server.repository("r");
    let mut noise = vec![0_u8; 12 << 20];
    std::io::Read::read_exact(&mut fs::File::open("/dev/urandom").unwrap(), &mut noise).unwrap();
    fs::write(repository.path().join("noise"), noise).unwrap();
    repository.git(&["add", "noise"]);
    let commit = repository.commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let error = scene.base(&source, &Wanted::default()).unwrap_err();
    assert_eq!((error.code(), error.limit()), ("repo.too_large", Some("disk")), "{error}");
    assert!(error.to_string().contains("disk quota"));
}
