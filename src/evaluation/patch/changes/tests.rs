use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use super::*;

fn write(root: &Path, path: &str, text: &str) {
    fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
    fs::write(root.join(path), text).unwrap();
}

fn compared(base: &Path, left: &Path) -> TreeChanges {
    let open = |path: &Path| OwnedFd::from(File::open(path).unwrap());
    // Without layers, all of it counts as written.
    let trees = ComparedTrees { base: open(base), left: open(left), written: Some(open(left)) };
    compare(&trees, Deadline::after(Duration::from_secs(60)), StopCheck::never()).unwrap()
}

#[test]
fn files_modes_links_and_changes_of_type_are_found() {
    use FileForm::{Executable, Link, Plain};
    let dirs = tempfile::tempdir().unwrap();
    let (base, left) = (dirs.path().join("base"), dirs.path().join("left"));
    for root in [&base, &left] {
        for path in ["same", "mode", "text", "d/same", ".git/config", "sub/.GIT/x"] {
            write(root, path, "a");
        }
        symlink("same", root.join("link")).unwrap();
    }
    write(&base, "gone/a/b", "");
    write(&base, "file_then_dir", "");
    write(&base, "dir_then_file/x", "");
    write(&base, "fifo", "");
    write(&left, "text", "b");
    write(&left, ".git/config", "evil");
    write(&left, "sub/.GIT/y", "evil");
    write(&left, "new/deep/file", "");
    write(&left, "file_then_dir/x", "");
    write(&left, "dir_then_file", "");
    fs::set_permissions(left.join("mode"), Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(left.join("link")).unwrap();
    symlink("text", left.join("link")).unwrap();
    symlink("x", left.join(".gitmodules")).unwrap();
    nix::unistd::mkfifo(&left.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();

    let changes = compared(&base, &left);
    let found: Vec<_> = changes
        .files
        .iter()
        .map(|(path, change)| (str::from_utf8(path).unwrap(), change.before, change.after))
        .collect();
    assert_eq!(
        found,
        [
            ("dir_then_file", None, Some(Plain)),
            ("dir_then_file/x", Some(Plain), None),
            ("fifo", Some(Plain), None),
            ("file_then_dir", Some(Plain), None),
            ("file_then_dir/x", None, Some(Plain)),
            ("gone/a/b", Some(Plain), None),
            ("link", Some(Link), Some(Link)),
            ("mode", Some(Plain), Some(Executable)),
            ("new/deep/file", None, Some(Plain)),
            ("text", Some(Plain), Some(Plain)),
        ]
    );
    let omitted: Vec<_> =
        changes.omitted.iter().map(|omitted| (omitted.path.as_str(), omitted.reason)).collect();
    assert_eq!(omitted, [(".gitmodules", "name"), ("fifo", "fifo")]);
}

#[test]
fn a_comparison_ends_in_time() {
    let dirs = tempfile::tempdir().unwrap();
    write(dirs.path(), "a", "");
    let open = || OwnedFd::from(File::open(dirs.path()).unwrap());
    let trees = ComparedTrees { base: open(), left: open(), written: Some(open()) };
    let error = compare(&trees, Deadline::after(Duration::ZERO), StopCheck(&|| false)).unwrap_err();
    assert!(matches!(error, PatchError::Rejected(_)), "{error}");
}

#[test]
fn a_comparison_that_is_stopped_ends_at_the_next_entry() {
    let dirs = tempfile::tempdir().unwrap();
    let (base, left) = (dirs.path().join("base"), dirs.path().join("left"));
    for number in 0..50 {
        write(&base, &format!("d/{number}"), "a");
        write(&left, &format!("d/{number}"), "a");
    }
    write(&base, "large", &"a".repeat(1 << 20));
    write(&left, "large", &"a".repeat(1 << 20));
    let open = |path: &Path| OwnedFd::from(File::open(path).unwrap());
    let trees = ComparedTrees { base: open(&base), left: open(&left), written: Some(open(&left)) };
    let asked = std::cell::Cell::new(0);
    let run = |asked_max| {
        asked.set(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            asked.get() >= asked_max
        };
        compare(&trees, Deadline::after(Duration::from_secs(60)), StopCheck(&is_over))
    };
    assert!(run(usize::MAX).unwrap().files.is_empty());
    let all = asked.get();
    // Each name, each entry, and the pieces of the large file.
    assert!(all > 100, "{all}");
    for asked_max in [1, all / 3, all / 2, all] {
        let stopped = run(asked_max);
        assert!(matches!(stopped, Err(PatchError::Cancelled)), "{stopped:?}");
        assert!(asked.get() <= asked_max + 1, "it went on");
    }
}
