//! A WebSocket over the socket of a connection, polled by one task.

use std::io::{self, Read, Write};
use std::sync::Arc;

use axum::body::Bytes;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tungstenite::error::{CapacityError, Error, ProtocolError};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tungstenite::{Message, WebSocket};

/// The longest message of a client, bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How much may be read at once, bytes.
const READ_BYTES: usize = 16 << 10;
/// How much may wait for the client in our memory, bytes. More stays where it comes from.
const WRITE_BYTES: usize = 64 << 10;

/// A WebSocket.
#[derive(Debug)]
pub struct ClientWebSocket {
    protocol: WebSocket<SocketIo>,
    socket: Arc<TcpStream>,
    /// Whether written bytes wait for room in the socket.
    has_pending: bool,
}

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    /// Bytes.
    Binary(Bytes),
    /// A text.
    Text(String),
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketEnd {
    /// The client closed it, or is gone.
    Gone,
    /// The client broke the protocol.
    Protocol,
    /// The client sent a message that is too long.
    TooLong,
}

impl ClientWebSocket {
    /// Speaks WebSocket on `socket`, after the response that accepts it.
    pub fn new(socket: Arc<TcpStream>) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(2 * WRITE_BYTES + MESSAGE_BYTES_MAX)
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let io = SocketIo(Arc::clone(&socket));
        let protocol = WebSocket::from_raw_socket(io, Role::Server, Some(config));
        Self { protocol, socket, has_pending: false }
    }

    /// Whether the client has taken everything, so that more may be sent.
    pub fn has_room(&self) -> bool {
        !self.has_pending
    }

    /// Sends a message; what the socket does not take is kept and sent later.
    pub fn send(&mut self, message: Message) -> Result<(), SocketEnd> {
        let sent = self.protocol.send(message);
        self.note_written(sent)
    }

    /// Tries again to send what is kept.
    pub fn flush(&mut self) -> Result<(), SocketEnd> {
        let flushed = self.protocol.flush();
        self.note_written(flushed)
    }

    /// The next message, if one has arrived. Answers pings.
    pub fn read(&mut self) -> Result<Option<ClientMessage>, SocketEnd> {
        loop {
            match self.protocol.read() {
                Ok(Message::Binary(bytes)) => return Ok(Some(ClientMessage::Binary(bytes))),
                Ok(Message::Text(text)) => {
                    return Ok(Some(ClientMessage::Text(text.as_str().to_owned())));
                }
                Ok(Message::Ping(_)) => self.flush()?,
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(None);
                }
                Err(error) => return Err(end_of(&error)),
            }
        }
    }

    /// Waits until a message may be read or kept bytes may be sent.
    pub async fn ready(&self) -> Result<(), SocketEnd> {
        let interest = match self.has_pending {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        self.socket.ready(interest).await.map(drop).map_err(|_| SocketEnd::Gone)
    }

    /// Waits until kept bytes may be sent.
    pub async fn writable(&self) -> Result<(), SocketEnd> {
        self.socket.writable().await.map_err(|_| SocketEnd::Gone)
    }

    /// Begins to close, and tells the client why.
    pub fn close(&mut self, code: u16, reason: &'static str) -> Result<(), SocketEnd> {
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
        let closed = self.protocol.close(Some(frame));
        self.note_written(closed)
    }

    fn note_written(&mut self, written: Result<(), Error>) -> Result<(), SocketEnd> {
        self.has_pending = false;
        match written {
            Ok(()) => Ok(()),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.has_pending = true;
                Ok(())
            }
            Err(error) => Err(end_of(&error)),
        }
    }
}

fn end_of(error: &Error) -> SocketEnd {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => SocketEnd::TooLong,
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => SocketEnd::Gone,
        Error::Protocol(_) | Error::Utf8(_) | Error::Capacity(_) => SocketEnd::Protocol,
        _ => SocketEnd::Gone,
    }
}

/// Reads and writes the socket without waiting.
#[derive(Debug)]
struct SocketIo(Arc<TcpStream>);

impl Read for SocketIo {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for SocketIo {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
