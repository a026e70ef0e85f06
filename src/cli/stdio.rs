//! Reading input files and stdin, and writing to stdout and stderr.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use super::failure::Failure;

/// Reads `path`, or stdin for `-`: at most `bytes_max` bytes and one more, which tells the caller
/// that the input is too long.
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

/// Writes `text` to stdout. A closed pipe is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Write { what: "stdout", source: error })
        }
        _ => Ok(()),
    }
}

/// Writes one line to stderr. Ignores write errors: there is no other stream to report them on.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", for_terminal(line));
}

/// Escapes the control characters that JSON allows and terminals interpret. The text can contain
/// output of programs and servers.
pub fn for_terminal(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() && character != '\n' {
            // Writing to a String does not fail.
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
    fn control_characters_are_escaped_and_the_json_keeps_its_value() {
        let output = "a\u{1b}[2J\u{9b}2J\u{7f}é\n";
        let text = for_terminal(&serde_json::to_string_pretty(output).unwrap());
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), output);
    }
}
