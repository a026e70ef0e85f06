//! Tasks on disk, and calls of the binary.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory with `files`: paths and contents.
pub fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    write(directory.path(), files);
    directory
}

pub fn write(directory: &Path, files: &[(&str, &str)]) {
    for (name, contents) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
}

/// A task of which nothing is to be said.
pub const CLEAN: [(&str, &str); 3] = [
    (
        "workspace.yaml",
        "repo: https://example.com/r.git\nbase_commit: 0123456789abcdef0123456789abcdef01234567\n",
    ),
    ("prompt.md", ""),
    ("tests/fail_to_pass_1.sh", "exit 0\n"),
];

/// `cofferdam task` with `arguments`.
pub fn task(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cofferdam")).arg("task").args(arguments).output().unwrap()
}

/// The exit code and the findings of `task check --json`.
pub fn check(task_path: &Path) -> (i32, Vec<serde_json::Value>) {
    let output = task(&["check", task_path.to_str().unwrap(), "--json"]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let findings = serde_json::from_str(&stdout).unwrap_or_default();
    (output.status.code().unwrap(), findings)
}
