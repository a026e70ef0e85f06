//! Texts for a model, within bounds (pure).

/// The most bytes of what a tool answers.
pub(super) const ANSWER_BYTES_MAX: usize = 32 << 10;

/// `text` in at most about `bytes_max` bytes: its beginning and its end, with a note between them.
pub(super) fn cut(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let head = text.floor_char_boundary(bytes_max / 2);
    let tail = text.ceil_char_boundary(text.len() - bytes_max / 2);
    let left_out = tail - head;
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    format!("{}\n[{left_out} bytes left out]\n{}", part(0..head), part(tail..text.len()))
}

/// The lines of `text` from line `first`, which is at least 1, at most `lines_max`, with a note if there are more.
pub(super) fn lines(text: &str, first: usize, lines_max: usize) -> String {
    let mut rest = text.split_inclusive('\n').skip(first.saturating_sub(1));
    let mut shown: String = rest.by_ref().take(lines_max).collect();
    let left = rest.count();
    if left > 0 {
        shown.push_str(&format!("[{left} more lines]\n"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end_in_whole_characters() {
        for (text, wanted) in [
            ("0123456789", "0123456789"),
            ("0123456789x", "01234\n[1 bytes left out]\n6789x"),
            ("éééééé", "éé\n[4 bytes left out]\néé"),
        ] {
            assert_eq!(cut(text.to_owned(), 10), wanted);
        }
    }

    #[test]
    fn lines_are_counted_from_one_and_the_rest_is_told() {
        let text = "a\nb\nc\nd";
        for (first, lines_max, wanted) in [
            (1, 9, "a\nb\nc\nd"),
            (0, 9, "a\nb\nc\nd"),
            (2, 2, "b\nc\n[1 more lines]\n"),
            (4, 1, "d"),
            (5, 1, ""),
        ] {
            assert_eq!(lines(text, first, lines_max), wanted, "{first} {lines_max}");
        }
    }
}
