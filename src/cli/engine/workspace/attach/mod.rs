//! `cofferdam workspace attach`: connects our terminal to a session.

mod handshake;
mod message;
mod terminal;
mod wakeups;

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};
use tungstenite::{Bytes, Error, Message};

use self::handshake::{SessionSocket, connect};
use self::message::{SessionMessage, end_of_input, output_of, resize};
use self::terminal::{RawTerminal, local_size};
use self::wakeups::Wakeups;
use crate::cli::engine::failure::EngineFailure;
use crate::cli::failure::{BY_SIGNAL, Failure};
use crate::cli::remote::client::ServerClient;
use crate::cli::stdio::say;
use cofferdam_core::Stream;

/// Input read at a time, bytes; less than the longest message that a service takes.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Output written at a time, bytes: what a pipe that polls as writable takes without blocking.
const OUTPUT_BYTES_MAX: usize = 4096;
/// How often a sign of life is asked for, milliseconds.
const PING_EVERY_MS: u16 = 15_000;
/// How long the service may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long the service may take to close after the last message, milliseconds.
const CLOSE_WAIT_MS: u16 = 1_000;
/// Typed alone, it leaves the session: ^].
const DETACH: &[u8] = b"\x1d";
/// The exit code of a program that SIGPIPE (13 everywhere) killed.
const BY_BROKEN_PIPE: u8 = BY_SIGNAL + 13;

/// Shows the session at `path` until it ends; returns the exit code of its program. With `is_readonly` sends no input.
pub fn attach(client: &ServerClient, path: &str, is_readonly: bool) -> Result<u8, EngineFailure> {
    let failed = |error: io::Error| EngineFailure::io("attach", &error);
    let wakeups = Wakeups::begin().map_err(failed)?;
    let socket = connect(client, path)?;
    let mut attached = AttachedSession {
        client,
        socket,
        wakeups,
        raw: None,
        takes_input: false,
        is_tty: false,
        is_readonly,
        has_unsent: false,
        lost_bytes: 0,
        exit_code: None,
    };
    let end = attached.run();
    // Before anything is printed.
    attached.raw = None;
    if attached.lost_bytes > 0 {
        say(&format!("cofferdam: {} bytes of earlier output are gone", attached.lost_bytes));
    }
    match end {
        AttachEnd::Exit(code) => Ok(code),
        AttachEnd::Failed(failure) => Err(failure),
    }
}

/// Why a session is shown no longer.
enum AttachEnd {
    Exit(u8),
    Failed(EngineFailure),
}

impl From<io::Error> for AttachEnd {
    fn from(error: io::Error) -> Self {
        Self::Failed(EngineFailure::io("attach", &error))
    }
}

struct AttachedSession<'a> {
    client: &'a ServerClient,
    socket: SessionSocket,
    wakeups: Wakeups,
    raw: Option<RawTerminal>,
    takes_input: bool,
    is_tty: bool,
    is_readonly: bool,
    has_unsent: bool,
    /// Output that was no longer there.
    lost_bytes: u64,
    /// The exit code of the program, once it has ended.
    exit_code: Option<u8>,
}

impl AttachedSession<'_> {
    fn run(&mut self) -> AttachEnd {
        let mut heard_at = Instant::now();
        loop {
            match self.step(&mut heard_at) {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
    }

    /// Takes what has arrived, and waits for more.
    fn step(&mut self, heard_at: &mut Instant) -> Result<(), AttachEnd> {
        while let Some(message) = self.receive()? {
            *heard_at = Instant::now();
            self.take(message)?;
        }
        self.flush()?;
        // Signals are noted first, so that a later one wakes the wait.
        if self.wakeups.take_resize() {
            self.send_size()?;
        }
        if let Some(code) = self.wakeups.exit_code() {
            return Err(AttachEnd::Exit(code));
        }
        let ready = self.wait()?;
        if ready.has_input {
            self.forward_input()?;
        }
        if ready.is_silent {
            self.ask_for_life(*heard_at)?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<ReadySources, AttachEnd> {
        let stdin = io::stdin();
        let mut socket_events = PollFlags::POLLIN;
        socket_events.set(PollFlags::POLLOUT, self.has_unsent);
        let mut fds = vec![
            PollFd::new(self.socket.get_ref().as_fd(), socket_events),
            PollFd::new(self.wakeups.as_fd(), PollFlags::POLLIN),
        ];
        // Input waits until what was typed before is on its way.
        if self.takes_input && !self.has_unsent {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        let wait_ms = if self.exit_code.is_some() { CLOSE_WAIT_MS } else { PING_EVERY_MS };
        match poll(&mut fds, PollTimeout::from(wait_ms)) {
            Err(Errno::EINTR) => Ok(ReadySources::default()),
            Err(errno) => Err(io::Error::from(errno).into()),
            Ok(0) => Ok(ReadySources { is_silent: true, has_input: false }),
            Ok(_) => {
                let has_input = fds.get(2).and_then(PollFd::any) == Some(true);
                Ok(ReadySources { has_input, is_silent: false })
            }
        }
    }

    fn take(&mut self, message: Message) -> Result<(), AttachEnd> {
        match message {
            Message::Binary(bytes) => match output_of(&bytes) {
                Some((stream, output)) => self.write_out(stream, output),
                None => Err(self.failed("a message that is not of a session")),
            },
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(SessionMessage::Attached { tty }) => self.begin(tty),
                Ok(SessionMessage::Truncated { from, to }) => {
                    self.lost_bytes += to.saturating_sub(from);
                    Ok(())
                }
                Ok(SessionMessage::Exit(end)) => {
                    self.takes_input = false;
                    self.exit_code = Some(end.code());
                    Ok(())
                }
                Ok(SessionMessage::Unknown) => Ok(()),
                Err(error) => Err(self.failed(&error.to_string())),
            },
            Message::Close(frame) => Err(match (self.exit_code, frame) {
                (Some(code), _) => AttachEnd::Exit(code),
                (None, Some(frame)) => self.lost(&format!(
                    "it closed the session's view: {} {}",
                    frame.code, frame.reason
                )),
                (None, None) => self.lost("it closed the session's view"),
            }),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(()),
        }
    }

    /// Begins to forward input, and the size of our terminal if the session has one.
    fn begin(&mut self, is_tty: bool) -> Result<(), AttachEnd> {
        if self.is_readonly {
            return Ok(());
        }
        self.is_tty = is_tty;
        self.takes_input = true;
        if is_tty {
            self.raw = RawTerminal::begin()?;
        }
        self.send_size()
    }

    fn send_size(&mut self) -> Result<(), AttachEnd> {
        match local_size() {
            Some(size) if self.is_tty => self.send(resize(size)),
            _ => Ok(()),
        }
    }

    fn forward_input(&mut self) -> Result<(), AttachEnd> {
        let mut buffer = vec![0; INPUT_BYTES_MAX];
        let count = match read(io::stdin(), &mut buffer) {
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(()),
            // The terminal is gone.
            Err(Errno::EIO) => 0,
            count => count.map_err(io::Error::from)?,
        };
        buffer.truncate(count);
        if buffer.is_empty() {
            self.takes_input = false;
            return self.send(end_of_input());
        }
        if self.raw.is_some() && buffer == DETACH {
            return Err(AttachEnd::Exit(0));
        }
        self.send(Message::Binary(Bytes::from(buffer)))
    }

    /// Writes output of the program. A signal ends the wait for our readers.
    fn write_out(&self, stream: Stream, mut output: &[u8]) -> Result<(), AttachEnd> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let (out, what) = match stream {
            Stream::Stdout => (stdout.as_fd(), "stdout"),
            Stream::Stderr => (stderr.as_fd(), "stderr"),
        };
        while !output.is_empty() {
            let writable = PollFd::new(out, PollFlags::POLLOUT);
            let signaled = PollFd::new(self.wakeups.as_fd(), PollFlags::POLLIN);
            let mut fds = [writable, signaled];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            let is_writable = fds[0].any() == Some(true);
            self.wakeups.drain();
            if let Some(code) = self.wakeups.exit_code() {
                return Err(AttachEnd::Exit(code));
            }
            if !is_writable {
                continue;
            }
            let piece = output.get(..OUTPUT_BYTES_MAX).unwrap_or(output);
            match write(out, piece) {
                Ok(count) => output = output.get(count..).unwrap_or_default(),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // The reader closed the pipe: exit quietly, like any program in a pipeline.
                Err(Errno::EPIPE) => return Err(AttachEnd::Exit(BY_BROKEN_PIPE)),
                Err(errno) => {
                    let failure = Failure::Write { what, source: errno.into() };
                    return Err(AttachEnd::Failed(failure.into()));
                }
            }
        }
        Ok(())
    }

    /// Asks a silent service for a sign of life.
    fn ask_for_life(&mut self, heard_at: Instant) -> Result<(), AttachEnd> {
        if let Some(code) = self.exit_code {
            return Err(AttachEnd::Exit(code));
        }
        if heard_at.elapsed() > SILENCE_MAX {
            return Err(self.lost("it is silent"));
        }
        if self.has_unsent {
            return Ok(());
        }
        self.send(Message::Ping(Bytes::new()))
    }

    /// The next message, if one has arrived.
    fn receive(&mut self) -> Result<Option<Message>, AttachEnd> {
        match self.socket.read() {
            Ok(message) => Ok(Some(message)),
            Err(error) => self.explain(&error).map(|()| None),
        }
    }

    fn send(&mut self, message: Message) -> Result<(), AttachEnd> {
        match self.socket.write(message) {
            Ok(()) => self.flush(),
            Err(error) => {
                self.has_unsent = true;
                self.explain(&error)
            }
        }
    }

    fn flush(&mut self) -> Result<(), AttachEnd> {
        match self.socket.flush() {
            Ok(()) => {
                self.has_unsent = false;
                Ok(())
            }
            Err(error) => {
                self.has_unsent = true;
                self.explain(&error)
            }
        }
    }

    /// The end that `error` of the socket means, unless it only has to wait.
    fn explain(&self, error: &Error) -> Result<(), AttachEnd> {
        match (error, self.exit_code) {
            (Error::Io(error), _) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            (_, Some(code)) => Err(AttachEnd::Exit(code)),
            (error, None) => Err(self.lost(&error.to_string().to_lowercase())),
        }
    }

    fn lost(&self, words: &str) -> AttachEnd {
        AttachEnd::Failed(self.client.gone(words).into())
    }

    fn failed(&self, words: &str) -> AttachEnd {
        AttachEnd::Failed(self.client.unexpected(words).into())
    }
}

/// What a wait ended with.
#[derive(Debug, Default)]
struct ReadySources {
    has_input: bool,
    /// Nothing happened.
    is_silent: bool,
}
