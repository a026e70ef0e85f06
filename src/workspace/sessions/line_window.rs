//! The last lines of a session's output. Lines are numbered from the start and keep their numbers.

use std::collections::VecDeque;

use cofferdam_core::Stream;

/// How many lines are kept.
pub const LINES_MAX: usize = 20_000;
/// How many bytes of lines are kept, with one for the end of each line.
pub const LINES_BYTES_MAX: usize = 4 << 20;
/// A longer line is broken, bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A part of the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePage {
    /// The number of the first line.
    pub offset: u64,
    /// The number of the line after the last one.
    pub next_offset: u64,
    /// The lines, joined by a newline each, with the unfinished lines at the end.
    pub text: Vec<u8>,
    /// Whether there are unfinished lines at the end. They have no numbers yet.
    pub partial: bool,
}

/// The last lines of both streams, in the order in which they ended.
#[derive(Debug, Default)]
pub struct LineWindow {
    /// The number of the first line that is kept.
    first: u64,
    lines: VecDeque<Box<[u8]>>,
    /// The bytes of `lines`, with one for the end of each.
    bytes: usize,
    stdout: UnfinishedLine,
    stderr: UnfinishedLine,
    /// How many unfinished lines have begun: of two, the one that began first is shown first.
    begun: u64,
}

/// The start of a line whose end has not arrived.
#[derive(Debug, Default)]
struct UnfinishedLine {
    bytes: Vec<u8>,
    began: u64,
}

impl LineWindow {
    /// The number of the first line that is kept.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many lines have ended, kept or not.
    pub fn total(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// Adds output of `stream`.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            self.extend(stream, part);
            if parts.peek().is_some() {
                self.end_line(stream);
            }
        }
    }

    /// Makes lines of the unfinished ones. The program has ended.
    pub fn finish(&mut self) {
        for stream in self.by_age() {
            if !self.unfinished(stream).bytes.is_empty() {
                let line = std::mem::take(&mut self.unfinished(stream).bytes);
                self.add(line);
            }
        }
    }

    /// The lines from number `from` on, at most `limit`; `from` is moved into what is kept.
    pub fn read(&self, from: u64, limit: Option<usize>) -> LinePage {
        let offset = from.clamp(self.first, self.total());
        let skipped = usize::try_from(offset - self.first).unwrap_or(usize::MAX);
        let limit = limit.unwrap_or(usize::MAX);
        let mut shown: Vec<&[u8]> =
            self.lines.iter().skip(skipped).take(limit).map(|line| &**line).collect();
        let next_offset = offset + shown.len() as u64;
        let lines = shown.len();
        if next_offset == self.total() {
            shown.extend(self.by_age().map(|stream| self.visible(stream)));
            // An unfinished line that has no visible byte yet is left out.
            let mut number = 0;
            shown.retain(|line| {
                number += 1;
                number <= lines || !line.is_empty()
            });
        }
        LinePage { offset, next_offset, partial: shown.len() > lines, text: shown.join(&b'\n') }
    }

    fn extend(&mut self, stream: Stream, mut part: &[u8]) {
        while !part.is_empty() {
            if self.unfinished(stream).bytes.is_empty() {
                self.begun += 1;
                self.unfinished(stream).began = self.begun;
            }
            let line = &mut self.unfinished(stream).bytes;
            // A carriage return may belong to the end of the line, so there is room for it.
            let room = (LINE_BYTES_MAX + 1).saturating_sub(line.len());
            let (now, later) = part.split_at(room.min(part.len()));
            line.extend_from_slice(now);
            part = later;
            let is_full = line.len() > LINE_BYTES_MAX && line.last() != Some(&b'\r');
            if is_full || !part.is_empty() {
                let kept = cut_before_character(line.get(..LINE_BYTES_MAX).unwrap_or(line));
                let rest = line.split_off(kept);
                let broken = std::mem::replace(line, rest);
                self.add(broken);
            }
        }
    }

    fn end_line(&mut self, stream: Stream) {
        let mut line = std::mem::take(&mut self.unfinished(stream).bytes);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        self.add(line);
    }

    fn add(&mut self, line: Vec<u8>) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line.into_boxed_slice());
        while self.lines.len() > LINES_MAX || self.bytes > LINES_BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len() + 1;
            self.first += 1;
        }
    }

    /// The unfinished line of `stream` without the bytes whose meaning is not known yet: the start of
    /// a character, or a carriage return that may end the line.
    fn visible(&self, stream: Stream) -> &[u8] {
        let line = match stream {
            Stream::Stdout => &self.stdout.bytes,
            Stream::Stderr => &self.stderr.bytes,
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.get(..cut_before_character(line)).unwrap_or(line)
    }

    fn unfinished(&mut self, stream: Stream) -> &mut UnfinishedLine {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// The streams, the one whose unfinished line began first at the front.
    fn by_age(&self) -> impl Iterator<Item = Stream> + use<> {
        match self.stderr.began < self.stdout.began {
            true => [Stream::Stderr, Stream::Stdout],
            false => [Stream::Stdout, Stream::Stderr],
        }
        .into_iter()
    }
}

/// The length of `bytes` without the character at its end that is not complete.
pub fn cut_before_character(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let tail = bytes.get(from..).unwrap_or_default();
    let Some(start) = tail.iter().rposition(|byte| byte & 0xC0 != 0x80) else { return bytes.len() };
    let wanted = match tail.get(start) {
        Some(0xC2..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..=0xF4) => 4,
        _ => 1,
    };
    if tail.len() - start < wanted { from + start } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(pieces: &[&str]) -> LineWindow {
        let mut window = LineWindow::default();
        pieces.iter().for_each(|piece| window.push(Stream::Stdout, piece.as_bytes()));
        window
    }

    fn page(offset: u64, next_offset: u64, text: &str, partial: bool) -> LinePage {
        LinePage { offset, next_offset, text: text.into(), partial }
    }

    #[test]
    fn the_unfinished_line_is_repeated_without_a_number_until_it_ends() {
        let mut window = window(&["one\ntw"]);
        assert_eq!(window.read(0, None), page(0, 1, "one\ntw", true));
        assert_eq!(window.read(1, None), page(1, 1, "tw", true));
        window.push(Stream::Stdout, b"o\n");
        assert_eq!(window.read(1, None), page(1, 2, "two", false));
        assert_eq!(window.read(2, None), page(2, 2, "", false));
    }

    #[test]
    fn a_limit_that_leaves_lines_out_leaves_the_unfinished_one_out_too() {
        let window = window(&["a\nb\nc"]);
        assert_eq!(window.read(0, Some(1)), page(0, 1, "a", false));
        assert_eq!(window.read(0, Some(2)), page(0, 2, "a\nb\nc", true));
    }

    #[test]
    fn the_end_of_the_program_ends_its_last_line() {
        let mut window = window(&["a\nb"]);
        window.finish();
        assert_eq!(window.read(0, None), page(0, 2, "a\nb", false));
        let mut window = self::window(&["a\n"]);
        window.finish();
        assert_eq!(window.read(0, None), page(0, 1, "a", false));
    }

    #[test]
    fn the_end_of_a_line_may_arrive_in_two_pieces() {
        let mut window = window(&["a\r"]);
        assert_eq!(window.read(0, None), page(0, 0, "a", true));
        window.push(Stream::Stdout, b"\nb\rc\r\n");
        assert_eq!(window.read(0, None), page(0, 2, "a\nb\rc", false));
    }

    #[test]
    fn an_unfinished_character_is_held_back() {
        let mut window = LineWindow::default();
        let text = "a€".as_bytes();
        window.push(Stream::Stdout, &text[..2]);
        assert_eq!(window.read(0, None), page(0, 0, "a", true));
        window.push(Stream::Stdout, &text[2..]);
        assert_eq!(window.read(0, None), page(0, 0, "a€", true));
        let mut only = LineWindow::default();
        only.push(Stream::Stdout, &[0xE2]);
        assert_eq!(only.read(0, None), page(0, 0, "", false));
    }

    #[test]
    fn lines_of_two_streams_do_not_mix() {
        let mut window = LineWindow::default();
        window.push(Stream::Stderr, b"warn");
        window.push(Stream::Stdout, b"out\nmore");
        window.push(Stream::Stderr, b"ing\n");
        assert_eq!(window.read(0, None), page(0, 2, "out\nwarning\nmore", true));
        window.push(Stream::Stderr, b"x");
        assert_eq!(window.read(2, None), page(2, 2, "more\nx", true));
        window.finish();
        assert_eq!(window.read(2, None), page(2, 4, "more\nx", false));
    }

    #[test]
    fn a_long_line_is_broken_between_characters() {
        let exact = "x".repeat(LINE_BYTES_MAX);
        let whole = window(&[&exact, "\r\n"]);
        assert_eq!(whole.read(0, None), page(0, 1, &exact, false));
        let broken = window(&[&exact, "yz\n"]);
        assert_eq!(broken.read(0, None), page(0, 2, &format!("{exact}\nyz"), false));
        let wide = format!("x{}", "é".repeat(LINE_BYTES_MAX / 2));
        let broken = window(&[&wide]);
        assert_eq!(broken.total(), 1);
        let page = broken.read(0, None);
        assert!(page.partial && str::from_utf8(&page.text).is_ok());
        assert_eq!(page.text.len(), wide.len() + 1);
    }

    #[test]
    fn old_lines_fall_out_and_the_others_keep_their_numbers() {
        let mut window = LineWindow::default();
        for number in 0..LINES_MAX + 5 {
            window.push(Stream::Stdout, format!("{number}\n").as_bytes());
        }
        assert_eq!((window.first(), window.total()), (5, LINES_MAX as u64 + 5));
        assert_eq!(window.read(0, Some(2)), page(5, 7, "5\n6", false));
        assert_eq!(window.read(u64::MAX, None).offset, window.total());
        let long = "y".repeat(LINE_BYTES_MAX);
        for _ in 0..100 {
            window.push(Stream::Stdout, long.as_bytes());
            window.push(Stream::Stdout, b"\n");
        }
        let kept = window.read(0, None).text.len();
        assert!(kept <= LINES_BYTES_MAX && kept > LINES_BYTES_MAX - 2 * LINE_BYTES_MAX, "{kept}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_lines_do_not_depend_on_the_pieces(
            text in prop::collection::vec(prop_oneof![Just("a"), Just("\n"), Just("\r"), Just("é"), Just("bc")], 0..40),
            cuts in prop::collection::vec(0..80_usize, 0..12),
        ) {
            let text = text.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut pieces = LineWindow::default();
            cuts.windows(2).for_each(|cut| pieces.push(Stream::Stdout, &text[cut[0]..cut[1]]));
            pieces.finish();
            let mut model: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let last = model.pop().unwrap();
            model.iter_mut().for_each(|line| if line.last() == Some(&b'\r') { line.pop(); });
            model.extend((!last.is_empty()).then_some(last));
            prop_assert_eq!(pieces.read(0, None).text, model.join(&b'\n'));
            prop_assert_eq!(pieces.total(), model.len() as u64);
        }
    }
}
