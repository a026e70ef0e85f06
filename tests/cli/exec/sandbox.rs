//! What `exec` gives to a program: input, files, variables, limits.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::{cofferdam, exec_sh};

#[test]
fn ten_mebibytes_go_in_and_come_out_unchanged() {
    let input: Vec<u8> =
        (0..10 << 20).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let done = cofferdam("exec --output 0 -- cat").fed(input.clone()).run().exits(0).quietly();
    done.holds(done.output.stdout == input, "what went in");
}

#[test]
fn a_program_may_leave_its_input_unread() {
    let endless = vec![b'y'; 1 << 20];
    cofferdam("exec -- true").fed(endless).run().exits(0).quietly();
}

#[test]
fn a_closed_stdin_is_empty() {
    for redirection in ["<&-", "</dev/null", ""] {
        let script = format!("\"$0\" exec -- wc -c {redirection}");
        let call = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_cofferdam")])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&call.stdout), "0\n", "{redirection:?}: {call:?}");
    }
}

#[test]
fn a_file_can_be_stdin() {
    let mut call = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    let file =
        std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let bytes = file.metadata().unwrap().len();
    let output = call.args(["exec", "--", "wc", "-c"]).stdin(file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{bytes}\n"));
}

/// A world-writable directory with the file `f`.
fn shared_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("f"), "inside\n").unwrap();
    for path in [&data, directory.path()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    directory
}

#[test]
fn a_bind_is_writable_unless_read_only() {
    let directory = shared_directory();
    // A relative source: relative to the current directory.
    exec_sh("--bind data:/data:ro", "cat /data/f; ! touch /data/made 2>/dev/null && echo refused")
        .within(directory.path())
        .run()
        .exits(0)
        .prints("inside\nrefused\n");
    assert!(!directory.path().join("data/made").exists());
    exec_sh("--bind ./data:/some/where", "echo more >/some/where/made")
        .within(directory.path())
        .run()
        .exits(0)
        .quietly();
    assert_eq!(std::fs::read_to_string(directory.path().join("data/made")).unwrap(), "more\n");
}

#[test]
fn a_single_file_can_be_bound() {
    let directory = shared_directory();
    let options = format!("--bind {}:/given/file:ro", directory.path().join("data/f").display());
    exec_sh(&options, "cat /given/file").run().exits(0).prints("inside\n");
}

#[test]
fn a_tmpfs_is_limited_to_its_size() {
    let script = "head -c 60000 /dev/zero >/scratch/a && head -c 60000 /dev/zero >/scratch/b";
    let done = exec_sh("--tmpfs /scratch:64KiB", script).run().exits(1);
    done.holds(done.stderr().contains("No space left"), "ENOSPC");
    exec_sh("--tmpfs /scratch", script).run().exits(0).quietly();
}

#[test]
fn the_environment_is_that_of_the_sandbox_and_of_the_options() {
    let call = cofferdam("exec --env A=1 --env B=x=y --env LANG=C -- env").env("SECRET", "s3cret");
    let done = call.run().exits(0);
    let mut lines: Vec<_> = done.stdout().lines().map(str::to_owned).collect();
    lines.sort();
    let path = lines.iter().find(|line| line.starts_with("PATH=")).cloned().unwrap_or_default();
    assert_eq!(lines, ["A=1", "B=x=y", "HOME=/tmp/home", "LANG=C", &path, "TMPDIR=/tmp"]);
}

#[test]
fn the_working_directory_is_an_empty_writable_workspace_or_the_requested_one() {
    exec_sh("", "pwd; ls -A | wc -l; echo x >file; cat file")
        .run()
        .exits(0)
        .prints("/workspace\n0\nx\n");
    exec_sh("--workdir /usr/bin", "pwd").run().exits(0).prints("/usr/bin\n");
}

#[test]
fn limits_reach_the_program() {
    exec_sh("--files 99", "ulimit -n").run().exits(0).prints("99\n");
    exec_sh("--timeout 2500ms", "ulimit -t").run().exits(0).prints("3\n");
    exec_sh("--cpu-time 7s", "ulimit -t").run().exits(0).prints("7\n");
    exec_sh("", "id -u; id -g").run().exits(0).prints("10001\n10001\n");
}

#[test]
fn a_share_of_a_cpu_is_not_exceeded() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let options = format!("--cpus 0.2 --timeout 1s --report {}", report.display());
    exec_sh(&options, "while :; do :; done").run().exits(124);
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert!(report["usage"]["cpu_ms"].as_u64().unwrap() < 500, "{report}");
}

#[test]
fn the_named_profile_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let options = format!("exec --profile strict-native --report {}", report.display());
    cofferdam(&options).words("-- true").run().exits(0);
    assert!(std::fs::read_to_string(report).unwrap().contains(r#""seccomp":"strict-native""#));
}

#[test]
fn another_root_shows_nothing_of_the_host() {
    let root = tempfile::tempdir().unwrap();
    for directory in ["bin", "lib", "lib64", "usr"] {
        std::fs::create_dir(root.path().join(directory)).unwrap();
    }
    std::fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(root.path().join("mark"), "here\n").unwrap();
    let options = format!("exec --rootfs {} -- /bin/sh", root.path().display());
    cofferdam(&options).run().exits(127).complains("not found in the sandbox");
    cofferdam("exec -- /bin/sh")
        .env("SANDBOX_ROOTFS", root.path().to_str().unwrap())
        .run()
        .exits(127);
}
