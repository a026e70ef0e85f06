//! The bytes of a program's output, from events with text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::cli::remote::events::ServerSentEvent;
use cofferdam_core::Stream;

/// What stands for bytes that are not text. A program can print it, too.
const REPLACEMENT: char = '\u{FFFD}';

/// The output of a run. Events carry text; from the first replacement character on, a stream is held back for the
/// result, which has the bytes.
#[derive(Debug, Default)]
pub struct ExactOutput {
    /// The byte from which on stdout is held back.
    stdout_from: Option<u64>,
    stderr_from: Option<u64>,
}

/// The streams in a result.
#[derive(Debug, Deserialize)]
struct ResultStreams {
    stdout: String,
    stderr: String,
    encoding: String,
}

impl ExactOutput {
    /// The bytes of `stream` in `event` that are known to be exact.
    pub fn take(&mut self, stream: Stream, event: &ServerSentEvent) -> serde_json::Result<String> {
        let mut text: String = serde_json::from_str(&event.data)?;
        let held_from = match stream {
            Stream::Stdout => &mut self.stdout_from,
            Stream::Stderr => &mut self.stderr_from,
        };
        let offset = event.id.as_deref().and_then(|id| id.parse::<u64>().ok());
        match (&held_from, offset, text.find(REPLACEMENT)) {
            (Some(_), ..) => text.clear(),
            (None, Some(offset), Some(exact)) => {
                *held_from = Some(offset + exact as u64);
                text.truncate(exact);
            }
            _ => {}
        }
        Ok(text)
    }

    /// The bytes that were held back, from the data of the result.
    pub fn finish(self, data: &str) -> serde_json::Result<Vec<(Stream, Vec<u8>)>> {
        let held = [(Stream::Stdout, self.stdout_from), (Stream::Stderr, self.stderr_from)];
        if held.iter().all(|(_, from)| from.is_none()) {
            return Ok(Vec::new());
        }
        let ResultStreams { stdout, stderr, encoding } = serde_json::from_str(data)?;
        let bytes = |text: String| match encoding.as_str() {
            "base64" => STANDARD.decode(text).map_err(serde::de::Error::custom),
            _ => Ok(text.into_bytes()),
        };
        let mut rest = Vec::new();
        for ((stream, from), text) in held.into_iter().zip([stdout, stderr]) {
            let Some(from) = from.and_then(|from| usize::try_from(from).ok()) else { continue };
            let mut bytes = bytes(text)?;
            rest.push((stream, bytes.split_off(from.min(bytes.len()))));
        }
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(id: &str, text: &str) -> ServerSentEvent {
        let (id, data) = (Some(id.to_owned()), json!(text).to_string());
        ServerSentEvent { name: "stdout".to_owned(), id, data }
    }

    #[test]
    fn bytes_that_are_not_text_come_from_the_result() {
        let mut output = ExactOutput::default();
        let mut take = |id, text| output.take(Stream::Stdout, &event(id, text)).unwrap();
        assert_eq!([take("0", "ab"), take("2", "é\u{FFFD}c"), take("6", "d")], ["ab", "é", ""]);
        assert_eq!(output.take(Stream::Stderr, &event("0", "e")).unwrap(), "e");
        let result = json!({
            "stdout": STANDARD.encode(b"ab\xC3\xA9\xFFcd"), "stderr": STANDARD.encode("e"),
            "encoding": "base64",
        });
        let rest = output.finish(&result.to_string()).unwrap();
        assert_eq!(rest, [(Stream::Stdout, b"\xFFcd".to_vec())]);
    }

    #[test]
    fn a_program_may_print_the_replacement_character() {
        let mut output = ExactOutput::default();
        assert_eq!(output.take(Stream::Stderr, &event("7", "x\u{FFFD}y")).unwrap(), "x");
        let stderr = "0123456x\u{FFFD}y";
        let result = json!({"stdout": "", "stderr": stderr, "encoding": "utf-8"});
        let rest = output.finish(&result.to_string()).unwrap();
        assert_eq!(rest, [(Stream::Stderr, "\u{FFFD}y".as_bytes().to_vec())]);
    }

    /// The result keeps no more than its limit.
    #[test]
    fn what_the_result_does_not_have_is_dropped() {
        let mut output = ExactOutput::default();
        output.take(Stream::Stdout, &event("100", "\u{FFFD}")).unwrap();
        let result = json!({"stdout": "abc", "stderr": "", "encoding": "utf-8"});
        let rest = output.finish(&result.to_string()).unwrap();
        assert_eq!(rest, [(Stream::Stdout, Vec::new())]);
        assert!(ExactOutput::default().finish("not JSON").unwrap().is_empty());
    }
}
