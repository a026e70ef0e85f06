//! The executor's end of a container: its attached engine, through whose pipe the helper in it is ordered.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::poll::PollFlags;

use super::call::{call, read_some, set_nonblocking, tail, wait, wait_for};
use super::engine::{ContainerEngine, ContainerShape};
use super::frame::{DATA_BYTES_MAX, FrameBuffer, FrameKind, PipeFrame, frame};
use super::order::{ContainerFacts, ContainerOrder, ContainerReply, LimitEvents, StepStop};
use super::relay::{RELAYS_MAX, Relays, WayOut, close_frame, relay_id};
use crate::case::cell::capture::StepOutput;
use crate::case::cell::error::ExecError;
use crate::case::cell::host::message::{EndedStep, StepReply};
use crate::case::cell::plan::StepLimits;
use cofferdam_core::Stream;
use cofferdam_core::job::TextEncoding;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// How long a container may take to start.
const START_WAIT: Duration = Duration::from_secs(120);
/// How long the helper may take for a frame, and longer than a command has time for its reply.
const REPLY_WAIT: Duration = Duration::from_secs(10);
/// How long a container may take to end and be removed.
const END_WAIT: Duration = Duration::from_secs(60);
const BUFFER_BYTES: usize = 64 << 10;
/// The working directory of an engine. podman's monitor makes a file `oom` in it when a container has no memory left;
/// nothing can be made here.
const NOWHERE: &str = "/proc";

/// A container that runs. It ends, and is removed, when this is dropped.
#[derive(Debug)]
pub(super) struct ContainerLink {
    engine: ContainerEngine,
    name: String,
    client: Child,
    /// None once the container has been told to end.
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    complaints: Option<ChildStderr>,
    arrived: FrameBuffer,
    /// Frames that the pipe has not taken yet.
    unsent: Vec<u8>,
    relays: Relays,
}

/// When a command is ended from here, and what it reaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkWatch<'w> {
    pub(super) timeout: Duration,
    pub(super) cancel: &'w CancelToken,
    pub(super) way_out: Option<&'w WayOut>,
}

impl ContainerLink {
    /// Starts a container. Returns what the helper in it sees.
    ///
    /// # Errors
    /// It does not start; nothing of it is left.
    pub(super) fn start(
        engine: &ContainerEngine,
        shape: &ContainerShape,
        cancel: &CancelToken,
    ) -> Result<(Self, ContainerFacts), ExecError> {
        let failed = |error: &dyn std::fmt::Display| ExecError::failed("start container", error);
        let mut client = Command::new(&engine.program)
            .args(engine.kind.run(shape)?)
            .current_dir(NOWHERE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal of the terminal ends us, and with us the container.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let (input, output) = (client.stdin.take(), client.stdout.take());
        let complaints = client.stderr.take();
        let (engine, name) = (engine.clone(), shape.name.clone());
        let mut link = Self {
            engine,
            name,
            client,
            input,
            output,
            complaints,
            arrived: FrameBuffer::default(),
            unsent: Vec::new(),
            relays: Relays::default(),
        };
        link.input.as_ref().map_or(Ok(()), set_nonblocking).map_err(|errno| failed(&errno))?;
        link.output.as_ref().map_or(Ok(()), set_nonblocking).map_err(|errno| failed(&errno))?;
        link.complaints.as_ref().map_or(Ok(()), set_nonblocking).map_err(|errno| failed(&errno))?;
        let hello = link.next(Deadline::after(START_WAIT), Some(cancel))?;
        match hello {
            Some(PipeFrame { kind: FrameKind::Hello, payload }) => {
                let facts = serde_json::from_slice(&payload).map_err(|error| failed(&error))?;
                Ok((link, facts))
            }
            Some(_) => Err(failed(&"the helper does not say hello")),
            None if is_raised(cancel) => Err(failed(&"it is cancelled")),
            None => Err(failed(&"it does not start in time")),
        }
    }

    /// Has `order` done, with `stdin` for its command, whose output is added to `output`. An order that is overdue
    /// ends the container.
    ///
    /// # Errors
    /// The container has ended.
    pub(super) fn obey(
        &mut self,
        order: &ContainerOrder,
        stdin: &[u8],
        watch: LinkWatch<'_>,
        output: &StepOutput,
    ) -> Result<ContainerReply, ExecError> {
        let done = self.send(order, stdin).and_then(|()| self.reply(watch, output));
        self.relays.close();
        if done.is_err() {
            // What it does now is unknown.
            self.end();
        }
        done
    }

    /// The text of the file at `path` in the container; none if it cannot be read, or is no text.
    pub(super) fn read_text(&mut self, path: &str, cancel: &CancelToken) -> Option<String> {
        let order = ContainerOrder::Read { path: path.into() };
        let limits = StepLimits { stdout_bytes_max: u64::MAX, ..StepLimits::default() };
        let output = StepOutput::new(&limits);
        let watch = LinkWatch { timeout: REPLY_WAIT, cancel, way_out: None };
        let done = self.obey(&order, &[], watch, &output).ok()?;
        let (stdout, _) = output.take();
        let is_read = matches!(done.reply, StepReply::Ended(_));
        (is_read && stdout.encoding == TextEncoding::Utf8).then_some(stdout.text)
    }

    fn send(&mut self, order: &ContainerOrder, stdin: &[u8]) -> Result<(), ExecError> {
        for part in stdin.chunks(DATA_BYTES_MAX) {
            self.queue(frame(FrameKind::Stdin, part))?;
        }
        let order = serde_json::to_vec(order).map_err(|error| ExecError::failed("order", error))?;
        self.queue(frame(FrameKind::Order, &order))
    }

    fn reply(
        &mut self,
        watch: LinkWatch<'_>,
        output: &StepOutput,
    ) -> Result<ContainerReply, ExecError> {
        let mut deadline = Deadline::after(watch.timeout.saturating_add(REPLY_WAIT));
        let mut stop = None;
        loop {
            let cancel = stop.is_none().then_some(watch.cancel);
            match self.next(deadline, cancel)? {
                Some(PipeFrame { kind: FrameKind::Stdout, payload }) => {
                    output.add(Stream::Stdout, &payload);
                }
                Some(PipeFrame { kind: FrameKind::Stderr, payload }) => {
                    output.add(Stream::Stderr, &payload);
                }
                Some(PipeFrame { kind: FrameKind::Reply, payload }) => {
                    let reply = serde_json::from_slice(&payload);
                    return reply.map_err(|error| ExecError::failed("reply", error));
                }
                Some(PipeFrame { kind: FrameKind::RelayOpened, payload }) => {
                    self.relay(&payload, watch.way_out)?;
                }
                Some(PipeFrame { kind, payload }) => {
                    let taken = self.relays.take(kind, &payload);
                    taken.map_err(|error| ExecError::failed("relay", error))?;
                }
                None if deadline.passed() => return Ok(self.overdue(watch, stop)),
                None => {
                    stop = Some(StepStop::Cancelled);
                    deadline = Deadline::after(REPLY_WAIT);
                    self.queue(frame(FrameKind::Kill, &[]))?;
                }
            }
        }
    }

    /// Connects a connection that a command has made to the proxy.
    fn relay(&mut self, payload: &[u8], way_out: Option<&WayOut>) -> Result<(), ExecError> {
        let failed = |error: io::Error| ExecError::failed("relay", error);
        let (id, _) = relay_id(payload).map_err(failed)?;
        let is_room = self.relays.len() < RELAYS_MAX;
        match way_out.filter(|_| is_room).map(WayOut::connect) {
            Some(Ok(socket)) => self.relays.add(id, socket).map_err(failed),
            Some(Err(_)) | None => self.queue(close_frame(id)),
        }
    }

    /// Ends the container of a command that the helper has not killed.
    fn overdue(&mut self, watch: LinkWatch<'_>, stop: Option<StepStop>) -> ContainerReply {
        log::error!("the helper of a container does not answer");
        self.end();
        let wall_ms = u64::try_from(watch.timeout.as_millis()).unwrap_or(u64::MAX);
        let reply = StepReply::Ended(EndedStep { wall_ms, ..EndedStep::default() });
        let stopped = Some(stop.unwrap_or(StepStop::Late));
        ContainerReply { reply, stopped, events: LimitEvents::default() }
    }

    /// The next frame; none at the deadline, and when `cancel` is raised.
    fn next(
        &mut self,
        deadline: Deadline,
        cancel: Option<&CancelToken>,
    ) -> Result<Option<PipeFrame>, ExecError> {
        loop {
            let next = self.arrived.next().map_err(|error| ExecError::failed("reply", error))?;
            if next.is_some() || deadline.passed() {
                return Ok(next);
            }
            let frames = self.relays.advance();
            self.queue(frames)?;
            self.flush()?;
            let Some(output) = &self.output else { return Err(self.ended()) };
            let mut sources = vec![(output.as_fd(), PollFlags::POLLIN)];
            let input = self.input.as_ref().filter(|_| !self.unsent.is_empty());
            sources.extend(input.map(|input| (input.as_fd(), PollFlags::POLLOUT)));
            sources.extend(self.relays.sources());
            let ready = wait_for(&sources, deadline, cancel)
                .map_err(|errno| ExecError::failed("wait", errno))?;
            if ready.get(sources.len()) == Some(&true) {
                return Ok(None);
            }
            self.read();
        }
    }

    /// Reads what has arrived.
    fn read(&mut self) {
        let Some(output) = &mut self.output else { return };
        let mut buffer = vec![0; BUFFER_BYTES];
        match output.read(&mut buffer) {
            Ok(count) if count > 0 => self.arrived.add(buffer.get(..count).unwrap_or_default()),
            Err(error) if is_again(&error) => {}
            Ok(_) | Err(_) => self.output = None,
        }
    }

    /// Sends `frames` when the pipe takes them.
    fn queue(&mut self, frames: io::Result<Vec<u8>>) -> Result<(), ExecError> {
        self.unsent.extend(frames.map_err(|error| ExecError::failed("order", error))?);
        Ok(())
    }

    /// Writes what the pipe takes at once.
    fn flush(&mut self) -> Result<(), ExecError> {
        let mut written = 0;
        while let Some(left) = self.unsent.get(written..).filter(|left| !left.is_empty()) {
            let Some(input) = &mut self.input else { return Err(self.ended()) };
            match input.write(left) {
                Ok(count) => written += count,
                Err(error) if is_again(&error) => break,
                Err(_) => return Err(self.ended()),
            }
        }
        self.unsent.drain(..written);
        Ok(())
    }

    /// The error of a container that has ended by itself.
    fn ended(&mut self) -> ExecError {
        self.end();
        let mut complaint = Vec::new();
        while self.complaints.is_some() {
            let before = complaint.len();
            read_some(&mut self.complaints, &mut complaint);
            if complaint.len() == before {
                break;
            }
        }
        let tail = tail(&complaint);
        let words = if tail.is_empty() { "the container has ended" } else { &tail };
        ExecError::failed("container", words).with("tail", tail.clone())
    }

    /// Ends the container and waits until it is removed.
    fn end(&mut self) {
        if self.input.take().is_none() {
            return;
        }
        if wait(&mut self.client, Deadline::after(END_WAIT)).is_ok() {
            return;
        }
        let words = self.engine.kind.remove_containers(std::slice::from_ref(&self.name));
        let removed = call(&self.engine.program, &words, Deadline::after(END_WAIT), None);
        if let Err(error) = removed {
            log::error!("remove a container: {error}");
        }
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Whether `cancel` is raised.
fn is_raised(cancel: &CancelToken) -> bool {
    let now = Deadline::after(Duration::ZERO);
    wait_for(&[], now, Some(cancel)).is_ok_and(|ready| ready.first() == Some(&true))
}

impl Drop for ContainerLink {
    fn drop(&mut self) {
        self.end();
    }
}
