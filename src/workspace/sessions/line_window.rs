//! The last lines of a session's output. Lines are numbered from the start and keep their numbers.

use std::collections::VecDeque;
use std::ops::Range;

use cofferdam_core::Stream;

use super::kept_bytes::KeptBytes;

/// How many lines are kept.
pub const LINES_MAX: usize = 20_000;
/// How many bytes of lines are kept, with one for the end of each line.
pub const LINES_BYTES_MAX: usize = 4 << 20;
/// A longer line is broken, bytes.
pub const LINE_BYTES_MAX: u64 = 64 << 10;
/// The most bytes of a character.
const CHARACTER_BYTES_MAX: u64 = 4;

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

/// Where the last lines of both streams are, in the order in which they ended.
#[derive(Debug, Default)]
pub struct LineWindow {
    /// The number of the first line that is kept.
    first: u64,
    lines: VecDeque<KeptLine>,
    /// The bytes of `lines`, with one for the end of each.
    bytes: usize,
    unfinished: [UnfinishedLine; 2],
    /// How many bytes of each stream no line needs.
    unneeded: [u64; 2],
    /// How many unfinished lines have begun: of two, the one that began first is shown first.
    begun: u64,
}

/// The place of a line in its stream, without its end.
#[derive(Debug, Clone, Copy)]
struct KeptLine {
    start: u64,
    bytes: u32,
    stream: Stream,
}

/// The start of a line whose end has not arrived.
#[derive(Debug, Default)]
struct UnfinishedLine {
    start: u64,
    end: u64,
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

    /// How many bytes of unfinished lines a page shows that reaches the end.
    pub fn unfinished_bytes(&self, kept: &[KeptBytes; 2]) -> u64 {
        let visible = self.by_age().map(|stream| self.visible(stream, kept));
        visible.map(|place| place.end - place.start).sum()
    }

    /// Adds output of `stream`, which `kept` ends with. Returns how many bytes of each stream it needs
    /// no longer.
    pub fn push(&mut self, stream: Stream, bytes: &[u8], kept: &[KeptBytes; 2]) -> [u64; 2] {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            self.extend(stream, part, kept);
            if parts.peek().is_some() {
                self.end_line(stream, kept);
            }
        }
        self.unneeded
    }

    /// Makes lines of the unfinished ones. The program has ended.
    pub fn finish(&mut self) {
        for stream in self.by_age() {
            let UnfinishedLine { start, end, .. } = self.unfinished[stream as usize];
            if start < end {
                self.add(stream, start..end, end);
            }
        }
    }

    /// The lines from number `from` on, at most `limit`; `from` is moved into what is kept.
    pub fn read(&self, from: u64, limit: Option<usize>, kept: &[KeptBytes; 2]) -> LinePage {
        let offset = from.clamp(self.first, self.total());
        let skipped = usize::try_from(offset - self.first).unwrap_or(usize::MAX);
        let shown = self.lines.iter().skip(skipped).take(limit.unwrap_or(usize::MAX));
        let mut shown: Vec<(Stream, Range<u64>)> = shown.map(KeptLine::place).collect();
        let next_offset = offset + shown.len() as u64;
        let lines = shown.len();
        if next_offset == self.total() {
            let unfinished = self.by_age().map(|stream| (stream, self.visible(stream, kept)));
            // An unfinished line that has no visible byte yet is left out.
            shown.extend(unfinished.filter(|(_, place)| !place.is_empty()));
        }
        let partial = shown.len() > lines;
        LinePage { offset, next_offset, partial, text: joined(&shown, kept) }
    }

    fn extend(&mut self, stream: Stream, mut part: &[u8], kept: &[KeptBytes; 2]) {
        let kept = &kept[stream as usize];
        while !part.is_empty() {
            let line = &mut self.unfinished[stream as usize];
            if line.start == line.end {
                self.begun += 1;
                line.began = self.begun;
            }
            // A carriage return may belong to the end of the line, so there is room for it.
            let room = (LINE_BYTES_MAX + 1).saturating_sub(line.end - line.start);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let (now, later) = part.split_at(room.min(part.len()));
            line.end += now.len() as u64;
            part = later;
            let (start, end) = (line.start, line.end);
            let is_full = end - start > LINE_BYTES_MAX && !ends_in_return(start..end, kept);
            if is_full || !part.is_empty() {
                let end = before_character(start..start + LINE_BYTES_MAX, kept);
                self.add(stream, start..end, end);
            }
        }
    }

    fn end_line(&mut self, stream: Stream, kept: &[KeptBytes; 2]) {
        let UnfinishedLine { start, end, .. } = self.unfinished[stream as usize];
        let has_return = ends_in_return(start..end, &kept[stream as usize]);
        self.add(stream, start..end - u64::from(has_return), end + 1);
    }

    /// Makes a line of `place`. The next one of its stream begins at `next`.
    fn add(&mut self, stream: Stream, place: Range<u64>, next: u64) {
        let unfinished = &mut self.unfinished[stream as usize];
        unfinished.end = unfinished.end.max(next);
        unfinished.start = next;
        if self.lines.len() == self.lines.capacity() {
            // A queue that grows by itself may have room that no line uses.
            let most = (LINES_MAX + 1).saturating_sub(self.lines.len());
            let room = self.lines.len().max(16).min(most);
            self.lines.reserve_exact(room);
        }
        let bytes = u32::try_from(place.end - place.start).unwrap_or(u32::MAX);
        self.lines.push_back(KeptLine { start: place.start, bytes, stream });
        self.bytes += bytes as usize + 1;
        while self.lines.len() > LINES_MAX || self.bytes > LINES_BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.bytes as usize + 1;
            self.first += 1;
            self.unneeded[oldest.stream as usize] = oldest.place().1.end;
        }
    }

    /// The unfinished line of `stream` without the bytes whose meaning is not known yet: the start of
    /// a character, or a carriage return that may end the line.
    fn visible(&self, stream: Stream, kept: &[KeptBytes; 2]) -> Range<u64> {
        let UnfinishedLine { start, end, .. } = self.unfinished[stream as usize];
        let kept = &kept[stream as usize];
        let end = end - u64::from(ends_in_return(start..end, kept));
        start..before_character(start..end, kept)
    }

    /// The streams, the one whose unfinished line began first at the front.
    fn by_age(&self) -> impl Iterator<Item = Stream> + use<> {
        let [stdout, stderr] = &self.unfinished;
        match stderr.began < stdout.began {
            true => [Stream::Stderr, Stream::Stdout],
            false => [Stream::Stdout, Stream::Stderr],
        }
        .into_iter()
    }
}

impl KeptLine {
    fn place(&self) -> (Stream, Range<u64>) {
        (self.stream, self.start..self.start + u64::from(self.bytes))
    }
}

/// The texts at `places`, with a newline between each two.
fn joined(places: &[(Stream, Range<u64>)], kept: &[KeptBytes; 2]) -> Vec<u8> {
    let bytes: u64 = places.iter().map(|(_, place)| place.end - place.start + 1).sum();
    let mut text = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    for (number, (stream, place)) in places.iter().enumerate() {
        if number > 0 {
            text.push(b'\n');
        }
        kept[*stream as usize].copy_to(place.clone(), &mut text);
    }
    text
}

fn ends_in_return(line: Range<u64>, kept: &KeptBytes) -> bool {
    line.start < line.end && kept.byte(line.end - 1) == Some(b'\r')
}

/// The end of `line` without the character at its end that is not complete.
fn before_character(line: Range<u64>, kept: &KeptBytes) -> u64 {
    let from = line.end.saturating_sub(CHARACTER_BYTES_MAX).max(line.start);
    from + cut_before_character(&kept.copy(from..line.end)) as u64
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

    /// Lines with their bytes.
    #[derive(Default)]
    struct Lines {
        window: LineWindow,
        kept: [KeptBytes; 2],
    }

    impl Lines {
        fn push(&mut self, stream: Stream, bytes: &[u8]) {
            self.kept[stream as usize].push(bytes);
            let unneeded = self.window.push(stream, bytes, &self.kept);
            self.kept.iter_mut().zip(unneeded).for_each(|(kept, from)| kept.free_before(from));
        }

        fn finish(&mut self) {
            self.window.finish();
        }

        fn read(&self, from: u64, limit: Option<usize>) -> LinePage {
            self.window.read(from, limit, &self.kept)
        }

        fn first(&self) -> u64 {
            self.window.first()
        }

        fn total(&self) -> u64 {
            self.window.total()
        }
    }

    const LINE_MAX: usize = 64 << 10;

    fn window(pieces: &[&str]) -> Lines {
        let mut window = Lines::default();
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
        let mut window = Lines::default();
        let text = "a€".as_bytes();
        window.push(Stream::Stdout, &text[..2]);
        assert_eq!(window.read(0, None), page(0, 0, "a", true));
        window.push(Stream::Stdout, &text[2..]);
        assert_eq!(window.read(0, None), page(0, 0, "a€", true));
        let mut only = Lines::default();
        only.push(Stream::Stdout, &[0xE2]);
        assert_eq!(only.read(0, None), page(0, 0, "", false));
    }

    #[test]
    fn lines_of_two_streams_do_not_mix() {
        let mut window = Lines::default();
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
        let exact = "x".repeat(LINE_MAX);
        let whole = window(&[&exact, "\r\n"]);
        assert_eq!(whole.read(0, None), page(0, 1, &exact, false));
        let broken = window(&[&exact, "yz\n"]);
        assert_eq!(broken.read(0, None), page(0, 2, &format!("{exact}\nyz"), false));
        let wide = format!("x{}", "é".repeat(LINE_MAX / 2));
        let broken = window(&[&wide]);
        assert_eq!(broken.total(), 1);
        let page = broken.read(0, None);
        assert!(page.partial && str::from_utf8(&page.text).is_ok());
        assert_eq!(page.text.len(), wide.len() + 1);
    }

    #[test]
    fn old_lines_fall_out_and_the_others_keep_their_numbers() {
        let mut window = Lines::default();
        for number in 0..LINES_MAX + 5 {
            window.push(Stream::Stdout, format!("{number}\n").as_bytes());
        }
        assert_eq!((window.first(), window.total()), (5, LINES_MAX as u64 + 5));
        assert_eq!(window.read(0, Some(2)), page(5, 7, "5\n6", false));
        assert_eq!(window.read(u64::MAX, None).offset, window.total());
        let long = "y".repeat(LINE_MAX);
        for _ in 0..100 {
            window.push(Stream::Stdout, long.as_bytes());
            window.push(Stream::Stdout, b"\n");
        }
        let kept = window.read(0, None).text.len();
        assert!(kept <= LINES_BYTES_MAX && kept > LINES_BYTES_MAX - 2 * LINE_MAX, "{kept}");
    }

    #[test]
    fn a_line_that_began_long_ago_is_whole_and_takes_no_other_line_with_it() {
        let mut lines = Lines::default();
        lines.push(Stream::Stderr, b"began");
        for number in 0..6_000 {
            lines.push(Stream::Stdout, format!("{number:01023}\n").as_bytes());
        }
        lines.push(Stream::Stderr, b" and ended\n");
        let page = lines.read(lines.total() - 2, None);
        let last = format!("{:01023}\nbegan and ended", 5_999);
        assert_eq!(page.text, last.as_bytes());
        assert_eq!(lines.total() - lines.first(), 4096);
    }

    #[test]
    fn memory_is_that_of_the_lines_whatever_they_are() {
        let mut lines = Lines::default();
        let long = "y".repeat(LINE_MAX - 5);
        for number in 0..24_000 {
            let stream = if number % 3 == 0 { Stream::Stderr } else { Stream::Stdout };
            lines.push(stream, b"\r\n\n\r\r\n");
            lines.push(stream, if number % 100 == 0 { long.as_bytes() } else { b"xy" });
        }
        let held: usize = lines.kept.iter().map(KeptBytes::held).sum();
        assert!(held <= LINES_BYTES_MAX + 6 * LINE_MAX, "{held} bytes");
        assert!(lines.window.lines.capacity() <= LINES_MAX + 1);
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
            let mut pieces = Lines::default();
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
