//! A run in progress, observed by its output and ended by closing its stdin.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam::executor::SandboxExecutor;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{NotStarted, OutputSink, RunReport, StdinSource, Stream};
use nix::fcntl::OFlag;

use crate::program::Program;
use crate::workspace::MountedFiles;

/// How long a run may take to print the expected text.
const PATIENCE: Duration = Duration::from_secs(20);

/// A run on its own thread.
#[derive(Debug)]
pub struct Live {
    /// The host uid it runs as.
    pub host_uid: u32,
    cancel: CancelToken,
    output: Receiver<Vec<u8>>,
    seen: String,
    stdin: Option<File>,
    thread: JoinHandle<Result<RunReport, NotStarted>>,
}

impl Live {
    pub(crate) fn start(backend: Arc<SandboxExecutor>, program: Program) -> Self {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        let program = program.stdin(StdinSource::Copied(read));
        Self { stdin: Some(File::from(write)), ..Self::start_with_own_stdin(backend, program) }
    }

    pub(crate) fn start_with_own_stdin(backend: Arc<SandboxExecutor>, program: Program) -> Self {
        let host_id = backend.sandbox().host_id().unwrap();
        let (host_uid, cancel) = (host_id.id(), program.cancel_token());
        Self::start_by(host_uid, cancel, move |sink| program.run_on(&backend, &host_id, sink))
    }

    pub(crate) fn start_over(
        backend: Arc<SandboxExecutor>,
        files: &MountedFiles,
        program: Program,
    ) -> Self {
        let (host_id, mounts) = (files.host_id().clone(), files.mounts());
        let (host_uid, cancel) = (host_id.id(), program.cancel_token());
        let run = move |sink| program.run_over(&backend, &host_id, mounts, sink);
        Self::start_by(host_uid, cancel, run)
    }

    fn start_by(
        host_uid: u32,
        cancel: CancelToken,
        run: impl FnOnce(Option<Box<dyn OutputSink>>) -> Result<RunReport, NotStarted> + Send + 'static,
    ) -> Self {
        let (sender, output) = channel();
        let thread = std::thread::spawn(move || run(Some(Box::new(Teller(sender)))));
        Self { host_uid, cancel, output, seen: String::new(), stdin: None, thread }
    }

    /// Waits until the run has printed `text`.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let began = Instant::now();
        while !self.seen.contains(text) {
            let left = PATIENCE.saturating_sub(began.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("no {text:?} but {:?}: {error}", self.seen),
            }
        }
    }

    /// What the run has printed up to the last text that was waited for.
    pub fn seen(&self) -> &str {
        &self.seen
    }

    /// Cancels the run and waits for its end.
    #[track_caller]
    pub fn cancel(self) -> RunReport {
        self.cancel.cancel();
        self.join()
    }

    /// Closes its stdin and waits for its end.
    #[track_caller]
    pub fn finish(mut self) -> RunReport {
        self.stdin = None;
        self.join()
    }

    /// Waits for its end, or for the reason why it did not start.
    pub fn result(self) -> Result<RunReport, NotStarted> {
        self.thread.join().unwrap()
    }

    /// Waits for the run to end by itself.
    #[track_caller]
    pub fn join(self) -> RunReport {
        let Self { thread, stdin, .. } = self;
        let report = thread.join().unwrap().unwrap();
        drop(stdin);
        report
    }
}

/// Sends output to the test as it comes.
struct Teller(Sender<Vec<u8>>);

impl OutputSink for Teller {
    fn take(&mut self, _: Stream, bytes: &[u8]) {
        // The test may have stopped receiving.
        let _ = self.0.send(bytes.to_vec());
    }
}
