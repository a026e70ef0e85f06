//! `cofferdam exec` as an unprivileged user, and the guarantees that still hold.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Output;

use tempfile::TempDir;

use crate::support::{NOBODY, has_user_namespaces, setpriv};

/// A directory with a copy of the binary that every user can execute.
struct PublicBinary {
    place: TempDir,
    binary: PathBuf,
}

impl PublicBinary {
    /// `None`, with a message, if the host has no unprivileged user namespaces.
    fn new() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let binary = place.path().join("cofferdam");
        fs::copy(env!("CARGO_BIN_EXE_cofferdam"), &binary).unwrap();
        has_user_namespaces().then_some(Self { place, binary })
    }

    /// `cofferdam exec` with `options` split at spaces, and a script for the sandbox's shell.
    fn exec_sh(&self, options: &str, script: &str) -> Output {
        let mut command = setpriv("--clear-groups");
        command.arg(&self.binary).arg("exec").args(options.split_whitespace());
        command.args(["--", "sh", "-c", script]).current_dir("/").output().unwrap()
    }
}

#[track_caller]
fn stdout_of(done: &Output) -> String {
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout.clone()).unwrap()
}

#[test]
fn a_program_is_10001_without_capabilities_and_cannot_change_its_mounts() {
    let Some(here) = PublicBinary::new() else { return };
    let script = "id -u; id -g; cat /proc/self/uid_map /proc/sys/user/max_user_namespaces
        grep -E '^(Cap|NoNew|Seccomp:|Groups)' /proc/self/status
        unshare --mount true 2>/dev/null && echo mounts
        mount -t tmpfs none /tmp 2>/dev/null && echo mounted
        umount /proc 2>/dev/null && echo unmounted
        kill -9 1 2>/dev/null
        ls /proc | grep -c '^[0-9]'";
    let text = stdout_of(&here.exec_sh("", script));
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let none = "0000000000000000";
    let mut want: Vec<String> =
        ["10001", "10001", "10001 0 1", "0", "Groups:"].map(String::from).into();
    want.extend(["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|set| format!("Cap{set}: {none}")));
    want.extend(["NoNewPrivs: 1", "Seccomp: 2"].map(String::from));
    assert_eq!(lines[..want.len()], want);
    let processes: u32 = lines[want.len()].parse().unwrap();
    assert!(lines.len() == want.len() + 1 && processes < 6, "{lines:?}");
}

/// The uid of the service owns them, so the mounts must refuse before any Landlock rule does.
#[test]
fn files_of_the_service_are_read_only_in_a_sandbox() {
    let Some(here) = PublicBinary::new() else { return };
    let data = here.place.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("file"), "before").unwrap();
    for path in [&data, &data.join("file")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let script =
        "for place in / /dev /etc /usr /proc /.empty /.overlay /.overlay/work /var /data; do
            (: >$place/new)
            mkdir $place/made
            chmod 777 $place
        done
        for file in /data/file /etc/passwd /proc/sys/net/ipv4/ip_forward; do echo 1 >$file; done
        for place in /workspace /tmp /run /dev/shm /var/tmp; do (: >$place/new) || echo refused; done
        true";
    let bind = format!("--bind {}:/data:ro", data.display());
    let done = here.exec_sh(&bind, script);
    assert_eq!(stdout_of(&done), "");
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    let refused = stderr.lines().filter(|line| line.contains("Read-only file system")).count();
    // Creating a file in /proc itself fails with another message.
    assert_eq!(refused, 9 * 3 + 1 + 3, "{stderr}");
    assert!(!stderr.contains("Permission denied"), "the rules refused before the mounts: {stderr}");
    assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "before");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
}

#[test]
fn a_report_names_the_missing_uid_and_strict_isolation_refuses_it() {
    let Some(here) = PublicBinary::new() else { return };
    let report = here.place.path().join("reports");
    fs::create_dir(&report).unwrap();
    chown(&report, Some(NOBODY), Some(NOBODY)).unwrap();
    let report = report.join("report.json");
    stdout_of(&here.exec_sh(&format!("--report {}", report.display()), "true"));
    let text = fs::read_to_string(report).unwrap();
    assert!(text.contains("uid: no privileges here"), "{text}");
    let mut strict = setpriv("--clear-groups");
    strict.arg(&here.binary).args(["langs"]).env("ISOLATION", "strict").current_dir("/");
    let done = strict.output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && stderr.contains("strict isolation: uid: "), "{done:?}");
}

#[test]
fn supplementary_groups_of_the_service_prevent_a_run_that_would_have_them() {
    let Some(here) = PublicBinary::new() else { return };
    let mut command = setpriv("--groups=4");
    let done = command.arg(&here.binary).args(["exec", "--", "true"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("every run would have the service's further groups"), "{stderr}");
}
