//! What a session has printed, for those who ask for lines and for those who follow the bytes.

use serde::Serialize;

use super::byte_window::{ByteWindow, OutputChunk};
use super::line_window::{LinePage, LineWindow};
use cofferdam_core::Stream;

/// The output of a session within limits: old lines and bytes fall out.
#[derive(Debug, Default)]
pub struct SessionLog {
    lines: LineWindow,
    bytes: ByteWindow,
    /// The line that the next poll begins with.
    cursor: u64,
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
        self.lines.push(stream, bytes);
        self.bytes.push(stream, bytes);
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

    /// Whether a poll would show anything.
    pub fn has_news(&self) -> bool {
        let page = self.lines.read(self.cursor, Some(1));
        page.partial || page.next_offset > page.offset
    }

    /// The lines after those of the last poll, at most `limit`.
    pub fn poll(&mut self, limit: Option<usize>) -> LinePage {
        let page = self.lines.read(self.cursor, limit);
        self.cursor = page.next_offset;
        page
    }

    /// The lines from number `offset` on, at most `limit`. Leaves the cursor of polls where it is.
    pub fn read(&self, offset: u64, limit: Option<usize>) -> LinePage {
        self.lines.read(offset, limit)
    }

    /// The bytes from `offset` on: at most `bytes_max`, and of one stream. Nothing at the end.
    pub fn bytes_from(&self, offset: u64, bytes_max: usize) -> Option<OutputChunk> {
        self.bytes.read(offset, bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_moves_the_cursor_and_a_read_does_not() {
        let mut log = SessionLog::default();
        assert!(!log.has_news());
        log.push(Stream::Stdout, b"a\nb\nc");
        assert_eq!(log.read(0, Some(1)).text, b"a");
        assert_eq!(log.poll(Some(1)).text, b"a");
        assert!(log.has_news());
        assert_eq!(log.poll(None).text, b"b\nc");
        let again = log.poll(None);
        assert_eq!((&*again.text, again.offset, again.partial), (&b"c"[..], 2, true));
        log.finish();
        let last = log.poll(None);
        assert_eq!((&*last.text, last.next_offset, last.partial), (&b"c"[..], 3, false));
        assert!(!log.has_news());
        assert_eq!(log.window(), Window { first_line: 0, lines: 3, first_byte: 0, bytes: 5 });
    }
}
