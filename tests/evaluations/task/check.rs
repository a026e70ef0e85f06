//! `cofferdam task check`: its findings, their places and the exit codes.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::tasks::{CLEAN, check, directory, task, write};

/// File, line and level of each finding.
fn places(findings: &[Value]) -> Vec<(String, Option<u64>, String)> {
    let each = findings.iter().map(|finding| {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        (text("file"), finding["line"].as_u64(), text("level"))
    });
    each.collect()
}

#[test]
fn a_clean_task_exits_0_and_prints_no_finding() {
    let clean = directory(&CLEAN);
    assert_eq!(check(clean.path()), (0, Vec::new()));
    let output = task(&["check", clean.path().to_str().unwrap()]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
}

#[test]
fn each_finding_has_its_file_its_line_and_its_level() {
    let yaml = "repo: https://example.com/r.git\nbase_commit: main\nextra: 1\ninstall:\n  - make\n  - pip install pytest\n";
    for (name, contents, place) in [
        ("workspace.yaml", "version: v1\n", ("workspace.yaml", None, "error")),
        ("workspace.yaml", "", ("workspace.yaml", None, "error")),
        ("workspace.yaml", "repo: a: b\n", ("workspace.yaml", Some(1), "error")),
        ("workspace.yaml", "repo: ssh://x/y\nversion: v1\n", ("workspace.yaml", Some(1), "error")),
        ("tests/fail_to_pass_1.sh", "a\nb\r\n", ("tests/fail_to_pass_1.sh", Some(2), "error")),
        (
            "solution.patch",
            "diff --git a/conftest.py b/conftest.py\n--- a/conftest.py\n+++ b/conftest.py\n",
            ("solution.patch", None, "warning"),
        ),
        (
            "solution.patch",
            "diff --git a/.git/config b/.git/config\n--- a/.git/config\n+++ b/.git/config\n",
            ("solution.patch", None, "error"),
        ),
    ] {
        let task = directory(&CLEAN);
        write(task.path(), &[(name, contents)]);
        let (code, findings) = check(task.path());
        let (file, line, level) = place;
        assert_eq!(code, 1, "{contents}");
        assert!(
            places(&findings).contains(&(file.to_owned(), line, level.to_owned())),
            "{contents}: {findings:?}"
        );
    }
    let task = directory(&CLEAN);
    write(task.path(), &[("workspace.yaml", yaml)]);
    let (code, findings) = check(task.path());
    assert_eq!(code, 1);
    let warnings = |line| ("workspace.yaml".to_owned(), Some(line), "warning".to_owned());
    assert_eq!(places(&findings), [warnings(3), warnings(2), warnings(6)]);
}

#[test]
fn missing_files_and_tests_are_findings_by_their_codes() {
    let task = directory(&[("workspace.yaml", CLEAN[0].1)]);
    let (code, findings) = check(task.path());
    assert_eq!(code, 1);
    assert_eq!(
        findings,
        [
            json!({"file": "prompt.md", "line": null, "level": "error", "message": "task.invalid: it is missing"}),
            json!({"file": null, "line": null, "level": "error", "message": "tests.none: the task has no tests"}),
        ]
    );
    // A list and checks.txt are tests too.
    write(task.path(), &[("prompt.md", "x"), ("checks.txt", "# no\n\ntrue\n")]);
    assert_eq!(check(task.path()).0, 0);
}

#[test]
fn what_cannot_be_read_exits_2() {
    let place = directory(&[("text", "no archive")]);
    for name in ["absent", "text"] {
        let output = task(&["check", place.path().join(name).to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        assert!(String::from_utf8(output.stderr).unwrap().contains(name));
    }
    assert_eq!(task(&["check"]).status.code(), Some(2));
}

#[test]
fn a_link_in_the_tests_is_not_followed() {
    let task = directory(&CLEAN);
    symlink("/etc/passwd", task.path().join("tests/data")).unwrap();
    let (code, findings) = check(task.path());
    assert_eq!((code, findings[0]["file"].as_str()), (1, Some("tests/data")));
    fs::remove_file(task.path().join("prompt.md")).unwrap();
    symlink("/etc/passwd", task.path().join("prompt.md")).unwrap();
    assert_eq!(check(task.path()).1[1]["file"], "prompt.md");
}
