//! What a command is given as a file, or on stdin.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use super::failure::Failure;

/// What is in `path`, `-` for stdin: at most `bytes_max` bytes and one more, by which a caller
/// sees that there are too many.
pub fn read_input(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    let mut bytes = Vec::new();
    source.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes `text` to stdout. A reader that has gone has read enough.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Write { what: "stdout", source: error })
        }
        _ => Ok(()),
    }
}

/// One line on stderr. Nobody is left to tell when that fails.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", for_terminal(line));
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
    fn no_control_of_a_program_reaches_a_terminal_and_the_json_says_the_same() {
        let output = "a\u{1b}[2J\u{9b}2J\u{7f}é\n";
        let text = for_terminal(&serde_json::to_string_pretty(output).unwrap());
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), output);
    }
}
