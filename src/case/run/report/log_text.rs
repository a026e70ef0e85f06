//! What a program wrote, as a text that a page can show.

/// The text of the end of a log: whole characters, lines that end with a newline, no sequences of a terminal.
pub(super) fn log_text(tail: &[u8]) -> String {
    // The end may begin inside a character.
    let inside = tail.iter().take_while(|byte| (0x80..0xc0).contains(*byte)).count();
    let text = String::from_utf8_lossy(tail.get(inside..).unwrap_or_default());
    without_sequences(&text).replace("\r\n", "\n").replace('\r', "\n")
}

/// The text without the sequences by which terminals are given colours and titles.
fn without_sequences(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, sequence)) = rest.split_once('\u{1b}') {
        kept.push_str(before);
        rest = behind_sequence(sequence);
    }
    kept.push_str(rest);
    kept
}

/// What follows the sequence whose escape character is left out.
fn behind_sequence(sequence: &str) -> &str {
    let ends = |c: char| ('@'..='~').contains(&c);
    let behind = |start: &str, end: Option<usize>| {
        // All ends have one byte. A sequence without an end goes to the end of the line.
        let at = end.map_or_else(|| start.find('\n').unwrap_or(start.len()), |end| end + 1);
        start.len() - at
    };
    let left = if let Some(control) = sequence.strip_prefix('[') {
        let line = control.find('\n').unwrap_or(control.len());
        behind(control, control.find(ends).filter(|end| *end < line))
    } else if let Some(title) = sequence.strip_prefix(']') {
        let line = title.find('\n').unwrap_or(title.len());
        behind(title, title.find(['\u{7}', '\u{1b}']).filter(|end| *end < line))
    } else {
        sequence.len()
    };
    sequence.get(sequence.len() - left..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_whole_characters_and_no_sequences() {
        for (tail, wanted) in [
            (&b"plain\n"[..], "plain\n"),
            (b"\xa9\xa9caf\xc3\xa9", "caf\u{e9}"),
            (b"\xff", "\u{fffd}"),
            (b"\x1b[31mred\x1b[0m", "red"),
            (b"\x1b]0;title\x07text", "text"),
            (b"\x1b]0;no end\ntext", "\ntext"),
            (b"\x1b[31\ntext", "\ntext"),
            (b"a\x1bb\x1b", "ab"),
            (b"10%\r20%\r\n", "10%\n20%\n"),
            (b"", ""),
        ] {
            assert_eq!(log_text(tail), wanted, "{tail:?}");
        }
    }
}
