//! Workspaces that run the shell, so that no toolchain is needed.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// Runs the posted solution, whatever the slug names the file. The shell replaces itself, so that
/// its end is the end of the program.
pub const RUN_SOLUTION: &str = "exec sh ./*/[sS]olution.*";

/// A directory of files that is removed on drop.
#[derive(Debug)]
pub struct Workspace(TempDir);

impl Workspace {
    /// An empty workspace.
    pub fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A workspace whose `test` target has these recipe lines.
    pub fn running(recipe: &[&str]) -> Self {
        Self::empty().with("Makefile", &makefile(recipe))
    }

    /// A workspace that runs the posted solution in a shell.
    pub fn shell() -> Self {
        Self::running(&[RUN_SOLUTION])
    }

    pub fn with(self, path: &str, contents: &str) -> Self {
        self.put(path, contents);
        self
    }

    pub fn put(&self, path: &str, contents: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

pub fn makefile(recipe: &[&str]) -> String {
    let lines: String = recipe.iter().map(|line| format!("\t{line}\n")).collect();
    format!(".PHONY: test\ntest:\n{lines}")
}
