//! The way of commands to the proxy: connections to a port of the container, relayed over the helper's pipe.
//!
//! Each side of the pipe has a socket for each connection. A side sends at most a window of bytes that the other has
//! not passed on yet, so that no connection fills the pipe.

mod way_out;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::PollFlags;

use super::frame::{DATA_BYTES_MAX, FrameKind, frame};

pub(super) use self::way_out::{TRUST_DIRECTORY, TrustedFile, WayOut};

/// Connections of one command.
pub(super) const RELAYS_MAX: usize = 64;
/// Bytes on the way in one direction of one connection.
const WINDOW_BYTES: usize = 128 << 10;

/// One side of all connections.
#[derive(Debug, Default)]
pub(super) struct Relays {
    ends: BTreeMap<u32, RelayEnd>,
    opened: u32,
}

/// One side of a connection.
#[derive(Debug)]
struct RelayEnd {
    socket: TcpStream,
    /// What the other side sent, and the socket has not taken yet.
    waiting: Vec<u8>,
    /// Bytes that may be sent to the other side.
    credit: usize,
    /// Whether all of the socket is read.
    has_ended: bool,
    /// Whether the other side sends no more.
    has_peer_ended: bool,
}

impl Relays {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a connection that was made here. Returns the frame that says so.
    pub(super) fn open(&mut self, socket: TcpStream) -> io::Result<Vec<u8>> {
        self.opened = self.opened.wrapping_add(1);
        self.add(self.opened, socket)?;
        frame(FrameKind::RelayOpened, &self.opened.to_le_bytes())
    }

    /// Adds the connection `id` of the other side.
    pub(super) fn add(&mut self, id: u32, socket: TcpStream) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let end = RelayEnd {
            socket,
            waiting: Vec::new(),
            credit: WINDOW_BYTES,
            has_ended: false,
            has_peer_ended: false,
        };
        self.ends.insert(id, end);
        Ok(())
    }

    /// Closes all of them.
    pub(super) fn close(&mut self) {
        self.ends.clear();
    }

    /// What they wait for.
    pub(super) fn sources(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.ends.values().filter_map(|end| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, end.credit > 0 && !end.has_ended);
            flags.set(PollFlags::POLLOUT, !end.waiting.is_empty());
            (!flags.is_empty()).then(|| (end.socket.as_fd(), flags))
        })
    }

    /// Takes a frame of the other side. One of a connection that is closed here does nothing.
    ///
    /// # Errors
    /// It is no such frame, or has more bytes than there is room for.
    pub(super) fn take(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let (id, rest) = relay_id(payload)?;
        let Some(end) = self.ends.get_mut(&id) else { return Ok(()) };
        match kind {
            FrameKind::RelayData if end.waiting.len() + rest.len() <= WINDOW_BYTES => {
                end.waiting.extend_from_slice(rest);
            }
            FrameKind::RelayTaken => {
                let (count, _) = relay_id(rest)?;
                let count = usize::try_from(count).map_err(io::Error::other)?;
                end.credit = end.credit.saturating_add(count).min(WINDOW_BYTES);
            }
            FrameKind::RelayEnded => end.has_peer_ended = true,
            FrameKind::RelayClosed => drop(self.ends.remove(&id)),
            _ => return Err(io::Error::other("an unexpected frame of a connection")),
        }
        Ok(())
    }

    /// Passes on what can be passed on. Returns the frames for the other side.
    pub(super) fn advance(&mut self) -> io::Result<Vec<u8>> {
        let mut frames = Vec::new();
        let mut closed = Vec::new();
        for (id, end) in &mut self.ends {
            let is_open = end.advance(*id, &mut frames)?;
            if !is_open {
                closed.push(*id);
            }
        }
        for id in closed {
            self.ends.remove(&id);
        }
        Ok(frames)
    }
}

impl RelayEnd {
    /// Returns whether the connection is still needed.
    fn advance(&mut self, id: u32, frames: &mut Vec<u8>) -> io::Result<bool> {
        if !self.has_ended && self.credit > 0 {
            let mut buffer = vec![0; DATA_BYTES_MAX.min(self.credit)];
            match self.socket.read(&mut buffer) {
                Ok(0) => {
                    self.has_ended = true;
                    frames.extend(frame(FrameKind::RelayEnded, &id.to_le_bytes())?);
                }
                Ok(count) => {
                    self.credit -= count;
                    let bytes = buffer.get(..count).unwrap_or_default();
                    frames
                        .extend(frame(FrameKind::RelayData, &[&id.to_le_bytes(), bytes].concat())?);
                }
                Err(error) if is_again(&error) => {}
                Err(_) => return closed(id, frames),
            }
        }
        if !self.waiting.is_empty() {
            match self.socket.write(&self.waiting) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    let count = u32::try_from(count).map_err(io::Error::other)?;
                    let payload = [id.to_le_bytes(), count.to_le_bytes()].concat();
                    frames.extend(frame(FrameKind::RelayTaken, &payload)?);
                }
                Err(error) if is_again(&error) => {}
                Err(_) => return closed(id, frames),
            }
        }
        if self.waiting.is_empty() && self.has_peer_ended {
            let _ = self.socket.shutdown(Shutdown::Write);
            return Ok(!self.has_ended);
        }
        Ok(true)
    }
}

/// The frame that closes the connection `id`.
pub(super) fn close_frame(id: u32) -> io::Result<Vec<u8>> {
    frame(FrameKind::RelayClosed, &id.to_le_bytes())
}

/// The connection that `payload` is about, and the rest of it.
pub(super) fn relay_id(payload: &[u8]) -> io::Result<(u32, &[u8])> {
    let (id, rest) =
        payload.split_first_chunk().ok_or_else(|| io::Error::other("a short frame"))?;
    Ok((u32::from_le_bytes(*id), rest))
}

fn closed(id: u32, frames: &mut Vec<u8>) -> io::Result<bool> {
    frames.extend(close_frame(id)?);
    Ok(false)
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::cell::host::container::frame::FrameBuffer;
    use std::net::TcpListener;

    /// A connection: its end for a program, and its end for a relay.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// Passes on what both sides have until neither has anything.
    fn settle(sides: &mut [Relays; 2]) {
        let mut idle = 0;
        while idle < 20 {
            let mut is_idle = true;
            for from in [0, 1] {
                let frames = sides[from].advance().unwrap();
                is_idle &= frames.is_empty();
                let mut buffer = FrameBuffer::default();
                buffer.add(&frames);
                while let Some(frame) = buffer.next().unwrap() {
                    sides[1 - from].take(frame.kind, &frame.payload).unwrap();
                }
            }
            idle = if is_idle { idle + 1 } else { 0 };
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn bytes_and_ends_are_relayed_both_ways() {
        let ((mut program, inside), (mut proxy, outside)) = (pair(), pair());
        let mut sides = [Relays::default(), Relays::default()];
        sides[0].open(inside).unwrap();
        sides[1].add(1, outside).unwrap();
        program.write_all(b"asked").unwrap();
        program.shutdown(Shutdown::Write).unwrap();
        settle(&mut sides);
        let mut asked = String::new();
        proxy.read_to_string(&mut asked).unwrap();
        proxy.write_all(b"answered").unwrap();
        drop(proxy);
        settle(&mut sides);
        let mut answered = String::new();
        program.read_to_string(&mut answered).unwrap();
        assert_eq!((asked.as_str(), answered.as_str()), ("asked", "answered"));
        assert_eq!((sides[0].len(), sides[1].len()), (0, 0));
    }

    #[test]
    fn a_reader_that_waits_holds_no_more_than_a_window() {
        let ((mut program, inside), (_proxy, outside)) = (pair(), pair());
        let mut sides = [Relays::default(), Relays::default()];
        sides[0].open(inside).unwrap();
        sides[1].add(1, outside).unwrap();
        program.set_nonblocking(true).unwrap();
        let block = vec![0; 1 << 20];
        for _ in 0..64 {
            let _ = program.write(&block);
            settle(&mut sides);
            assert!(sides[1].ends[&1].waiting.len() <= WINDOW_BYTES);
            if !sides[1].ends[&1].waiting.is_empty() {
                break;
            }
        }
        let payload = [&1_u32.to_le_bytes()[..], &vec![0; WINDOW_BYTES + 1]].concat();
        assert!(sides[1].take(FrameKind::RelayData, &payload).is_err());
    }
}
