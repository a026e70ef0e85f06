//! Properties: links are resolved as the kernel resolves them in the sandbox.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::fstat;
use nix::unistd::symlinkat;
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::TestWorkspace;
use crate::files::FilesError;

const NAMES: &str = r"(a|b|c|d)";

/// A path in the workspace or `/tmp`, as in the sandbox.
fn place_strategy() -> impl Strategy<Value = String> {
    (r"(/workspace|/tmp)", proptest::collection::vec(NAMES, 1..3))
        .prop_map(|(top, names)| format!("{top}/{}", names.join("/")))
}

fn text_strategy() -> impl Strategy<Value = String> {
    r"(/|/workspace/|/tmp/|)((\.\.|\.|a|b|c|d|workspace|tmp)/){0,4}(\.\.|\.|a|b|c|d)"
}

/// Makes a link as a program in the sandbox would: links that exist lead nowhere else.
fn plant(root: BorrowedFd<'_>, link: &str, text: &str) {
    let (parent, name) = link.rsplit_once('/').unwrap();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    if let Ok(parent) = openat2(root, parent, how) {
        // No program writes above its two directories: the root of a sandbox is read-only.
        if fstat(&parent).unwrap().st_ino == fstat(root).unwrap().st_ino {
            return;
        }
        // Something can have the name.
        let _ = symlinkat(text, parent, name);
    }
}

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn links_lead_where_the_kernel_says(
        files in proptest::collection::vec(place_strategy(), 0..4),
        links in proptest::collection::vec((place_strategy(), text_strategy()), 0..6),
        asked in proptest::collection::vec(place_strategy(), 1..6),
    ) {
        let workspace = TestWorkspace::new();
        for file in &files {
            let host = workspace.host(file);
            // Another file can be in the way.
            let _ = fs::create_dir_all(host.parent().unwrap());
            let _ = fs::write(host, "x");
        }
        for (link, text) in &links {
            plant(workspace.root.as_fd(), link, text);
        }
        for path in &asked {
            let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
            let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
            let expected = openat2(workspace.root.as_fd(), path.as_str(), how);
            let found = workspace.root().find(&workspace.at(path), true);
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    let expected = fstat(expected).unwrap();
                    prop_assert_eq!(found.stat.st_ino, expected.st_ino, "{}", path);
                    let again = workspace.root().find(&found.location, false).unwrap();
                    prop_assert_eq!(again.stat.st_ino, expected.st_ino, "{}", path);
                }
                // Above the two directories, and through names of the system, nothing is found here.
                (Err(FilesError::ThroughLink { .. }), Ok(expected)) => {
                    let root = fstat(workspace.root.as_fd()).unwrap();
                    prop_assert_eq!(fstat(expected).unwrap().st_ino, root.st_ino, "{}", path);
                }
                (Err(FilesError::NotFound { .. } | FilesError::ThroughLink { .. }), Err(_)) => {}
                (found, expected) => prop_assert!(false, "{path}: {found:?}, {expected:?}"),
            }
        }
    }
}
