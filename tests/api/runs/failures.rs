//! Row 31 of the contract: a sandbox that cannot be created is a 500 that names the step, and no
//! user code runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cofferdam_test_server::service::Setup;
use cofferdam_test_server::workspace::Workspace;

/// Copies `program` and the libraries it is linked to below `root`.
fn install(root: &Path, program: &str) {
    let linked = Command::new("ldd").arg(program).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    let libraries = linked.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain([program]) {
        let target = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, &target).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_root_without_a_shell_is_a_500_that_names_the_step_and_the_errno() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    install(root.path(), "/bin/sh");
    for directory in ["tmp", "proc", "dev", "usr"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    let service =
        Setup::of(Workspace::running(&["echo hi"])).env("SANDBOX_ROOTFS", root.path()).start();
    assert_eq!(service.run("").stdout(), "hi\n");
    fs::remove_file(root.path().join("bin/sh")).unwrap();
    service.run("").assert_json(500, r#"{"error":"sandbox: exec sh: ENOENT"}"#);
    // Only that run fails.
    install(root.path(), "/bin/sh");
    assert_eq!(service.run("").stdout(), "hi\n");
}

#[test]
fn a_solution_that_does_not_fit_is_a_500_that_names_the_step_and_the_errno() {
    let service = Setup::shell().env("RUN_DISK_MAX", "256KiB").env("RUN_CONCURRENCY", "1").start();
    let solution = format!("echo it ran\n#{}", "x".repeat(512 << 10));
    // Each failure frees the one slot.
    for _ in 0..3 {
        service
            .run(&solution)
            .assert_json(500, r#"{"error":"sandbox: write check/solution.py: ENOSPC"}"#);
    }
    assert_eq!(service.run("echo hi").stdout(), "hi\n");
}

#[test]
fn a_workspace_that_does_not_fit_is_a_500_that_names_the_step_and_the_errno() {
    let workspace = Workspace::shell();
    // A workspace with files of several owners is always copied.
    workspace.put("data", &"x".repeat(1 << 20));
    std::os::unix::fs::chown(workspace.path().join("data"), Some(1), Some(1)).unwrap();
    let service = Setup::of(workspace).env("RUN_DISK_MAX", "256KiB").start();
    service.run("echo it ran").assert_json(500, r#"{"error":"sandbox: copy workspace: ENOSPC"}"#);
    service.get("/health").assert_text(200, "ok\n");
}
