//! Statements 18 to 20: the snapshot of the workspace.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::doors::{EACH, doors};
use crate::workspace::{Workspace, with};

/// Prints every path of the workspace, sorted.
const LIST: &str = "\
import os
for top, dirs, files in sorted(os.walk('.')):
    for name in sorted(files + [d for d in dirs if os.path.islink(os.path.join(top, d))]):
        print(os.path.relpath(os.path.join(top, name), '.'))
";

#[test]
fn s18_excluded_files_are_not_copied_at_any_depth_despite_include() {
    let Some(doors) = doors() else { return };
    let mut workspace = Workspace::python(LIST).file("src/a.py", "").file("src/b.log", "");
    for path in [
        ".git/config",
        "src/.git/config",
        "src/deep/venv/bin/python",
        "src/target/out",
        "node_modules/x/index.js",
        "src/__pycache__/a.pyc",
        ".env",
        "src/.env.local",
        "src/tls/server.key",
        "src/secrets/password",
        ".ssh/id_rsa",
    ] {
        workspace = workspace.file(path, "x");
    }
    let include = json!(["**", "**/.env", ".git/**", "src/tls/server.key"]);
    let request = with(workspace.run_main(), "workspace.include", include);
    let request = with(request, "workspace.exclude", json!(["**/*.log"]));
    for door in EACH {
        let result = doors.result(door, &request);
        assert_eq!(result["stdout"]["text"], "main.py\nsrc/a.py\n", "{door:?}: {result}");
        let excluded = json!({
            "vcs": 2, "virtualenv": 1, "build": 1, "dependencies": 1, "caches": 1, "secrets": 5,
            "request": 1,
        });
        assert_eq!(result["snapshot"]["excluded"], excluded, "{door:?}: {result}");
        assert_eq!(result["snapshot"]["files"], 2);
        let kept = doors.store(door).join("runs").join(result["job_id"].as_str().unwrap());
        let kept: serde_json::Value =
            serde_json::from_slice(&fs::read(kept.join("snapshot.json")).unwrap()).unwrap();
        assert_eq!(kept["excluded"], excluded, "{kept}");
    }
}

/// The metadata that shows any change of the tree.
fn state(directory: &Path) -> Vec<String> {
    let mut pending = vec![directory.to_owned()];
    let mut state = Vec::new();
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        state.push(format!(
            "{} {:o} {} {} {}.{} {}.{}",
            path.display(),
            metadata.mode(),
            metadata.uid(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ));
        if metadata.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    state.sort();
    state
}

#[test]
fn s19_the_source_is_never_written_and_links_modes_and_special_files_are_sanitized() {
    let Some(doors) = doors() else { return };
    let program = "\
import os, stat
print(oct(stat.S_IMODE(os.stat('tool').st_mode)), os.readlink('inside'))
print(sorted(os.listdir('.')))
open('one', 'a').write('!')
print(open('two').read(), os.stat('two').st_nlink)
for name in os.listdir('.'):
    if not os.path.isdir(name): os.unlink(name)
open('new', 'w').write('x')
";
    let workspace = Workspace::python(program).executable("tool", "").file("one", "1");
    let path = workspace.path();
    fs::set_permissions(path.join("tool"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::hard_link(path.join("one"), path.join("two")).unwrap();
    symlink("tool", path.join("inside")).unwrap();
    symlink("/etc/passwd", path.join("outside")).unwrap();
    symlink("../outside", path.join("above")).unwrap();
    mkfifo(&path.join("fifo"), Mode::S_IRWXU).unwrap();
    let before = state(path);
    for door in EACH {
        let result = doors.result(door, &workspace.run_main());
        assert_eq!(
            result["stdout"]["text"],
            "0o755 tool\n['inside', 'main.py', 'one', 'tool', 'two']\n1 1\n",
            "{door:?}: {result}"
        );
        let excluded = json!({"special": 1, "outside_link": 2});
        assert_eq!(result["snapshot"]["excluded"], excluded, "{door:?}");
    }
    assert_eq!(state(path), before);
}

#[test]
fn s20_a_workspace_above_the_limits_fails_before_anything_runs() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("").file("a", "12345").file("b", "12345");
    for door in EACH {
        for (limit, value, status) in [
            ("snapshot_files", 3, "completed"),
            ("snapshot_files", 2, "setup_failed"),
            ("snapshot_bytes", 10, "completed"),
            ("snapshot_bytes", 9, "setup_failed"),
        ] {
            let request = with(workspace.run_main(), &format!("limits.{limit}"), value);
            let result = doors.result(door, &request);
            assert_eq!(result["status"], status, "{door:?} {limit} {value}: {result}");
            if status == "setup_failed" {
                assert_eq!(result["error"]["code"], "backend.setup_failed", "{result}");
                assert_eq!(result["error"]["details"]["step"], "snapshot", "{result}");
            }
        }
    }
}
