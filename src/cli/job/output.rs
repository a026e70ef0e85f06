//! Prints results of jobs, and maps their status to exit codes.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli::failure::{Failure, TIME_LIMIT};
use crate::cli::foreground::signals::Signals;
use crate::cli::stdio::{for_terminal, print};
use cofferdam_core::job::JobStatus;

/// The job was canceled: the code of a shell for an interrupt.
pub const CANCELED: u8 = 130;
/// How often signals are checked while a reader blocks the output.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a reader may take for the result after a signal.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The exit code of a job that has ended with `status`.
pub fn exit_code(status: JobStatus) -> u8 {
    match status {
        JobStatus::Completed => 0,
        JobStatus::Failed | JobStatus::Queued | JobStatus::Running => 1,
        JobStatus::PolicyDenied => 3,
        JobStatus::SetupFailed => 4,
        JobStatus::BackendUnavailable => 5,
        JobStatus::TimedOut => TIME_LIMIT,
        JobStatus::Canceled => CANCELED,
    }
}

/// Prints `value`: indented on a terminal, in one line otherwise.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&text_of(value)?)
}

/// Like [`print_json`], for a process whose signals are handled: after a signal, does not wait for a
/// reader that has stopped reading.
pub fn print_unless_signaled(value: &impl Serialize, signals: &Signals) -> Result<(), Failure> {
    let text = text_of(value)?;
    let (sender, written) = channel();
    let writer = thread::Builder::new().name("output".to_owned());
    writer
        .spawn(move || sender.send(print(&text)))
        .map_err(|source| Failure::Write { what: "stdout", source })?;
    let mut signaled = None;
    loop {
        match written.recv_timeout(LOOK_EVERY) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if signals.exit_code().is_some()
            && signaled.get_or_insert_with(Instant::now).elapsed() > LAST_WORDS
        {
            return Ok(());
        }
    }
}

fn text_of(value: &impl Serialize) -> Result<String, Failure> {
    let text = if io::stdout().is_terminal() {
        serde_json::to_string_pretty(value).map(|text| for_terminal(&text))
    } else {
        serde_json::to_string(value)
    };
    let failed = |error: serde_json::Error| Failure::Write { what: "stdout", source: error.into() };
    Ok(text.map_err(failed)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_terminal_status_has_the_code_of_the_contract() {
        for (status, code) in [
            (JobStatus::Completed, 0),
            (JobStatus::Failed, 1),
            (JobStatus::PolicyDenied, 3),
            (JobStatus::SetupFailed, 4),
            (JobStatus::BackendUnavailable, 5),
            (JobStatus::TimedOut, 124),
            (JobStatus::Canceled, 130),
        ] {
            assert!(status.is_terminal());
            assert_eq!(exit_code(status), code, "{}", status.word());
        }
    }
}
