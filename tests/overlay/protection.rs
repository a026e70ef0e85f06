//! Paths that a command cannot change, and that are never committed.

use crate::support::{TrialPlace, is_privileged};

const REPOSITORY: [(&str, &str); 6] = [
    (".git/hooks/pre-commit", "old"),
    (".git/config", "old"),
    (".git/info/exclude", "old"),
    (".git/modules/a/b/config", "old"),
    (".git/modules/a/b/hooks/x", "old"),
    (".git/index", "old"),
];

#[test]
fn what_git_runs_is_read_only_where_it_exists() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&REPOSITORY);
    let script = "for f in .git/hooks/pre-commit .git/hooks/new .git/config .git/info/exclude \
        .git/modules/a/b/config .git/modules/a/b/hooks/x; do echo x 2>/dev/null >$f && echo wrote $f; done
        rm -rf .git/hooks 2>/dev/null; mv .git/config c 2>/dev/null; echo new >.git/index";
    let done = here.sh("--commit", script).exits(0).changes(&["M .git/index"]);
    assert_eq!(done.stdout(), "");
    assert_eq!(here.read(".git/index"), "new\n");
    assert_eq!(here.read(".git/hooks/pre-commit"), "old");
}

#[test]
fn what_git_runs_is_never_committed() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "x")]);
    let script = "mkdir -p .git/hooks sub/.git/hooks; echo x >.git/hooks/a; echo x >.git/config
        echo x >.git/index; echo x >sub/.git/hooks/a; mkdir other; echo gitdir: /tmp >other/.git";
    let done = here.sh("--commit", script).exits(0);
    let lines = done.stderr();
    assert!(lines.lines().any(|line| line == "A .git/config"), "{lines}");
    done.says("not committed: .git/config: it is protected")
        .says("not committed: other/.git: it is protected");
    for (path, is_there) in [
        (".git/index", true),
        (".git/hooks", false),
        (".git/config", false),
        ("sub/.git", true),
        ("sub/.git/hooks", false),
        ("other/.git", false),
    ] {
        assert_eq!(here.has(path), is_there, "{path}");
    }
}

#[test]
fn a_repository_that_is_moved_away_keeps_what_git_runs() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&REPOSITORY);
    let script = "mv .git away && mkdir -p .git/hooks && echo x >.git/hooks/pre-commit; true";
    here.sh("--commit", script).exits(0);
    assert_eq!(here.read(".git/hooks/pre-commit"), "old");
    assert_eq!(here.read(".git/config"), "old");
}

#[test]
fn a_git_file_stays() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[(".git", "gitdir: ../real")]);
    let script = "rm -f .git 2>/dev/null; echo gitdir: /tmp/x 2>/dev/null >.git; true";
    here.sh("--commit", script).exits(0);
    assert_eq!(here.read(".git"), "gitdir: ../real");
}

#[test]
fn protection_is_added_and_lifted() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("keys/a", "old"), ("x.lock", "old"), (".git/config", "old")]);
    let script = "echo new 2>/dev/null >keys/a; echo new 2>/dev/null >x.lock; echo new >y.lock
        echo new 2>/dev/null >.git/config; mkdir .git/hooks; echo new >.git/hooks/h";
    here.sh("--commit --protect keys --protect *.lock --unprotect .git/config", script).exits(0);
    assert_eq!((here.read("keys/a"), here.read("x.lock")), ("old".to_owned(), "old".to_owned()));
    assert_eq!(here.read(".git/config"), "new\n");
    assert!(!here.has("y.lock") && !here.has(".git/hooks"));
    here.sh("--commit --unprotect .git/hooks", script).exits(0);
    assert_eq!(here.read(".git/hooks/h"), "new\n");
}
