//! Runs `strace` on all threads and processes of a binary, from its start or from attachment.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;

use crate::trace::Trace;

/// How long the traced processes may continue after an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// After this time without a call, the work in progress is over.
const SETTLED: Duration = Duration::from_millis(60);
/// One file per thread, with the time of each call and short strings.
const OPTIONS: [&str; 5] = ["-ff", "-ttt", "-s", "8", "-o"];

/// Whether calls can be counted here. If tests are required to run, a failure panics.
#[track_caller]
pub fn can_trace() -> bool {
    let lacks = if !geteuid().is_root() {
        "not root"
    } else if strace(&["true"]).is_err() {
        "strace is missing or may not trace"
    } else {
        return true;
    };
    let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
    assert!(!required, "{lacks}, and REQUIRE_PRIVILEGED=1");
    eprintln!("SKIP: {lacks}");
    false
}

/// Traces the command from its first call.
#[track_caller]
pub fn trace_of(command: &[&str]) -> Trace {
    let (trace, output) = strace(command).unwrap();
    assert!(output.status.success(), "{output:?}");
    trace
}

fn strace(command: &[&str]) -> Result<(Trace, Output), String> {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("strace")
        .args(OPTIONS)
        .arg(directory.path().join("of"))
        .args(command)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let trace = Trace::read(directory.path(), &[]);
    if trace.calls.is_empty() { Err(format!("{output:?}")) } else { Ok((trace, output)) }
}

/// A `strace` attached to a running process.
#[derive(Debug)]
pub struct Attached {
    strace: Child,
    directory: TempDir,
    threads: Vec<i32>,
}

impl Attached {
    /// Returns when every thread of `pid` is traced.
    #[track_caller]
    pub fn to(pid: i32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
        let directory = tempfile::tempdir().unwrap();
        let mut strace = Command::new("strace")
            .args(OPTIONS)
            .arg(directory.path().join("of"))
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(strace.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "{line}");
        // `strace` reports every new process, and must not block on a full pipe.
        thread::spawn(move || said.lines().count());
        Self { strace, directory, threads }
    }

    /// Returns when the traced processes are idle.
    #[track_caller]
    pub fn wait_settled(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = 0;
        while bytes != self.bytes() {
            assert!(Instant::now() < deadline, "no rest within {PATIENCE:?}");
            bytes = self.bytes();
            thread::sleep(SETTLED);
        }
    }

    fn bytes(&self) -> u64 {
        let files = fs::read_dir(self.directory.path()).unwrap().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    /// The calls since the attachment.
    pub fn end(mut self) -> Trace {
        self.let_go();
        Trace::read(self.directory.path(), &self.threads)
    }

    /// `strace` detaches, and the traced processes continue.
    fn let_go(&mut self) {
        if self.strace.try_wait().is_ok_and(|ended| ended.is_none()) {
            let pid = i32::try_from(self.strace.id()).unwrap();
            kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
            self.strace.wait().unwrap();
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.let_go();
    }
}
