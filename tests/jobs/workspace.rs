//! Workspaces for jobs, and requests that use them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

/// A workspace that jobs copy.
#[derive(Debug)]
pub struct Workspace(TempDir);

impl Workspace {
    pub fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A workspace with a Python program in `main.py`.
    pub fn python(program: &str) -> Self {
        Self::empty().file("main.py", program)
    }

    pub fn file(self, path: &str, contents: impl AsRef<[u8]>) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
        self
    }

    pub fn executable(self, path: &str, contents: impl AsRef<[u8]>) -> Self {
        let workspace = self.file(path, contents);
        let path = workspace.0.path().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        workspace
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A request that runs `argv` in this workspace, and allows it.
    pub fn request(&self, argv: &[&str]) -> Value {
        json!({
            "workspace": {"source": "local_path", "path": self.path()},
            "command": {"argv": argv},
            "policy": {"allowed_commands": argv.first().map_or(vec![], |program| vec![*program])},
        })
    }

    /// A request that runs `main.py`.
    pub fn run_main(&self) -> Value {
        self.request(&["python3", "main.py"])
    }
}

/// `request` with `value` at `pointer`, which is created if missing.
pub fn with(mut request: Value, pointer: &str, value: impl Into<Value>) -> Value {
    let mut place = &mut request;
    for key in pointer.split('.') {
        place = &mut place[key];
    }
    *place = value.into();
    request
}
