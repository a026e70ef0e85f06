//! Text as a terminal shows it.

use std::iter::Peekable;
use std::str::Chars;

const ESCAPE: char = '\x1b';
const BELL: char = '\x07';
/// One character that begins what `ESC [` begins.
const CONTROL_SEQUENCE: char = '\u{9b}';

/// `text` without escape sequences and without control characters except line ends and tabs.
pub(super) fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ESCAPE => skip_escape(&mut chars),
            CONTROL_SEQUENCE => skip_control_sequence(&mut chars),
            '\n' | '\r' | '\t' => plain.push(c),
            _ if c.is_control() => {}
            _ => plain.push(c),
        }
    }
    plain
}

fn skip_escape(chars: &mut Peekable<Chars<'_>>) {
    match chars.next_if(|c| *c != '\n') {
        Some('[') => skip_control_sequence(chars),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(chars),
        Some(' '..='/') => {
            while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
            chars.next_if(|c| *c != '\n');
        }
        _ => {}
    }
}

/// Skips parameters and the letter that ends them.
fn skip_control_sequence(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
    chars.next_if(|c| ('@'..='~').contains(c));
}

/// Skips a text for the terminal itself, such as a title, which ends with its line at the latest.
fn skip_string(chars: &mut Peekable<Chars<'_>>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        if c == BELL {
            return;
        }
        if c == ESCAPE {
            chars.next_if(|c| *c == '\\');
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_control_characters_are_left_out() {
        for (text, plain) in [
            ("\x1b[31m\x1b[1m2 failed\x1b[0m, 1 passed", "2 failed, 1 passed"),
            ("1\x1b[0m0\x1b[38;5;12m0 passed", "100 passed"),
            ("\u{9b}32mok", "ok"),
            ("\x1b]0;3 passed\x07real", "real"),
            ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1b]0;never ended\nnext", "\nnext"),
            ("\x1b(Bplain\x1b=", "plain"),
            ("9\x08 passed\0", "9 passed"),
            ("\x1b[\nkept", "\nkept"),
            ("\x1b", ""),
            ("a\r\nb\tc", "a\r\nb\tc"),
        ] {
            assert_eq!(without_escapes(text), plain, "{text:?}");
        }
    }
}
