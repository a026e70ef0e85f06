//! A run's output: the sink that takes it as it arrives, and the captured streams.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes a run's output while the program runs.
///
/// The supervising thread calls it, so no method may block. A sink that is full returns false from
/// [`has_room`](Self::has_room) and is asked again when [`room_fd`](Self::room_fd) becomes readable.
pub trait OutputSink: Send {
    /// Takes the next bytes of `stream`. The output limit is already applied, unless the sink takes
    /// excess output.
    fn take(&mut self, stream: Stream, bytes: &[u8]);

    /// Whether the sink also takes the output that the report drops (see
    /// [`ExcessOutput::Dropped`](crate::ExcessOutput)).
    fn takes_excess(&self) -> bool {
        false
    }

    /// Whether the sink is the only reader. The report then counts the bytes but does not keep them.
    fn is_only_reader(&self) -> bool {
        false
    }

    /// Whether `take` may be called now. While it is false, the program's pipe fills up and the
    /// program blocks.
    fn has_room(&self) -> bool {
        true
    }

    /// The sink for what processes write that the program left, if that is wanted. It has no end, and
    /// may write for as long as they live.
    fn after_program(self: Box<Self>) -> Option<Box<dyn OutputSink>> {
        None
    }

    /// A descriptor that becomes readable when there may be room again. Only a sink whose
    /// `has_room` can return false needs one.
    fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The output that a program wrote to stdout or stderr, up to the limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapturedStream {
    /// The kept bytes, from the first.
    pub bytes: Vec<u8>,
    /// How many bytes arrived, kept or not.
    pub bytes_total: u64,
    /// Whether more bytes arrived than were kept.
    pub truncated: bool,
}

impl CapturedStream {
    /// The kept bytes as text. U+FFFD replaces invalid UTF-8; a character that the limit cut in two
    /// is left out.
    pub fn text(&self) -> Cow<'_, str> {
        let bytes = self.whole_characters();
        // The check of a large text is much faster than its conversion, which also copies it.
        str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
    }

    /// The kept bytes without a character that the limit cut in two.
    pub fn whole_characters(&self) -> &[u8] {
        if self.truncated { without_cut_character(&self.bytes) } else { &self.bytes }
    }
}

/// `bytes` without an incomplete UTF-8 character at the end.
fn without_cut_character(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes.get(bytes.len().saturating_sub(4)..).unwrap_or(bytes)) {
        Ok(_) => bytes,
        Err(_) => {
            let tail_start = bytes.len()
                - bytes.iter().rev().take(4).take_while(|b| is_continuation(**b)).count();
            let lead = tail_start.checked_sub(1).and_then(|at| bytes.get(at));
            match lead {
                Some(lead) if bytes.len() - tail_start + 1 < character_bytes(*lead) => {
                    bytes.get(..tail_start - 1).unwrap_or(bytes)
                }
                _ => bytes,
            }
        }
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The length in bytes of the character that starts with `lead`.
fn character_bytes(lead: u8) -> usize {
    match lead {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn cut(bytes: &[u8]) -> String {
        CapturedStream { bytes: bytes.to_vec(), bytes_total: 100, truncated: true }
            .text()
            .into_owned()
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        for (kept, text) in [
            (&b"ab\xC3"[..], "ab"),
            (b"ab\xE2\x82", "ab"),
            (b"ab\xF0\x9F\x98", "ab"),
            (b"ab\xF0\x9F\x98\x80", "ab😀"),
            ("né".as_bytes(), "né"),
            (b"", ""),
        ] {
            assert_eq!(cut(kept), text, "{kept:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_become_replacement_characters() {
        let stream =
            CapturedStream { bytes: b"a\xFFb\xC3".to_vec(), bytes_total: 4, truncated: false };
        assert_eq!(stream.text(), "a\u{FFFD}b\u{FFFD}");
        assert_eq!(cut(b"a\xFF"), "a\u{FFFD}");
        assert_eq!(cut(b"\x80\x80\x80\x80\x80"), "\u{FFFD}".repeat(5));
    }

    /// Characters of every length, whole and truncated, and bytes that start no character.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let broken = (any::<char>(), 1_usize..4).prop_map(|(character, bytes)| {
            let mut piece = character.to_string().into_bytes();
            piece.truncate(bytes);
            piece
        });
        prop_oneof![
            4 => any::<char>().prop_map(|character| character.to_string().into_bytes()),
            1 => broken,
            1 => vec(any::<u8>(), 1..4),
            1 => vec(0x80..=0xBF_u8, 1..6),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_cut_text_is_the_beginning_of_the_whole_one_wherever_the_cut_is(
            text in vec(any::<char>(), 0..12).prop_map(|chars| chars.into_iter().collect::<String>()),
        ) {
            for end in 0..=text.len() {
                let kept = cut(&text.as_bytes()[..end]);
                prop_assert!(text.starts_with(&kept), "{kept:?} of {text:?}");
                prop_assert!(end - kept.len() < 4, "{end} bytes became {}", kept.len());
                prop_assert!(kept.len() == end || !text.is_char_boundary(end));
            }
        }

        #[test]
        fn a_cut_adds_no_replacement_character_to_bytes_of_any_kind(
            pieces in vec(piece(), 0..12),
        ) {
            let bytes = pieces.concat();
            let whole = String::from_utf8_lossy(&bytes);
            for end in 0..=bytes.len() {
                let kept = cut(&bytes[..end]);
                prop_assert!(whole.starts_with(&kept), "{kept:?} of {:?}", &bytes[..end]);
            }
        }
    }
}
