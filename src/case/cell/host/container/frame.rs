//! Frames: what the executor and the helper in a container send each other over the helper's stdin and stdout.

use std::io;

/// The longest payload, bytes: an order whose every byte is escaped.
const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// The most bytes of a stream in one frame.
pub(super) const DATA_BYTES_MAX: usize = 32 << 10;
/// A kind and a length.
const HEAD_BYTES: usize = 5;

/// What a frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The helper is there: its facts.
    Hello,
    /// Bytes of stdin of the next order.
    Stdin,
    /// An order.
    Order,
    /// The command that runs is killed.
    Kill,
    /// Bytes that the command wrote to stdout.
    Stdout,
    /// Bytes that it wrote to stderr.
    Stderr,
    /// The order is done.
    Reply,
    /// A command has connected to the proxy: the connection's number.
    RelayOpened,
    /// Bytes of a connection, behind its number.
    RelayData,
    /// So many bytes of a connection, behind its number, have been passed on.
    RelayTaken,
    /// A connection has no more bytes.
    RelayEnded,
    /// A connection is closed.
    RelayClosed,
}

impl FrameKind {
    /// Whether it is about a connection.
    pub(super) fn is_relayed(self) -> bool {
        matches!(
            self,
            Self::RelayOpened
                | Self::RelayData
                | Self::RelayTaken
                | Self::RelayEnded
                | Self::RelayClosed
        )
    }
}

/// Every kind with its byte.
const KINDS: [(FrameKind, u8); 12] = [
    (FrameKind::Hello, b'H'),
    (FrameKind::Stdin, b'I'),
    (FrameKind::Order, b'O'),
    (FrameKind::Kill, b'K'),
    (FrameKind::Stdout, b'1'),
    (FrameKind::Stderr, b'2'),
    (FrameKind::Reply, b'R'),
    (FrameKind::RelayOpened, b'o'),
    (FrameKind::RelayData, b'd'),
    (FrameKind::RelayTaken, b't'),
    (FrameKind::RelayEnded, b'e'),
    (FrameKind::RelayClosed, b'c'),
];

/// A frame that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PipeFrame {
    pub(super) kind: FrameKind,
    pub(super) payload: Vec<u8>,
}

/// Bytes that have arrived, of which frames are made.
#[derive(Debug, Default)]
pub(super) struct FrameBuffer(Vec<u8>);

/// The bytes of a frame.
pub(super) fn frame(kind: FrameKind, payload: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(too_long());
    }
    let byte = KINDS.iter().find(|(known, _)| *known == kind).map(|(_, byte)| *byte);
    let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
    bytes.extend(byte);
    bytes.extend(length.to_le_bytes());
    bytes.extend_from_slice(payload);
    Ok(bytes)
}

impl FrameBuffer {
    /// Adds what has arrived.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next frame, if all of it has arrived.
    ///
    /// # Errors
    /// The bytes are no frame.
    pub(super) fn next(&mut self) -> io::Result<Option<PipeFrame>> {
        let Some((head, rest)) = self.0.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let [byte, length @ ..] = *head;
        let kind = KINDS.iter().find(|(_, known)| *known == byte).map(|(kind, _)| *kind);
        let kind = kind.ok_or_else(|| io::Error::other("a frame of an unknown kind"))?;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
        if length > PAYLOAD_BYTES_MAX {
            return Err(too_long());
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let payload = payload.to_vec();
        self.0.drain(..HEAD_BYTES + length);
        Ok(Some(PipeFrame { kind, payload }))
    }
}

fn too_long() -> io::Error {
    io::Error::other("a frame is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_as_they_were_sent_however_they_are_cut() {
        let sent =
            [(FrameKind::Order, "an order"), (FrameKind::Kill, ""), (FrameKind::Stdout, "o")];
        let bytes: Vec<u8> =
            sent.iter().flat_map(|(kind, text)| frame(*kind, text.as_bytes()).unwrap()).collect();
        for piece in 1..bytes.len() {
            let (mut buffer, mut arrived) = (FrameBuffer::default(), Vec::new());
            for part in bytes.chunks(piece) {
                buffer.add(part);
                while let Some(PipeFrame { kind, payload }) = buffer.next().unwrap() {
                    arrived.push((kind, String::from_utf8(payload).unwrap()));
                }
            }
            assert_eq!(arrived, sent.map(|(kind, text)| (kind, text.to_owned())));
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [[b'?', 0, 0, 0, 0], [b'O', 1, 0, 0, 1]] {
            let mut buffer = FrameBuffer::default();
            buffer.add(&bytes);
            assert!(buffer.next().is_err(), "{bytes:?}");
        }
        assert!(frame(FrameKind::Order, &vec![0; PAYLOAD_BYTES_MAX + 1]).is_err());
    }
}
