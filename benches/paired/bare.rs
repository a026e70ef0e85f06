//! What ours is measured against: the same workspace's `make test` and plain commands, without a box.

use std::path::Path;
use std::process::{Command, Stdio};

use cofferdam_test_server::workspace::Workspace;

/// What a box searches for programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `files` files, one of them the recipe, the others of `bytes` bytes.
pub fn workspace(recipe: &str, files: usize, bytes: usize) -> Workspace {
    let workspace = Workspace::empty().with("Makefile", &format!("test:\n\t@{recipe}\n"));
    let contents = "x".repeat(bytes);
    for file in 1..files {
        // As trees are: some directories of some files.
        workspace.put(&format!("part{}/file{file}", file / 100), &contents);
    }
    workspace
}

/// The floor: `make test` right there, with the programs that a box would find, and told nothing by
/// a `make` that has started us.
pub fn make_test(workspace: &Path) {
    let mut command = Command::new("make");
    command.args(["-s", "test"]).env_clear().env("PATH", PATH).current_dir(workspace);
    succeed(&mut command);
}

/// Runs it to its end, which has to be a good one.
pub fn succeed(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
