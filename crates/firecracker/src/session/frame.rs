//! The frames that host and guest exchange: a length, a kind, a body. Pure.
//!
//! The length is four bytes, big-endian, and counts the bytes after it. It is checked against
//! [`FRAME_BYTES_MAX`] before memory is allocated.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::messages::{HelloMessage, RefusalMessage, ReportMessage, RunMessage};
use cofferdam_core::Stream;

/// The most bytes of a frame, without its length.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
/// The most output or input in a frame, bytes.
pub const CHUNK_BYTES_MAX: usize = 16 * 1024;
/// The most output in flight, bytes: sent by the guest and not acknowledged by the host. It fits in
/// any socket buffer, so the hypervisor need not buffer it.
pub const WINDOW_BYTES: usize = 64 * 1024;
const LENGTH_BYTES: usize = 4;

/// One message of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Guest: it is ready.
    Hello(HelloMessage),
    /// Host: the run.
    Run(Box<RunMessage>),
    /// Host: the next bytes of standard input.
    Input(Vec<u8>),
    /// Host: cancel the run.
    Cancel,
    /// Guest: the next bytes of output.
    Output(Stream, Vec<u8>),
    /// Host: it has read this many bytes of output.
    Taken(u32),
    /// Guest: the program did not run.
    Refused(RefusalMessage),
    /// Guest: the program has ended.
    Report(Box<ReportMessage>),
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is too long.
    #[error("a frame of {0} bytes, more than {FRAME_BYTES_MAX}")]
    TooLong(u64),
    /// The length is zero, or the kind is unknown.
    #[error("a frame of unknown kind")]
    NoKind,
    /// The body does not match the kind.
    #[error("a frame with an invalid body: {0}")]
    Malformed(String),
}

impl Frame {
    /// Encodes the frame.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] if the body is too long.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let (kind, body) = match self {
            Self::Hello(hello) => (1, json(hello)?),
            Self::Run(run) => (2, json(run)?),
            Self::Input(bytes) => (3, bytes.clone()),
            Self::Cancel => (4, Vec::new()),
            Self::Output(Stream::Stdout, bytes) => (5, bytes.clone()),
            Self::Output(Stream::Stderr, bytes) => (6, bytes.clone()),
            Self::Refused(refused) => (7, json(refused)?),
            Self::Report(report) => (8, json(report)?),
            Self::Taken(bytes) => (9, bytes.to_be_bytes().to_vec()),
        };
        let length = body.len() + 1;
        let too_long = || FrameError::TooLong(length.try_into().unwrap_or(u64::MAX));
        if length > FRAME_BYTES_MAX {
            return Err(too_long());
        }
        let mut bytes = u32::try_from(length).map_err(|_| too_long())?.to_be_bytes().to_vec();
        bytes.push(kind);
        bytes.extend(body);
        Ok(bytes)
    }

    fn decode(kind: u8, body: &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => Self::Hello(value(body)?),
            2 => Self::Run(value(body)?),
            3 => Self::Input(body.to_vec()),
            4 if body.is_empty() => Self::Cancel,
            4 => return Err(FrameError::Malformed("a cancel with a body".to_owned())),
            5 => Self::Output(Stream::Stdout, body.to_vec()),
            6 => Self::Output(Stream::Stderr, body.to_vec()),
            7 => Self::Refused(value(body)?),
            8 => Self::Report(value(body)?),
            9 => {
                let odd = |_| FrameError::Malformed("an invalid count".to_owned());
                Self::Taken(u32::from_be_bytes(body.try_into().map_err(odd)?))
            }
            _ => return Err(FrameError::NoKind),
        })
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    serde_json::to_vec(value).map_err(malformed)
}

fn value<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(malformed)
}

#[allow(clippy::needless_pass_by_value, reason = "what map_err hands on")]
fn malformed(error: serde_json::Error) -> FrameError {
    // Only the position: the text could quote the sender.
    FrameError::Malformed(format!("line {} column {}", error.line(), error.column()))
}

/// Decodes frames from bytes as they arrive.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    bytes: Vec<u8>,
}

impl FrameDecoder {
    /// Adds the next bytes. Call [`FrameDecoder::next`] until it returns `None` afterwards, so that at
    /// most a frame and these bytes are buffered.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame.
    ///
    /// # Errors
    /// The bytes are not a frame. The rest of the stream cannot be decoded then.
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let told = u32::from_be_bytes(*length);
        let length = usize::try_from(told).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong(told.into()));
        }
        if length == 0 {
            return Err(FrameError::NoKind);
        }
        let Some((kind, body)) = rest.get(..length).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        let frame = Frame::decode(*kind, body)?;
        self.bytes.drain(..LENGTH_BYTES + length);
        Ok(Some(frame))
    }

    /// Whether an incomplete frame is buffered.
    pub fn is_inside(&self) -> bool {
        !self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::session::messages::VERSION;
    use cofferdam_core::executor::Capabilities;
    use cofferdam_core::{Enforced, NotStarted};

    fn hello() -> Frame {
        let enforced = Enforced { memory: Some("cgroup2"), ..Enforced::default() };
        let capabilities = Capabilities { enforced, not_enforced: vec!["é\n".to_owned()] };
        Frame::Hello(HelloMessage { version: VERSION, capabilities: Ok((&capabilities).into()) })
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let bytes = || vec(any::<u8>(), 0..300);
        prop_oneof![
            Just(hello()),
            Just(Frame::Cancel),
            any::<u32>().prop_map(Frame::Taken),
            bytes().prop_map(Frame::Input),
            bytes().prop_map(|bytes| Frame::Output(Stream::Stdout, bytes)),
            bytes().prop_map(|bytes| Frame::Output(Stream::Stderr, bytes)),
            any::<i32>().prop_map(|errno| Frame::Refused((&NotStarted::Exec { errno }).into())),
        ]
    }

    #[test]
    fn an_invalid_frame_is_refused_as_early_as_possible() {
        for (bytes, want) in [
            (&b"\x00\x00\x00\x00"[..], "a frame of unknown kind"),
            (b"\x00\x40\x00\x01", "a frame of 4194305 bytes, more than 4194304"),
            (b"\xFF\xFF\xFF\xFF", "a frame of 4294967295 bytes, more than 4194304"),
            (b"\x00\x00\x00\x01\x0A", "a frame of unknown kind"),
            (b"\x00\x00\x00\x02\x04x", "a frame with an invalid body: a cancel with a body"),
            (b"\x00\x00\x00\x03\x01{}", "a frame with an invalid body: line 1 column 2"),
        ] {
            let mut decoder = FrameDecoder::default();
            decoder.take(bytes);
            assert_eq!(decoder.next().unwrap_err().to_string(), want, "{bytes:?}");
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_sent() {
        let frame = Frame::Input(vec![0; FRAME_BYTES_MAX]);
        assert_eq!(frame.encode(), Err(FrameError::TooLong(4_194_305)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn frames_are_decoded_from_pieces_of_any_size(
            frames in vec(frame(), 1..8), piece in 1_usize..50,
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.encode().unwrap()).collect();
            let mut decoder = FrameDecoder::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(piece) {
                decoder.take(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    found.push(frame);
                }
            }
            prop_assert!(!decoder.is_inside());
            prop_assert_eq!(found, frames);
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..300)) {
            let mut decoder = FrameDecoder::default();
            decoder.take(&bytes);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}
