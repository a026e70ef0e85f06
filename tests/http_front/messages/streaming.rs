//! Runs as server-sent events.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cofferdam::check::run::CheckError;
use cofferdam::http::{HttpLimits, HttpSettings};
use cofferdam_core::{OutputSink, SetupFailure, Stream};

use nix::poll::{PollFd, PollFlags, poll};

use crate::support::{Client, Running, ScriptedChecks, body, exited, post, settings, start};

/// A request whose answer ends with the connection, so its body is not chunked.
fn ask_for_events() -> String {
    post("accept: text/event-stream\r\n", &body("")).replace("HTTP/1.1", "HTTP/1.0")
}

fn events_of(script: impl Fn(&mut dyn OutputSink) + Send + Sync + 'static) -> String {
    let checks = ScriptedChecks::new(1, move |_, _, sink| {
        script(sink.expect("a sink").as_mut());
        Ok(exited(3, "kept", ""))
    });
    let server = start(checks, settings());
    let mut client = ask_events(&server);
    let head = client.head().head;
    assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
    assert!(head.to_lowercase().contains("content-type: text/event-stream\r\n"), "{head}");
    client.rest_text()
}

fn ask_events(server: &Running) -> Client {
    let mut client = server.connect();
    client.send(ask_for_events());
    client
}

const RESULT: &str = "event: result\ndata: {\"exit_code\":3,\"stdout\":\"kept\",\"stderr\":\"\",\"outcome\":\"exited\"}\n\n";

#[test]
fn output_is_streamed_with_offsets_and_ends_with_the_result() {
    let events = events_of(|sink| {
        sink.take(Stream::Stdout, b"one\n");
        sink.take(Stream::Stderr, b"err");
        sink.take(Stream::Stdout, b"two");
    });
    let expected = "event: stdout\nid: 0\ndata: \"one\\n\"\n\n\
                    event: stderr\nid: 0\ndata: \"err\"\n\n\
                    event: stdout\nid: 4\ndata: \"two\"\n\n";
    assert_eq!(events, format!("{expected}{RESULT}"));
}

#[test]
fn no_event_splits_a_character() {
    let events = events_of(|sink| {
        for byte in "é€".bytes() {
            sink.take(Stream::Stdout, &[byte]);
        }
        sink.take(Stream::Stdout, b"\xE2\x82");
    });
    let expected = "event: stdout\nid: 0\ndata: \"é\"\n\n\
                    event: stdout\nid: 2\ndata: \"€\"\n\n\
                    event: stdout\nid: 5\ndata: \"\u{FFFD}\"\n\n";
    assert_eq!(events, format!("{expected}{RESULT}"));
}

#[test]
fn events_arrive_during_the_run() {
    let (finish, finishes) = mpsc::channel::<()>();
    let finishes = Mutex::new(finishes);
    let checks = ScriptedChecks::new(1, move |_, _, sink| {
        sink.unwrap().take(Stream::Stdout, b"early");
        finishes.lock().unwrap().recv().unwrap();
        Ok(exited(3, "kept", ""))
    });
    let server = start(checks, settings());
    let mut client = ask_events(&server);
    client.head();
    // The event arrives while the run waits for our message.
    client.wait_for("data: \"early\"\n\n");
    finish.send(()).unwrap();
    assert!(client.rest_text().ends_with(RESULT));
}

#[test]
fn a_quiet_run_sends_pings() {
    let (finish, finishes) = mpsc::channel::<()>();
    let finishes = Mutex::new(finishes);
    let checks = ScriptedChecks::new(1, move |_, _, _| {
        finishes.lock().unwrap().recv().unwrap();
        Ok(exited(3, "kept", ""))
    });
    let limits = HttpLimits {
        ping_every: Duration::from_millis(50),
        idle_max: Duration::from_millis(500),
        ..settings().limits
    };
    let server = start(checks, HttpSettings { limits, ..settings() });
    let mut client = ask_events(&server);
    client.head();
    // Longer than the idle limit: a stream is not idle.
    client.wait_for_times("event: ping\ndata: {}\n\n", 20);
    finish.send(()).unwrap();
    assert!(client.rest_text().ends_with(RESULT));
}

#[test]
fn a_failure_before_the_start_is_a_plain_error_response() {
    let checks = ScriptedChecks::new(1, |_, _, _| {
        Err(CheckError::Sandbox(SetupFailure::from_errno("clone", 11)))
    });
    let server = start(checks, settings());
    let answer = server.ask(post("accept: text/event-stream\r\n", &body("")));
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (500, r#"{"error":"sandbox: clone: EAGAIN"}"#)
    );
    assert_eq!(server.ask(post("accept: text/event-stream\r\n", "{")).status, 400);
}

#[test]
fn unlimited_output_waits_for_its_reader_and_arrives_complete() {
    const PIECE_BYTES: usize = 64 * 1024;
    const PIECES: usize = 200;
    let (peak, peaks) = mpsc::channel();
    let checks = ScriptedChecks::new(1, move |_, _, sink| {
        let mut sink = sink.unwrap();
        let mut waits = 0;
        for _ in 0..PIECES {
            while !sink.has_room() {
                waits += 1;
                let room = sink.room_fd().expect("a descriptor to wait for");
                assert!(is_readable(room, 10_000), "no room for ten seconds");
            }
            sink.take(Stream::Stdout, &[b'x'; PIECE_BYTES]);
        }
        peak.send(waits).unwrap();
        Ok(exited(3, "kept", ""))
    });
    let server = start(checks, HttpSettings { output_bytes_max: None, ..settings() });
    let mut client = ask_events(&server);
    client.head();
    // Nothing is read yet: output beyond the queue and the socket buffers must wait.
    assert!(peaks.recv_timeout(Duration::from_millis(300)).is_err(), "12 MiB were accepted unread");
    let events = client.rest_text();
    assert!(events.ends_with(RESULT));
    assert_eq!(events.matches('x').count(), PIECE_BYTES * PIECES + RESULT.matches('x').count());
    assert!(peaks.recv_timeout(Duration::from_secs(10)).unwrap() > 0);
}

#[test]
fn unlimited_output_is_rate_limited() {
    const MIB: usize = 1 << 20;
    let checks = ScriptedChecks::new(1, move |_, _, sink| {
        let mut sink = sink.unwrap();
        for _ in 0..5 {
            sink.take(Stream::Stdout, &[b'x'; MIB]);
        }
        Ok(exited(3, "kept", ""))
    });
    let server = start(checks, HttpSettings { output_bytes_max: None, ..settings() });
    let start = Instant::now();
    let mut client = ask_events(&server);
    client.head();
    assert!(client.rest_text().ends_with(RESULT));
    // One MiB at once, then 16 MiB per second.
    assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
}

#[test]
fn an_unread_stream_ends_its_run() {
    let (ended, ends) = mpsc::channel();
    let checks = ScriptedChecks::new(1, move |_, watch, sink| {
        let mut sink = sink.unwrap();
        // The run ends although the reader stays connected.
        while !is_readable(watch.cancel.as_fd(), 0) {
            if sink.has_room() {
                sink.take(Stream::Stdout, &[b'x'; 65_536]);
            } else {
                is_readable(sink.room_fd().unwrap(), 10);
            }
        }
        ended.send(()).unwrap();
        Ok(exited(0, "", ""))
    });
    let limits = HttpLimits { answer_within: Duration::from_millis(300), ..settings().limits };
    let server = start(checks, HttpSettings { limits, output_bytes_max: None, ..settings() });
    let client = ask_events(&server);
    ends.recv_timeout(Duration::from_secs(10)).expect("the run continues unread");
    drop(client);
}

/// Whether `fd` becomes readable within this many milliseconds.
fn is_readable(fd: BorrowedFd<'_>, within_ms: u16) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, within_ms).unwrap() == 1
}
