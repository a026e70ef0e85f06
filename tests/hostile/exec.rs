//! `cofferdam exec` with a directory of the host that the tenant may write to.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::observe::lines;
use super::probe::native;
use super::target::Own;

/// An ordinary user of the host, who owns the directory.
const OWNER: u32 = 12_345;
/// No call here takes longer, even on the busiest machine.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// A directory bound at `/out`, inside a directory of root.
#[derive(Debug)]
pub struct SharedDirectory(TempDir);

/// How a call ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl SharedDirectory {
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    pub fn below(directory: &Path) -> Self {
        let place = tempfile::tempdir_in(directory).unwrap();
        let shared = place.path().join("out");
        fs::create_dir(&shared).unwrap();
        // Writable to all, for hosts that cannot map ids.
        fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
        chown(&shared, Some(OWNER), Some(OWNER)).unwrap();
        Self(place)
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("out")
    }

    /// Creates a file of the owner.
    pub fn put(&self, name: &str, contents: &[u8]) {
        let path = self.path().join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
    }

    /// Runs `command` with this directory at `/out` and these options.
    #[track_caller]
    pub fn exec(&self, own: &Own, options: &[&str], command: &[&str]) -> Ended {
        let mut call = self.call(own, options, command);
        call.stdin(Stdio::null());
        ended(call)
    }

    /// The command, whose stdin the caller sets.
    pub fn call(&self, own: &Own, options: &[&str], command: &[&str]) -> Command {
        let binary = std::env::var_os("COFFERDAM_BIN")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_cofferdam").into());
        let mut call = Command::new(binary);
        let bind = format!("{}:/out", self.path().display());
        call.args(["exec", "--timeout", "15s", "--bind", &bind]).args(options).arg("--");
        call.args(command).env_remove("COFFERDAM_WITHOUT");
        if let Some(wall) = own.wall() {
            call.env("COFFERDAM_WITHOUT", wall);
        }
        call
    }

    /// Runs the program `tests/probes/<name>.c` and returns its attempts.
    #[track_caller]
    pub fn probe(&self, own: &Own, name: &str, args: &[&str]) -> Vec<(String, String)> {
        let bind = format!("{}:/probe:ro", native(name).display());
        let command: Vec<&str> = ["/probe"].iter().chain(args).copied().collect();
        let done = self.exec(own, &["--bind", &bind], &command);
        assert_eq!(done.code, Some(0), "{done:?}");
        lines(&done.stdout)
    }

    /// Asserts that no file in it is owned by root, is a device, or has a set-id bit.
    #[track_caller]
    pub fn assert_is_what_a_tenant_may_make(&self) {
        let mut unread = vec![self.path()];
        while let Some(directory) = unread.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let kind = metadata.file_type();
                assert_ne!(metadata.uid(), 0, "{} is owned by root", path.display());
                assert!(
                    !kind.is_char_device() && !kind.is_block_device(),
                    "{} is a device",
                    path.display()
                );
                assert_eq!(metadata.mode() & 0o6000, 0, "{} has a set-id bit", path.display());
                if kind.is_dir() {
                    unread.push(path);
                }
            }
        }
    }

    /// Removes everything with `rm`: the standard library's recursion fails on deep trees.
    pub fn empty(&self) {
        let status = Command::new("rm").arg("-rf").arg(self.path()).status().unwrap();
        assert!(status.success(), "{status}");
    }
}

/// Runs a call to its end and returns its output; panics if it does not end in time.
#[track_caller]
pub fn ended(mut call: Command) -> Ended {
    let child = call.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let (sender, done) = channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = done.recv_timeout(ENDS_WITHIN) else {
        kill(pid, Signal::SIGKILL).unwrap();
        panic!("{call:?} did not end within {ENDS_WITHIN:?}");
    };
    let output = output.unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
