//! Formats server-sent events and splits output into text at character boundaries.

use std::fmt::Display;

use serde::Serialize;

/// Splits one output stream into text.
#[derive(Debug, Default)]
pub struct TextCutter {
    /// An incomplete character at the end: at most three bytes between calls.
    held: Vec<u8>,
    /// The offset in the stream at which `held` begins, in bytes.
    offset: u64,
}

impl TextCutter {
    /// Adds `bytes` and returns all complete characters with the offset of the first, or `None` if
    /// there are none. Invalid bytes become U+FFFD.
    pub fn cut(&mut self, bytes: &[u8]) -> Option<(u64, String)> {
        self.held.extend_from_slice(bytes);
        let whole = self.held.len() - incomplete_bytes(&self.held);
        self.take(whole)
    }

    /// Returns the held bytes at the end of the stream.
    pub fn finish(&mut self) -> Option<(u64, String)> {
        self.take(self.held.len())
    }

    fn take(&mut self, count: usize) -> Option<(u64, String)> {
        if count == 0 {
            return None;
        }
        let taken: Vec<u8> = self.held.drain(..count).collect();
        let offset = self.offset;
        self.offset += taken.len() as u64;
        Some((offset, String::from_utf8_lossy(&taken).into_owned()))
    }
}

/// Returns how many bytes at the end are an incomplete character.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    let tail = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() => tail.len(),
        _ => 0,
    }
}

/// Formats one event. `id` must not contain a line end. JSON contains no raw line end, so the data
/// fits in one `data` line.
pub fn event(name: &str, id: Option<&dyn Display>, data: &impl Serialize) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_character_waits_for_its_rest() {
        let mut cutter = TextCutter::default();
        assert_eq!(cutter.cut(b"a\xE2\x82"), Some((0, "a".into())));
        assert_eq!(cutter.cut(b""), None);
        assert_eq!(cutter.cut(b"\xACb"), Some((1, "€b".into())));
        assert_eq!(cutter.cut(b"\xFFc\xC3"), Some((5, "\u{FFFD}c".into())));
        assert_eq!(cutter.finish(), Some((7, "\u{FFFD}".into())));
        assert_eq!(cutter.finish(), None);
    }

    #[test]
    fn an_event_is_one_data_line() {
        assert_eq!(
            event("stdout", Some(&7), &"a\r\nb"),
            "event: stdout\nid: 7\ndata: \"a\\r\\nb\"\n\n"
        );
        assert_eq!(event("ping", None, &()), "event: ping\ndata: null\n\n");
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_whole_text(bytes in proptest::collection::vec(any::<u8>(), 0..60), size in 1_usize..7) {
            let mut cutter = TextCutter::default();
            let mut text: String = bytes.chunks(size).filter_map(|piece| cutter.cut(piece)).map(|(_, text)| text).collect();
            text.extend(cutter.finish().map(|(_, text)| text));
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes).into_owned());
            prop_assert!(cutter.offset == bytes.len() as u64);
        }
    }
}
