//! The service handles any output of `make -n test`.
//!
//! `make` is not run: a Makefile is a program of the operator.

#![expect(clippy::panic, reason = "how a property says that it does not hold")]

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::make_process::MakeOutput;
use super::makefile::{ResolveError, command_of};

/// The longest error, in characters: the quote of `make`, and our own words before it.
const WORDS_CHARS_MAX: usize = 320;

/// The input is the exit code, then stdout, then, after the first byte 0xFE, stderr.
pub fn check(input: &[u8]) {
    let Some((code, written)) = input.split_first() else { return };
    let mut streams = written.splitn(2, |byte| *byte == 0xFE);
    let stdout = streams.next().unwrap_or_default();
    let stderr = streams.next().unwrap_or_default();
    let resolved = command_of(
        MakeOutput {
            status: ExitStatus::from_raw(i32::from(*code) << 8),
            stdout: stdout.to_vec(),
            stderr: stderr.to_vec(),
        },
        "test",
    );
    if let Err(error) = &resolved {
        let words = error.to_string();
        assert!(!words.is_empty() && words.chars().count() <= WORDS_CHARS_MAX, "{words:?}");
        assert!(!words.contains('\n'), "{words:?} is not one line");
    }
    match (expected(*code, stdout), resolved) {
        (ExpectedCommand::Command(command), Ok(resolved)) => {
            assert_eq!(resolved.as_bytes(), command);
        }
        (ExpectedCommand::Refusal, Err(ResolveError::Refused(..) | ResolveError::NoTarget(_)))
        | (ExpectedCommand::Nothing, Err(ResolveError::NothingToDo(_)))
        | (ExpectedCommand::NoText, Err(ResolveError::NotText(_))) => {}
        (expected, resolved) => panic!("{expected:?}, and it is {resolved:?}"),
    }
}

#[derive(Debug)]
enum ExpectedCommand {
    Command(Vec<u8>),
    Refusal,
    Nothing,
    NoText,
}

/// The same rules, in bytes: a recipe is stdout without the messages of `make`.
fn expected(code: u8, stdout: &[u8]) -> ExpectedCommand {
    if code != 0 {
        return ExpectedCommand::Refusal;
    }
    let text = stdout.strip_suffix(b"\n").unwrap_or(stdout);
    let own = |line: &&[u8]| !line.starts_with(b"make: ");
    let command = text.split(|byte| *byte == b'\n').filter(own).collect::<Vec<_>>().join(&b'\n');
    match std::str::from_utf8(stdout) {
        Err(_) => ExpectedCommand::NoText,
        Ok(_) if command.utf8_chunks().all(|chunk| chunk.valid().trim().is_empty()) => {
            ExpectedCommand::Nothing
        }
        Ok(_) if command.contains(&0) => ExpectedCommand::NoText,
        Ok(_) => ExpectedCommand::Command(command),
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_fixtures::kept_inputs;

    #[test]
    fn every_kept_input_holds() {
        kept_inputs::replay("makefile_resolution", super::check);
    }
}
