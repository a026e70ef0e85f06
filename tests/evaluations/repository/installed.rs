//! What install does, and what it may not leave.

use std::time::Duration;

use cofferdam::evaluation::repository::RepositoryError;
use cofferdam_core::NetworkObject;

use super::scene::{CloneScene, Wanted, seen};

#[test]
fn what_is_installed_is_found_by_name_and_written_below_deps() {
    let Some(scene) = CloneScene::new() else { return };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let install = Wanted::installing(&[
        "mkdir -p /deps/bin; printf '#!/bin/sh\\necho mine\\n' > /deps/bin/mine; chmod +x /deps/bin/mine",
        "test $A = 1 && pwd > /deps/where; echo $HOME > $HOME/kept; echo gone > /tmp/gone",
        "python3 -c 'import sys; print(sys.prefix)' > /deps/prefix; echo built > build.txt",
    ]);
    let (_, made) = scene.base(&source, &install).unwrap();
    let script =
        "mine; cat /deps/where /deps/prefix $HOME/kept build.txt; ls /tmp; git status --porcelain";
    let wanted = "mine\n/workspace\n/deps/venv\n/tmp/home\nbuilt\nhome\n?? build.txt";
    assert_eq!(seen(&made.base, script), wanted);
    let venv = "python -c 'import sys; print(sys.prefix, sys.base_prefix)'; command -v python; command -v pip";
    assert_eq!(
        seen(&made.base, venv),
        "/deps/venv /usr\n/deps/venv/bin/python\n/deps/venv/bin/pip"
    );
    assert!(scene.base(&source, &install).unwrap().1.cached);
}

#[test]
fn git_is_put_back_after_install() {
    let Some(scene) = CloneScene::new() else { return };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let install = Wanted::installing(&[
        "git config user.name x; git config user.email x@example.org",
        "echo 2 > a; git commit -qam later; git stash list; git tag later; git remote add o /x; \
         git notes add -m n; mkdir -p .git/hooks; echo 'touch /tmp/h' > .git/hooks/post-checkout; \
         git config core.fsmonitor 'touch /tmp/f'; echo /mirror > .git/objects/info/alternates",
    ]);
    let (_, made) = scene.base(&source, &install).unwrap();
    let script = "git rev-parse HEAD; git for-each-ref --format='%(refname)'; git remote; \
                  cat a; git reflog; git config --local user.name || true; \
                  find .git -type f | grep -v objects | sort";
    let wanted = format!(
        "{commit}\nrefs/heads/main\n2\n.git/HEAD\n.git/config\n.git/index\n.git/packed-refs"
    );
    assert_eq!(seen(&made.base, script), wanted);
    assert_eq!(
        seen(&made.base, "git cat-file --batch-all-objects --batch | grep -c later || true"),
        "0"
    );
    for replaced in ["rm -rf .git; ln -s /deps .git", "rm -rf .git; echo gitdir: /deps > .git"] {
        let (_, made) = scene.base(&source, &Wanted::installing(&[replaced])).unwrap();
        assert_eq!(seen(&made.base, "git rev-parse HEAD; git status --porcelain"), commit);
    }
}

#[test]
fn an_install_that_fails_names_its_first_command_runs_the_others_if_it_may_and_is_not_kept() {
    let Some(scene) = CloneScene::new() else { return };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let failing = Wanted::installing(&[
        "echo 1 > /deps/one",
        "echo what >&2; exit 7",
        "echo 2 > /deps/two",
        "exit 8",
    ]);
    let error = RepositoryError::InstallFailed {
        command: "echo what >&2; exit 7".to_owned(),
        exit_code: Some(7),
        tail: "what".to_owned(),
        limit: None,
    };
    assert_eq!(scene.base(&source, &failing).unwrap_err(), error);
    let going_on = Wanted { goes_on: true, ..failing };
    for _ in 0..2 {
        let (_, made) = scene.base(&source, &going_on).unwrap();
        assert!(!made.cached);
        assert_eq!(made.base.install_failure, Some(error.clone()));
        assert_eq!(
            seen(&made.base, "cat /deps/*o*; git rev-parse HEAD"),
            format!("1\n2\n{commit}")
        );
    }
}

#[test]
fn an_install_that_hits_a_limit_names_it() {
    let Some(scene) =
        CloneScene::with(|settings| settings.install_timeout = Duration::from_secs(2))
    else {
        return;
    };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    for (command, limit) in
        [("sleep 600", "wall_time"), ("head -c 100000000 /dev/zero > /deps/big", "disk")]
    {
        let error = scene.base(&source, &Wanted::installing(&[command])).unwrap_err();
        assert_eq!((error.code(), error.limit()), ("install.failed", Some(limit)), "{error:?}");
    }
    let cancelled = Wanted::installing(&["sleep 600"]);
    cancelled.cancel.cancel();
    assert_eq!(scene.base(&source, &cancelled).unwrap_err(), RepositoryError::Cancelled);
}

#[test]
fn install_reaches_its_hosts_and_no_other() {
    let Some(scene) = CloneScene::with(|_| ()) else { return };
    let allowed = scene.server.address();
    drop(scene);
    let Some(scene) = CloneScene::with(|settings| {
        settings.install_network = NetworkObject::of_hosts(vec![allowed]);
    }) else {
        return;
    };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let other = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.2:1/\")' 2>&1";
    let wanted = Wanted::installing(&[other]);
    let (made, records) = scene.base_and_egress(&source, &wanted);
    let error = made.unwrap_err();
    assert!(error.to_string().contains("exited with 1"), "{error}");
    let steps: Vec<_> = records.iter().filter_map(|record| record.step.clone()).collect();
    assert!(steps.contains(&"cloning_repo".to_owned()), "{records:?}");
    assert!(steps.contains(&"installing_deps".to_owned()), "{records:?}");
}
