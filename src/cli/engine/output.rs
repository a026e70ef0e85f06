//! Prints answers of the engine.

use std::io::{self, IsTerminal, Read, Write};

use serde::Serialize;

use super::failure::EngineFailure;
use crate::cli::failure::Failure;
use crate::cli::stdio::{for_terminal, print};

/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Prints `value` as one line of JSON.
pub fn print_line(value: &impl Serialize) -> Result<(), Failure> {
    let failed = |error: serde_json::Error| Failure::Write { what: "stdout", source: error.into() };
    print_document(&serde_json::to_string(value).map_err(failed)?)
}

/// Prints `json`, which a service sends as one line.
pub fn print_document(json: &str) -> Result<(), Failure> {
    let json = json.trim_end();
    let line = if io::stdout().is_terminal() { for_terminal(json) } else { json.to_owned() };
    print(&(line + "\n"))
}

/// Prints all bytes of `contents`, each piece after `seen` has it. False if the reader of stdout has closed it, which
/// is not an error.
pub fn print_bytes(
    contents: &mut dyn Read,
    mut seen: impl FnMut(&[u8]),
) -> Result<bool, EngineFailure> {
    let failed = |source| Failure::Write { what: "stdout", source };
    let mut stdout = io::stdout().lock();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = match contents.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(EngineFailure::io("read the answer", &error)),
        };
        let piece = buffer.get(..count).unwrap_or_default();
        seen(piece);
        match stdout.write_all(piece) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
            written => written.map_err(failed)?,
        }
    }
    stdout.flush().map_err(failed)?;
    Ok(true)
}
