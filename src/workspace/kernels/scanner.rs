//! Tells what code printed from the answer of its kernel.

use std::mem;

use cofferdam_core::Stream;

/// The longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Stands before and after the id of a request, and at the end of an answer.
const RECORD_MARK: u8 = 0x1E;

/// Reads both streams of a kernel until the answer to one request is complete.
#[derive(Debug)]
pub struct AnswerScanner {
    stdout: MarkScan,
    stderr: MarkScan,
    answer: AnswerText,
}

/// The answer behind the mark on stdout.
#[derive(Debug)]
enum AnswerText {
    Arriving(Vec<u8>),
    Complete(Vec<u8>),
    TooLong,
}

/// Looks for a mark in one stream.
#[derive(Debug)]
struct MarkScan {
    mark: Vec<u8>,
    /// How many bytes of the mark the stream ends with.
    matched: usize,
    found: bool,
}

impl AnswerScanner {
    /// Waits for the answer to the request with this id.
    pub fn new(id: &str) -> Self {
        Self {
            stdout: MarkScan::new([&[RECORD_MARK], id.as_bytes()].concat()),
            stderr: MarkScan::new([&[RECORD_MARK], id.as_bytes(), &[RECORD_MARK]].concat()),
            answer: AnswerText::Arriving(Vec::new()),
        }
    }

    /// Takes bytes of `stream` apart; returns what the code printed. What follows a complete answer is
    /// dropped: it belongs to no code.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let scan = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let (printed, rest) = scan.push(bytes);
        if stream == Stream::Stdout {
            self.answer(rest);
        }
        printed
    }

    fn answer(&mut self, bytes: &[u8]) {
        let AnswerText::Arriving(text) = &mut self.answer else { return };
        match bytes.iter().position(|byte| *byte == RECORD_MARK) {
            Some(end) => {
                text.extend_from_slice(bytes.get(..end).unwrap_or_default());
                self.answer = AnswerText::Complete(mem::take(text));
            }
            None if text.len() + bytes.len() > ANSWER_BYTES_MAX => {
                self.answer = AnswerText::TooLong;
            }
            None => text.extend_from_slice(bytes),
        }
    }

    /// The answer as JSON, once both streams have reached it.
    pub fn complete(&self) -> Option<&[u8]> {
        match &self.answer {
            AnswerText::Complete(text) if self.stderr.found => Some(text),
            _ => None,
        }
    }

    /// Whether the answer is longer than any answer may be.
    pub fn is_broken(&self) -> bool {
        matches!(self.answer, AnswerText::TooLong)
    }

    /// The bytes that looked like the start of a mark: the kernel ended, and they were none.
    pub fn finish(mut self) -> [(Stream, Vec<u8>); 2] {
        [(Stream::Stdout, self.stdout.held()), (Stream::Stderr, self.stderr.held())]
    }
}

impl MarkScan {
    fn new(mark: Vec<u8>) -> Self {
        Self { mark, matched: 0, found: false }
    }

    /// The bytes before the mark and those after it.
    fn push<'a>(&mut self, bytes: &'a [u8]) -> (Vec<u8>, &'a [u8]) {
        if self.found {
            return (Vec::new(), bytes);
        }
        let mut before = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let Some((byte, behind)) = rest.split_first() {
            if self.mark.get(self.matched) == Some(byte) {
                self.matched += 1;
                rest = behind;
                if self.matched == self.mark.len() {
                    self.found = true;
                    return (before, rest);
                }
                continue;
            }
            // Only the first byte of a mark is a record mark, so a new one can begin there only.
            before.extend(self.held());
            let mark = rest.iter().position(|byte| *byte == RECORD_MARK).unwrap_or(rest.len());
            let (printed, at_mark) = rest.split_at(mark);
            before.extend_from_slice(printed);
            rest = at_mark;
        }
        (before, &[])
    }

    fn held(&mut self) -> Vec<u8> {
        let matched = mem::take(&mut self.matched);
        if self.found { Vec::new() } else { self.mark.get(..matched).unwrap_or_default().to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123abcd";

    fn marked(answer: &str) -> Vec<u8> {
        format!("\x1e{ID}{answer}\x1e").into_bytes()
    }

    #[test]
    fn an_answer_is_complete_when_both_streams_have_reached_it() {
        let mut scanner = AnswerScanner::new(ID);
        assert_eq!(scanner.push(Stream::Stdout, &[b"out", &*marked("{}")].concat()), b"out");
        assert_eq!(scanner.complete(), None);
        assert_eq!(scanner.push(Stream::Stderr, &[b"err", &*marked("")].concat()), b"err");
        assert_eq!(scanner.complete(), Some(&b"{}"[..]));
        assert_eq!(scanner.push(Stream::Stdout, b"late"), b"");
        assert_eq!(scanner.complete(), Some(&b"{}"[..]));
    }

    #[test]
    fn a_mark_of_another_request_is_output() {
        let mut scanner = AnswerScanner::new(ID);
        let other = b"\x1e0123xxxx{}\x1e";
        let mut printed = scanner.push(Stream::Stdout, other);
        assert_eq!(scanner.complete(), None);
        let [(_, held), _] = scanner.finish();
        printed.extend(held);
        assert_eq!(printed, other);
    }

    #[test]
    fn an_endless_answer_is_broken_and_holds_no_memory() {
        let mut scanner = AnswerScanner::new(ID);
        scanner.push(Stream::Stdout, format!("\x1e{ID}").as_bytes());
        for _ in 0..20 {
            scanner.push(Stream::Stdout, &[b'x'; 1 << 20]);
        }
        assert!(scanner.is_broken() && scanner.complete().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_pieces_do_not_matter(
            parts in prop::collection::vec(prop_oneof![Just("a"), Just("\x1e"), Just("\x1e0123"), Just("0123abc"), Just("\n")], 0..12),
            size in 1..7_usize,
        ) {
            let output = parts.concat().into_bytes();
            let whole = [&*output, &*marked("[1]")].concat();
            let mut scanner = AnswerScanner::new(ID);
            scanner.push(Stream::Stderr, &marked(""));
            let printed: Vec<u8> =
                whole.chunks(size).flat_map(|piece| scanner.push(Stream::Stdout, piece)).collect();
            prop_assert_eq!(printed, output);
            prop_assert_eq!(scanner.complete(), Some(&b"[1]"[..]));
        }
    }
}
