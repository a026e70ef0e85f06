//! `cofferdam workspace run`: passes the output of a program through as it comes.

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use super::exact_output::ExactOutput;
use super::exit::ProgramEnd;
use super::request::VerbRequest;
use crate::cli::engine::failure::{EngineFailure, say_error};
use crate::cli::failure::Failure;
use crate::cli::foreground::Foreground;
use crate::cli::remote::client::ServerClient;
use crate::cli::remote::events::{EventReader, ServerSentEvent};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{Outcome, OutputSink, Stream};

/// The longest event, bytes: a result with two streams of 16 MiB, in which JSON has six bytes for a control character.
const EVENT_BYTES_MAX: usize = 256 << 20;
/// How many events may wait for our readers.
const EVENTS_MAX: usize = 8;
/// How often signals are looked for while the program is silent.
const TICK: Duration = Duration::from_millis(20);

/// A step of the run.
enum ProgramEvent {
    Output(Stream, Vec<u8>),
    Ended(Box<ProgramEnd>),
    Failed(EngineFailure),
}

/// Runs the program of `request`; returns the exit code of the contract. A signal, or a closed output pipe, ends the
/// connection, and with it the program.
pub fn run(client: ServerClient, request: &VerbRequest) -> Result<u8, EngineFailure> {
    let foreground = Foreground::begin()?;
    let (sender, events) = sync_channel(EVENTS_MAX);
    let (path, body) = (request.path.clone(), request.body.clone().unwrap_or_default().to_string());
    thread::Builder::new()
        .name("events".to_owned())
        .spawn(move || listen(&client, &path, &body, &sender))
        .map_err(|error| EngineFailure::io("start a thread", &error))?;
    let cancel = foreground.watch().cancel;
    let (end, broken) =
        foreground.pass_through(|mut sink| pass_on(&events, sink.as_mut(), &cancel))?;
    let outcome = match end? {
        None => Outcome::Cancelled,
        Some(end) => {
            if let Some(error) = &end.error {
                say_error(error);
            }
            Outcome::Exited { code: end.code() }
        }
    };
    Ok(foreground.exit_code(Ok(outcome), broken)?)
}

/// Sends the events of the run until it ends or the client is gone.
fn listen(client: &ServerClient, path: &str, body: &str, sender: &SyncSender<ProgramEvent>) {
    let last = match client.post_and_listen(path, body.as_bytes()) {
        Ok(stream) => read_events(client, stream, sender),
        Err(fault) => Some(ProgramEvent::Failed(fault.into())),
    };
    // Without a receiver, nothing needs it.
    let _ = last.map(|last| sender.send(last));
}

/// Sends output; returns the last event, or `None` if the client is gone.
fn read_events(
    client: &ServerClient,
    stream: Box<dyn Read + Send>,
    sender: &SyncSender<ProgramEvent>,
) -> Option<ProgramEvent> {
    let lost = |words: &str| Some(ProgramEvent::Failed(client.gone(words).into()));
    let mut events = EventReader::keeping(stream, EVENT_BYTES_MAX);
    let mut output = ExactOutput::default();
    loop {
        let event = match events.next() {
            Ok(Some(event)) => event,
            Ok(None) => return lost("the stream of events ended before the program"),
            Err(error) => return lost(&error.to_string()),
        };
        let steps = steps(&event, &mut output).unwrap_or_else(|error| {
            let fault = client.unexpected(&format!("the event {}: {error}", event.name));
            vec![ProgramEvent::Failed(fault.into())]
        });
        for step in steps {
            match step {
                ProgramEvent::Output(..) => sender.send(step).ok()?,
                last => return Some(last),
            }
        }
    }
}

/// What `event` means.
fn steps(
    event: &ServerSentEvent,
    output: &mut ExactOutput,
) -> serde_json::Result<Vec<ProgramEvent>> {
    let mut take = |stream| {
        let text = output.take(stream, event)?;
        Ok(vec![ProgramEvent::Output(stream, text.into_bytes())])
    };
    match event.name.as_str() {
        "stdout" => take(Stream::Stdout),
        "stderr" => take(Stream::Stderr),
        "result" => {
            let rest = std::mem::take(output).finish(&event.data)?.into_iter();
            let rest = rest.map(|(stream, bytes)| ProgramEvent::Output(stream, bytes));
            let end = serde_json::from_str(&event.data)?;
            Ok(rest.chain([ProgramEvent::Ended(Box::new(end))]).collect())
        }
        "error" => {
            let error: Value = serde_json::from_str(&event.data)?;
            Ok(vec![ProgramEvent::Failed(EngineFailure::of_object(error))])
        }
        _ => Ok(Vec::new()),
    }
}

/// Passes output on until the program ends; `None` if `cancel` is raised before.
fn pass_on(
    events: &Receiver<ProgramEvent>,
    sink: &mut dyn OutputSink,
    cancel: &CancelToken,
) -> Result<Option<Box<ProgramEnd>>, EngineFailure> {
    loop {
        if !wait_for_room(sink, cancel)? {
            return Ok(None);
        }
        match events.recv_timeout(TICK) {
            Ok(ProgramEvent::Output(stream, bytes)) => sink.take(stream, &bytes),
            Ok(ProgramEvent::Ended(end)) => return Ok(Some(end)),
            Ok(ProgramEvent::Failed(failure)) => return Err(failure),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(EngineFailure::Server("the thread that reads events died".to_owned()));
            }
        }
    }
}

/// Waits until our readers have room; false if `cancel` is raised.
fn wait_for_room(sink: &dyn OutputSink, cancel: &CancelToken) -> Result<bool, Failure> {
    loop {
        let room = sink.room_fd().filter(|_| !sink.has_room());
        let timeout = if room.is_some() { PollTimeout::NONE } else { PollTimeout::ZERO };
        let mut fds = vec![PollFd::new(cancel.as_fd(), PollFlags::POLLIN)];
        fds.extend(room.map(|room| PollFd::new(room, PollFlags::POLLIN)));
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => continue,
            Err(errno) => {
                return Err(Failure::Write { what: "stdout", source: errno.into() });
            }
            Ok(_) => {}
        }
        if fds.first().and_then(PollFd::any) == Some(true) {
            return Ok(false);
        }
        if sink.has_room() {
            return Ok(true);
        }
    }
}
