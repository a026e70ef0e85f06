//! Mount calls and mount propagation.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use tempfile::TempDir;

use super::answers::{Expected, OK, REFUSED, answers_told};
use crate::Unexercised;
use crate::observe::observed;
use crate::probe::Probe;
use crate::target::Target;

pub fn changing(target: &Target) -> Result<(), Unexercised> {
    const OLD: &[&str] = &[
        "mount-tmpfs",
        "mount-proc",
        "mount-cgroup",
        "mount-overlay",
        "bind",
        "bind-init-root",
        "remount-usr",
        "remount-proc",
        "share",
        "move",
        "umount-proc",
        "detach-proc",
        "detach-mask",
        "detach-workspace",
        "pivot_root",
        "chroot",
    ];
    const NEW: &[&str] = &[
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "open_tree-clone",
        "open_tree",
        "open_tree_attr",
        "move_mount",
        "mount_setattr",
    ];
    Expected::default()
        .all(OLD, REFUSED)
        .all(NEW, REFUSED)
        .all(&["write-tmp"], OK)
        .all(&["write-usr", "write-etc"], &["EROFS", "EACCES", "EPERM"])
        .all(&["mounts"], &["same"])
        .hold(answers_told(&target.observe(&Probe::c("mounts"))));
    Ok(())
}

pub fn propagation(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    // Another program on this host may mount something at the same time.
    let is_quiet = (0..3).any(|_| {
        let before = mounts_of("1");
        let live = target.begin(&Probe::inline(SLEEP).within("5s"));
        let during = [mounts_of("1"), mounts_of(&own.service.pid().to_string())];
        observed(&live.answer());
        during.iter().all(|during| *during == before) && mounts_of("1") == before
    });
    assert!(is_quiet, "a run's mounts show on the host");
    host_mount_during_a_run();
    Ok(())
}

const SLEEP: &str = "import time\ndef probe(): time.sleep(1)";

/// Lists two directories until told to end.
const WATCH: &str = "echo began
until [ -e /shown/end ]; do ls /shown/late /read-only/late; sleep 0.02; done
ls /shown";

/// Mounts below a directory that a sandbox shows, on a file system with shared propagation.
fn host_mount_during_a_run() {
    let shared = SharedDirectory::new();
    let mut watching = Watching::start(&shared.path());
    shared.mount_late();
    // The mount propagates to its peer at once.
    assert!(shared.peer().join("late/file").exists(), "mounts do not propagate on this host");
    thread::sleep(Duration::from_millis(300));
    // No process in the sandbox keeps it busy.
    run("umount", &[shared.path().join("late").as_os_str()]);
    fs::write(shared.path().join("end"), "").unwrap();
    let seen = watching.end();
    assert!(seen.contains("end"), "the bind shows nothing: {seen:?}");
    assert!(!seen.contains("file"), "the host's mount shows: {seen:?}");
}

/// `cofferdam exec` with the directory bound twice.
struct Watching {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Watching {
    fn start(shown: &Path) -> Self {
        let binary = std::env::var_os("COFFERDAM_BIN")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_cofferdam").into());
        let bind = |rest: &str| format!("{}:{rest}", shown.display());
        let mut child = Command::new(binary)
            .args(["exec", "--timeout", "15s", "--bind", &bind("/shown")])
            .args(["--bind", &bind("/read-only:ro"), "--", "sh", "-c", WATCH])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "began\n");
        Self { child, stdout }
    }

    fn end(&mut self) -> String {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        rest
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two peer directories that share mounts below them.
struct SharedDirectory(TempDir);

impl SharedDirectory {
    fn new() -> Self {
        let shared = Self(tempfile::tempdir().unwrap());
        let (path, peer) = (shared.path(), shared.peer());
        fs::create_dir_all(path.join("late")).unwrap();
        fs::create_dir(&peer).unwrap();
        run("mount", &["--bind".as_ref(), path.as_os_str(), path.as_os_str()]);
        run("mount", &["--make-shared".as_ref(), path.as_os_str()]);
        run("mount", &["--bind".as_ref(), path.as_os_str(), peer.as_os_str()]);
        shared
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("shown")
    }

    fn peer(&self) -> PathBuf {
        self.0.path().join("peer")
    }

    fn mount_late(&self) {
        let late = self.path().join("late");
        let tmpfs: [&OsStr; 4] = ["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), late.as_ref()];
        run("mount", &tmpfs);
        fs::write(late.join("file"), "").unwrap();
    }
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        for path in [self.peer(), self.path()] {
            // This also unmounts everything below it.
            let _ = Command::new("umount").args(["-R", "-l"]).arg(path).status();
        }
    }
}

#[track_caller]
fn run(program: &str, args: &[&OsStr]) {
    let status = Command::new(program).args(args).status().unwrap();
    assert!(status.success(), "{program} {args:?}");
}

/// The mounts of a process without their ids, which the kernel reuses.
fn mounts_of(pid: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let place = |line: &str| line.splitn(3, ' ').nth(2).map(str::to_owned);
    text.lines().filter_map(place).collect()
}
