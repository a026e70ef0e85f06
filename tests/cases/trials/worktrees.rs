//! Cells whose sandbox is a worktree.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::scene::{HIDDEN_TEST, Scene};
use crate::source::scene::{git, repository};

/// An agent that uses git in its Cell, and leaves the link to the repository broken.
const BLOCKS: &str = "setup: {run: ['git log --format=%s > history']}
harnesses:
  mine: {kind: command, argv: [sh, -c, 'sed -i \"s/a - b/a + b/\" add.py && git add add.py && git status --short; rm -f .git; mkdir .git']}
matrix: {harnesses: [nop, mine], models: [m]}
";

/// The Case with a repository as its source, with a change that is not committed.
fn scene() -> Option<Scene> {
    let graders =
        "- {type: command, cmd: 'test ! -e .git && test -s history && test ! -e untracked'}\n";
    let scene = Scene::new(&format!("{BLOCKS}{HIDDEN_TEST}{graders}"))?;
    let file = scene.case().join("case.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("{path: src}", "{path: src, isolation: worktree}");
    fs::write(&file, text).unwrap();
    let source = scene.case().join("src");
    repository(&source);
    fs::write(source.join("untracked"), "").unwrap();
    fs::write(source.join("kept"), "changed").unwrap();
    Some(scene)
}

#[test]
fn with_the_local_executor_each_cell_has_a_worktree_and_the_repository_stays_as_it_is() {
    let Some(scene) = scene() else { return };
    let source = scene.case().join("src");
    let seen = || {
        let status = git(&source, &["--no-optional-locks", "status", "--porcelain"]);
        let index = fs::read(source.join(".git/index")).unwrap();
        (status, index, git(&source, &["worktree", "list"]), source.join(".git/worktrees").exists())
    };
    let before = seen();
    let end = scene.run(&["--executor", "local", "--trials", "3", "--jobs", "3", "--keep"]);
    assert_eq!((end.code, end.cells()), (Some(0), [6, 0, 0, 0]), "{}", end.stderr);
    for trial in 1..=3 {
        let result = scene.result(&end, "mine", trial);
        assert_eq!(result["overall_score"], 1.0, "{result}");
        assert_eq!(warnings(&result), [""; 0]);
        let cell = scene.cell(&end, "mine", trial);
        let output = fs::read_to_string(cell.join("output.txt")).unwrap();
        assert_eq!(output, "M  add.py\n?? history\n");
        let patch = fs::read_to_string(cell.join("agent.patch")).unwrap();
        assert!(patch.contains("+    return a + b") && !patch.contains(".git"), "{patch}");
        assert!(!cell.join("sandbox/.git").exists() && cell.join("sandbox/add.py").exists());
    }
    assert_eq!(seen(), before);
    scene.assert_nothing_left();
}

#[test]
fn elsewhere_a_worktree_is_a_clone_and_one_warning_says_so() {
    let Some(scene) = scene() else { return };
    let end = scene.run(&["--harness", "nop"]);
    assert_eq!(end.cells(), [1, 0, 0, 0], "{}", end.stderr);
    assert_eq!(warnings(&scene.result(&end, "nop", 1)), ["source.isolation"]);
}

/// The paths of a result's warnings of what has no effect.
fn warnings(result: &Value) -> Vec<String> {
    let all = result["warnings"].as_array().unwrap().iter();
    let without_effect = all.filter(|warning| warning["code"] == "no_effect");
    without_effect.map(|warning| warning["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn functions_are_emptied_as_they_are_at_head_and_a_killed_exec_leaves_a_clean_repository() {
    let Some(scene) = scene() else { return };
    let file = scene.case().join("case.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let stub = "setup: {stub: [{file: add.py, function: add}], run: [";
    fs::write(&file, text.replace("setup: {run: [", stub)).unwrap();
    let source = scene.case().join("src");
    fs::remove_file(source.join("add.py")).unwrap();
    let temporary = scene.case().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let exec = |words: &[&str]| {
        let mut command = Command::new(crate::conformance::doors::binary());
        command.args(["case", "exec", "--executor", "local"]).arg(scene.case()).arg("--");
        command.args(words).env("TMPDIR", &temporary);
        command
    };
    let output = exec(&["cat", "add.py"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("raise NotImplementedError"), "{output:?}");
    assert!(!source.join(".git/worktrees").exists());
    let mut killed = exec(&["sh", "-c", "echo begun; sleep 600"]);
    let mut killed = killed.stdout(std::process::Stdio::null()).spawn().unwrap();
    let worktrees = source.join(".git/worktrees");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while fs::read_dir(&worktrees).map_or(0, Iterator::count) == 0 {
        assert!(std::time::Instant::now() < deadline, "no worktree");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    // What it left goes with the next Cell, once its files are swept.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while worktrees.exists() {
        assert!(std::time::Instant::now() < deadline, "a worktree is left");
        assert!(exec(&["true"]).status().unwrap().success());
    }
}
