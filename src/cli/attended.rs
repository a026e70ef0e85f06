//! A run that our own streams and signals take part in.

use std::io;

use nix::errno::Errno;

use super::failure::{BY_SIGNAL, Failure, SANDBOX, code_of};
use super::passthrough::{self, Broken};
use super::signals::Signals;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{Outcome, OutputSink, SetupFailure, Stream, Watch};

/// SIGPIPE's number is the same everywhere, and what a program dies of whose reader has gone.
const BY_BROKEN_PIPE: u8 = BY_SIGNAL + 13;

/// One run in the foreground: SIGTERM and SIGINT end it, and so does a reader
/// of its output that has gone.
#[derive(Debug)]
pub struct Attended {
    cancel: CancelToken,
    signals: Signals,
}

impl Attended {
    /// From here on the signals end the run and not this process.
    pub fn begin() -> Result<Self, Failure> {
        let begin = || {
            let (signals, cancel) = Signals::that_cancel()?;
            Ok(Self { cancel, signals })
        };
        begin().map_err(|error: io::Error| SetupFailure::from_io("signals", &error).into())
    }

    /// What may end the run.
    pub fn watch(&self) -> Watch {
        Watch { cancel: self.cancel.clone(), client: None }
    }

    /// Runs `run` with a sink that leads to our own stdout and stderr, and
    /// waits until they have everything.
    pub fn pass_through<T>(
        &self,
        run: impl FnOnce(Box<dyn OutputSink>) -> T,
    ) -> Result<(T, Option<Broken>), Failure> {
        let failed = |error: io::Error| SetupFailure::from_io("output", &error);
        let (sink, writers) = passthrough::open(&self.cancel).map_err(failed)?;
        let result = run(Box::new(sink));
        Ok((result, writers.wait().map_err(failed)?))
    }

    /// Writes `text` to stdout; a signal ends even that.
    pub fn print(&self, text: &str) -> Result<Option<Broken>, Failure> {
        let print = |mut sink: Box<dyn OutputSink>| sink.take(Stream::Stdout, text.as_bytes());
        Ok(self.pass_through(print)?.1)
    }

    /// The exit code: a signal's, else that of the way the run ended.
    pub fn exit_code(
        &self,
        outcome: Result<Outcome, Failure>,
        broken: Option<Broken>,
    ) -> Result<u8, Failure> {
        if let Some(code) = self.signals.exit_code() {
            return Ok(code);
        }
        let outcome = outcome?;
        match broken {
            Some(Broken { stream, errno }) if errno != Errno::EPIPE => {
                let what = match stream {
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
                };
                Err(Failure::Write { what, source: errno.into() })
            }
            // It ended for its reader's sake, and as quietly as any program in a pipeline.
            Some(_) if outcome == Outcome::Cancelled => Ok(BY_BROKEN_PIPE),
            _ => Ok(code_of(outcome).unwrap_or(SANDBOX)),
        }
    }
}
