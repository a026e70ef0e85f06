//! A run in the foreground: our own streams and signals control it.

pub mod passthrough;
pub mod progress;
pub mod report;
pub mod signals;

use std::io;

use nix::errno::Errno;

use crate::cli::failure::{BY_SIGNAL, Failure, SANDBOX, code_of};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{Outcome, OutputSink, SetupFailure, Stream, Watch};
use passthrough::BrokenStream;
use signals::Signals;

/// The exit code of a program that SIGPIPE (13 everywhere) killed.
const BY_BROKEN_PIPE: u8 = BY_SIGNAL + 13;

/// One run in the foreground. SIGTERM, SIGINT and a closed output pipe end it.
#[derive(Debug)]
pub struct Foreground {
    cancel: CancelToken,
    signals: Signals,
}

impl Foreground {
    /// Makes the signals end the run instead of this process.
    pub fn begin() -> Result<Self, Failure> {
        let begin = || {
            let (signals, cancel) = Signals::cancelling()?;
            Ok(Self { cancel, signals })
        };
        begin().map_err(|error: io::Error| SetupFailure::from_io("signals", &error).into())
    }

    /// The cancel token of the run.
    pub fn watch(&self) -> Watch {
        Watch::of(self.cancel.clone())
    }

    /// Runs `run` with a sink that writes to our own stdout and stderr, and waits until everything
    /// is written.
    pub fn pass_through<T>(
        &self,
        run: impl FnOnce(Box<dyn OutputSink>) -> T,
    ) -> Result<(T, Option<BrokenStream>), Failure> {
        let failed = |error: io::Error| SetupFailure::from_io("output", &error);
        let (sink, writers) = passthrough::open(&self.cancel).map_err(failed)?;
        let result = run(Box::new(sink));
        Ok((result, writers.wait().map_err(failed)?))
    }

    /// Writes `text` to stdout; a signal ends the write.
    pub fn print(&self, text: &str) -> Result<Option<BrokenStream>, Failure> {
        let print = |mut sink: Box<dyn OutputSink>| sink.take(Stream::Stdout, text.as_bytes());
        Ok(self.pass_through(print)?.1)
    }

    /// The exit code of the signal that arrived, if one did.
    pub fn signal_code(&self) -> Option<u8> {
        self.signals.exit_code()
    }

    /// The exit code of the signal if one arrived, otherwise of the outcome.
    pub fn exit_code(
        &self,
        outcome: Result<Outcome, Failure>,
        broken: Option<BrokenStream>,
    ) -> Result<u8, Failure> {
        if let Some(code) = self.signals.exit_code() {
            return Ok(code);
        }
        let outcome = outcome?;
        match broken {
            Some(BrokenStream { stream, errno }) if errno != Errno::EPIPE => {
                let what = match stream {
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
                };
                Err(Failure::Write { what, source: errno.into() })
            }
            // The reader closed the pipe: exit quietly, like any program in a pipeline.
            Some(_) if outcome == Outcome::Cancelled => Ok(BY_BROKEN_PIPE),
            _ => Ok(code_of(outcome).unwrap_or(SANDBOX)),
        }
    }
}
