//! What is printed of jobs, and the exit codes of their ends.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::super::failure::{Failure, TIME_LIMIT};
use super::super::signals::Signals;
use cofferdam_core::job::JobStatus;

/// Somebody asked for the job's end: as a shell tells of an interrupt.
pub const CANCELED: u8 = 130;
/// How often a signal is looked for while a reader lets us wait.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a reader may take for the result once a signal came.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The exit code that tells of a job that is over.
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

/// Prints `value`: laid out for people on a terminal, in one line otherwise.
pub fn print(value: &impl Serialize) -> Result<(), Failure> {
    write(&text_of(value)?)
}

/// As [`print`], where signals do not end this process by themselves: after one, a reader that
/// reads no more is not waited for.
pub fn print_attended(value: &impl Serialize, signals: &Signals) -> Result<(), Failure> {
    let text = text_of(value)?;
    let (sender, written) = channel();
    let writer = thread::Builder::new().name("output".to_owned());
    writer
        .spawn(move || sender.send(write(&text)))
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

/// A reader that has gone has read enough.
fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Write { what: "stdout", source: error })
        }
        _ => Ok(()),
    }
}

/// JSON, or words, with the controls escaped that JSON leaves alone and terminals obey: what
/// programs and servers wrote is in it.
pub fn for_terminal(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() && character != '\n' {
            // A String takes whatever is written into it.
            let _ = write!(text, "\\u{:04x}", u32::from(character));
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_last_state_has_the_code_of_the_contract() {
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

    #[test]
    fn no_control_of_a_program_reaches_a_terminal_and_the_json_says_the_same() {
        let output = "a\u{1b}[2J\u{9b}2J\u{7f}é\n";
        let text = for_terminal(&serde_json::to_string_pretty(output).unwrap());
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), output);
    }
}
