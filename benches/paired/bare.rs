//! The baseline: `make test` of the same workspace and plain commands, without a sandbox.

use std::path::Path;
use std::process::{Command, Stdio};

use cofferdam_test_server::workspace::Workspace;

/// The PATH of a sandbox.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A workspace of `files` files: the recipe, and others of `bytes` bytes each.
pub fn workspace(recipe: &str, files: usize, bytes: usize) -> Workspace {
    let workspace = Workspace::empty().with("Makefile", &format!("test:\n\t@{recipe}\n"));
    let contents = "x".repeat(bytes);
    for file in 1..files {
        // Like a real tree: several directories of several files.
        workspace.put(&format!("part{}/file{file}", file / 100), &contents);
    }
    workspace
}

/// The baseline: `make test` in the workspace, with the PATH of a sandbox and without variables of
/// a `make` that started this benchmark.
pub fn make_test(workspace: &Path) {
    let mut command = Command::new("make");
    command.args(["-s", "test"]).env_clear().env("PATH", PATH).current_dir(workspace);
    succeed(&mut command);
}

/// Runs a command, which must succeed.
pub fn succeed(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
