//! Changes as lines and as JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::changes::PathDifference;
use super::states::NodeKind;

/// Writes one line for each change, sorted by the bytes of the paths.
pub fn write_lines(changes: &[(Vec<u8>, PathDifference)], mut out: impl Write) -> io::Result<()> {
    let mut text = String::new();
    for (path, difference) in changes {
        text.push(difference.letter().letter());
        text.push(' ');
        text += &printed(path);
        text.push('\n');
    }
    out.write_all(text.as_bytes())
}

#[derive(Debug, Serialize)]
struct ChangeJson {
    path: String,
    change: char,
    kind: &'static str,
    bytes: u64,
    mode: String,
}

/// Writes the changes as JSON. A path that was removed has the kind, bytes and mode that it had.
pub fn write_json(changes: &[(Vec<u8>, PathDifference)], mut out: impl Write) -> io::Result<()> {
    let rows = changes.iter().filter_map(|(path, difference)| {
        let state = difference.after.or(difference.before)?;
        let bytes = if state.kind == NodeKind::Directory { 0 } else { state.bytes };
        Some(ChangeJson {
            path: json_path(path),
            change: difference.letter().letter(),
            kind: state.kind.word(),
            bytes,
            mode: format!("{:04o}", state.mode),
        })
    });
    let mut text = serde_json::to_vec(&rows.collect::<Vec<_>>())?;
    text.push(b'\n');
    out.write_all(&text)
}

/// A path in one line: with control characters, quotes, backslashes and bytes that are not UTF-8 it is quoted
/// as git quotes it.
pub fn printed(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) if !text.contains(|c: char| c.is_control() || c == '"' || c == '\\') => {
            text.to_owned()
        }
        _ => quoted(path),
    }
}

/// JSON has no way to write other bytes than UTF-8.
fn json_path(path: &[u8]) -> String {
    std::str::from_utf8(path).map_or_else(|_| quoted(path), str::to_owned)
}

fn quoted(path: &[u8]) -> String {
    let mut text = String::from("\"");
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => text += "\\\"",
                '\\' => text += "\\\\",
                '\n' => text += "\\n",
                '\t' => text += "\\t",
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    c.encode_utf8(&mut bytes)
                        .bytes()
                        .for_each(|byte| text += &format!("\\{byte:03o}"));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text += &format!("\\{byte:03o}"));
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_printed_in_one_line() {
        for (path, text) in [
            (&b"a/b c"[..], "a/b c"),
            ("ü".as_bytes(), "ü"),
            (b"a\nb", r#""a\nb""#),
            (b"a\"b\\", r#""a\"b\\""#),
            (b"\xff\x1b[0m", r#""\377\033[0m""#),
        ] {
            assert_eq!(printed(path), text);
        }
        assert_eq!(json_path(b"a\nb"), "a\nb");
    }
}
