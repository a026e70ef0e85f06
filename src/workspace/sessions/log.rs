//! What a session has printed, for those who ask for lines and for those who follow the bytes.

use serde::Serialize;

use super::byte_window::{ByteWindow, OutputChunk};
use super::kept_bytes::KeptBytes;
use super::line_window::{LinePage, LineWindow};
use cofferdam_core::Stream;

/// The output of a session within limits: old lines and bytes fall out.
#[derive(Debug, Default)]
pub struct SessionLog {
    /// The bytes of each stream, for lines and bytes alike.
    kept: [KeptBytes; 2],
    lines: LineWindow,
    bytes: ByteWindow,
    /// The line that the next poll begins with.
    cursor: u64,
    /// Bytes of the unfinished lines that the last poll has shown.
    shown_unfinished: u64,
}

/// How much was printed, and from where on it is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Window {
    /// The number of the first line that is kept.
    pub first_line: u64,
    /// How many lines have ended.
    pub lines: u64,
    /// The offset of the first byte that is kept.
    pub first_byte: u64,
    /// How many bytes were printed.
    pub bytes: u64,
}

impl SessionLog {
    /// Adds output of `stream`.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        self.kept[stream as usize].push(bytes);
        let for_lines = self.lines.push(stream, bytes, &self.kept);
        let for_bytes = self.bytes.push(stream, bytes.len() as u64);
        for ((kept, lines), bytes) in self.kept.iter_mut().zip(for_lines).zip(for_bytes) {
            kept.free_before(lines.min(bytes));
        }
    }

    /// Ends the unfinished lines: the program has ended.
    pub fn finish(&mut self) {
        self.lines.finish();
    }

    /// How much there is.
    pub fn window(&self) -> Window {
        Window {
            first_line: self.lines.first(),
            lines: self.lines.total(),
            first_byte: self.bytes.first(),
            bytes: self.bytes.total(),
        }
    }

    /// Whether a poll would show anything that the last one has not shown. Unfinished lines count when they have
    /// grown: otherwise who waits behind a prompt would not wait.
    pub fn has_news(&self) -> bool {
        self.lines.total() > self.cursor
            || self.lines.unfinished_bytes(&self.kept) > self.shown_unfinished
    }

    /// The lines after those of the last poll, at most `limit`.
    pub fn poll(&mut self, limit: Option<usize>) -> LinePage {
        let page = self.lines.read(self.cursor, limit, &self.kept);
        self.cursor = page.next_offset;
        self.shown_unfinished =
            if page.partial { self.lines.unfinished_bytes(&self.kept) } else { 0 };
        page
    }

    /// The lines from number `offset` on, at most `limit`. Leaves the cursor of polls where it is.
    pub fn read(&self, offset: u64, limit: Option<usize>) -> LinePage {
        self.lines.read(offset, limit, &self.kept)
    }

    /// The bytes from `offset` on: at most `bytes_max`, and of one stream. Nothing at the end.
    pub fn bytes_from(&self, offset: u64, bytes_max: usize) -> Option<OutputChunk> {
        self.bytes.read(offset, bytes_max, &self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn all(log: &SessionLog, mut offset: u64, bytes_max: usize) -> Vec<OutputChunk> {
        let mut read = Vec::new();
        while let Some(chunk) = log.bytes_from(offset, bytes_max) {
            offset = chunk.offset + chunk.bytes.len() as u64;
            read.push(chunk);
        }
        read
    }

    #[test]
    fn streams_keep_their_order_and_share_the_offsets() {
        let mut log = SessionLog::default();
        log.push(Stream::Stdout, b"ab");
        log.push(Stream::Stdout, b"c");
        log.push(Stream::Stderr, b"de");
        let chunk =
            |stream, offset, bytes: &[u8]| OutputChunk { stream, offset, bytes: bytes.into() };
        let whole = [chunk(Stream::Stdout, 0, b"abc"), chunk(Stream::Stderr, 3, b"de")];
        assert_eq!(all(&log, 0, 100), whole);
        assert_eq!(log.bytes_from(1, 1), Some(chunk(Stream::Stdout, 1, b"b")));
        assert_eq!(log.bytes_from(3, 9), Some(chunk(Stream::Stderr, 3, b"de")));
        assert_eq!((log.bytes_from(5, 9), log.bytes_from(99, 9)), (None, None));
    }

    #[test]
    fn the_last_bytes_are_kept_with_their_offsets() {
        let mut log = SessionLog::default();
        let text: Vec<u8> = (0..=250).collect();
        let mut pushed = 0_u64;
        while pushed <= 4 * MIB + 1000 {
            let is_stderr = pushed.is_multiple_of(3);
            log.push(if is_stderr { Stream::Stderr } else { Stream::Stdout }, &text);
            pushed += text.len() as u64;
        }
        let window = log.window();
        assert_eq!((window.bytes, window.first_byte), (pushed, pushed - 4 * MIB));
        let mut next = window.first_byte;
        for chunk in all(&log, 0, 1000) {
            assert_eq!(chunk.offset, next);
            for byte in chunk.bytes {
                assert_eq!(u64::from(byte), next % 251);
                next += 1;
            }
        }
        assert_eq!(next, pushed);
    }

    #[test]
    fn lines_and_bytes_take_memory_once_however_streams_alternate() {
        let mut log = SessionLog::default();
        for number in 0..6 * MIB / 128 {
            log.push(Stream::Stdout, &[b'x'; 64]);
            let end = if number % 9 == 0 { b'\n' } else { b'y' };
            log.push(Stream::Stderr, &[&[b'y'; 63][..], &[end]].concat());
        }
        let held: usize = log.kept.iter().map(KeptBytes::held).sum();
        assert!(held as u64 <= 4 * MIB + MIB / 2, "{held} bytes");
        assert_eq!(log.bytes_from(0, 100).unwrap().bytes.len(), 64);
        assert!(log.poll(None).text.len() as u64 > 2 * MIB);
    }

    #[test]
    fn a_poll_moves_the_cursor_and_a_read_does_not() {
        let mut log = SessionLog::default();
        assert!(!log.has_news());
        log.push(Stream::Stdout, b"a\nb\nc");
        assert_eq!(log.read(0, Some(1)).text, b"a");
        assert_eq!(log.poll(Some(1)).text, b"a");
        assert!(log.has_news());
        assert_eq!(log.poll(None).text, b"b\nc");
        assert!(!log.has_news());
        let again = log.poll(None);
        assert_eq!((&*again.text, again.offset, again.partial), (&b"c"[..], 2, true));
        log.push(Stream::Stdout, b"\xC3");
        assert!(!log.has_news());
        log.push(Stream::Stdout, b"\xA9");
        assert!(log.has_news());
        assert_eq!(log.poll(None).text, "cé".as_bytes());
        log.push(Stream::Stdout, b"\nd");
        assert!(log.has_news());
        assert_eq!(log.poll(Some(1)).text, "cé\nd".as_bytes());
        assert!(!log.has_news());
        log.finish();
        let last = log.poll(None);
        assert_eq!((&*last.text, last.next_offset, last.partial), (&b"d"[..], 4, false));
        assert!(!log.has_news());
        assert_eq!(log.window(), Window { first_line: 0, lines: 4, first_byte: 0, bytes: 9 });
    }
}
