//! What a session and its viewer tell each other.

use serde::Deserialize;
use serde_json::json;
use tungstenite::Message;

use crate::cli::engine::workspace::exit::ProgramEnd;
use cofferdam_core::Stream;

/// The bytes of a message with output before the output: the stream and the offset.
const OUTPUT_HEAD_BYTES: usize = 9;

/// A text message of the service.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SessionMessage {
    /// The first.
    Attached {
        /// Whether the session has a terminal.
        tty: bool,
    },
    /// Output that is no longer there.
    Truncated {
        /// Its first byte.
        from: u64,
        /// The byte after it.
        to: u64,
    },
    /// The last.
    Exit(ProgramEnd),
    /// One of a later version.
    #[serde(other)]
    Unknown,
}

/// The stream and the bytes of a message with output; `None` if it is too short or of another stream.
pub fn output_of(message: &[u8]) -> Option<(Stream, &[u8])> {
    let stream = match message.first()? {
        1 => Stream::Stdout,
        2 => Stream::Stderr,
        _ => return None,
    };
    Some((stream, message.get(OUTPUT_HEAD_BYTES..)?))
}

/// Tells the session the size of the terminal.
pub fn resize((cols, rows): (u16, u16)) -> Message {
    Message::text(json!({"type": "resize", "cols": cols, "rows": rows}).to_string())
}

/// Tells the session that input has ended.
pub fn end_of_input() -> Message {
    Message::text(json!({"type": "eof"}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_has_a_stream_an_offset_and_bytes() {
        let message =
            |stream: u8, text: &str| [&[stream, 0, 0, 0, 0, 0, 0, 0, 7], text.as_bytes()].concat();
        assert_eq!(output_of(&message(1, "ab")), Some((Stream::Stdout, b"ab".as_slice())));
        assert_eq!(output_of(&message(2, "")), Some((Stream::Stderr, b"".as_slice())));
        for wrong in [Vec::new(), vec![1; 8], message(0, "x"), message(3, "x")] {
            assert_eq!(output_of(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn messages_of_later_versions_are_known_as_such() {
        let parse = |text| serde_json::from_str::<SessionMessage>(text);
        assert!(matches!(parse(r#"{"type":"later","x":1}"#), Ok(SessionMessage::Unknown)));
        let attached = parse(r#"{"type":"attached","offset":0,"tty":true,"status":"running"}"#);
        assert!(matches!(attached, Ok(SessionMessage::Attached { tty: true })));
        let exit = parse(r#"{"type":"exit","exit_code":-1,"signal":15,"timed_out":false}"#);
        assert!(matches!(exit, Ok(SessionMessage::Exit(end)) if end.code() == 143));
        assert!(parse(r#"{"type":"attached"}"#).is_err() && parse("[]").is_err());
    }
}
