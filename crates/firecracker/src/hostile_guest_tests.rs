//! Tests with hostile guests: each of them costs only bounded time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::backend_tests::{Behaviour, capabilities, fixture, fixture_with, report, spec};
use crate::session::frame::{Frame, FrameDecoder};
use crate::session::messages::{HelloMessage, ReportMessage, VERSION};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{LimitKind, Outcome, Stream};

/// Sends a hello, and reads the run and the standard input.
fn until_asked(connection: &mut UnixStream) {
    let hello = HelloMessage { version: VERSION, capabilities: Ok((&capabilities()).into()) };
    connection.write_all(&Frame::Hello(hello).encode().unwrap()).unwrap();
    let mut decoder = FrameDecoder::default();
    loop {
        match decoder.next().unwrap() {
            Some(Frame::Input(_)) => return,
            Some(_) => {}
            None => {
                let mut bytes = [0; 1000];
                let count = connection.read(&mut bytes).unwrap();
                decoder.take(&bytes[..count]);
            }
        }
    }
}

/// A guest that sends these bytes after it has received the run, and then nothing.
fn says(bytes: Vec<u8>, hangs_up: bool) -> Behaviour {
    Arc::new(move |mut connection, _| {
        until_asked(&mut connection);
        let _ = connection.write_all(&bytes);
        while !hangs_up && matches!(connection.read(&mut [0; 100]), Ok(1..)) {}
    })
}

fn report_frame(outcome: Outcome, totals: [u64; 2]) -> Vec<u8> {
    Frame::Report(Box::new(ReportMessage::of(&report(outcome, totals), None))).encode().unwrap()
}

#[test]
fn a_protocol_violation_is_reported_with_its_kind() {
    let encode = |frame: Frame| frame.encode().unwrap();
    let exited = Outcome::Exited { code: 0 };
    let too_much = encode(Frame::Output(Stream::Stdout, vec![0; 1_048_577]));
    let replace = |from: &str, to: &str| {
        // The same length, so that the frame's length stays valid.
        let bytes = report_frame(exited, [0, 0]);
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut bytes = bytes;
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    for (want, bytes, hangs_up) in [
        ("it disconnected before its report", Vec::new(), true),
        ("it disconnected within a frame", vec![0, 0, 0, 9, 8], true),
        ("a frame of 4294967295 bytes, more than 4194304", vec![0xFF; 4], false),
        ("a frame of unknown kind", vec![0, 0, 0, 1, 99], false),
        ("it sent a frame that only a host may send", encode(Frame::Cancel), false),
        ("it sent more output than the limit", too_much, false),
        (
            "the guest reported another amount of output than it sent",
            report_frame(exited, [7, 0]),
            false,
        ),
        (
            "the guest reported an invalid signal",
            report_frame(Outcome::Signaled { signal: 99 }, [0, 0]),
            false,
        ),
        ("the guest reported an unknown control", replace("cgroup2", "cgroup3"), false),
        ("a frame with an invalid body: line 1 column 10", replace("outcome", "autcome"), false),
    ] {
        let failure = fixture(says(bytes, hangs_up)).failure();
        assert!(failure.starts_with("sandbox: guest: "), "{failure}");
        assert!(failure.contains(want), "{failure:?}, not {want:?}");
    }
    let never_written = fixture(says(report_frame(exited, [0, 0]), false)).failure();
    assert_eq!(never_written, "sandbox: scratch drive: malformed: not a tree");
}

#[test]
fn a_guest_that_does_not_boot_or_is_incompatible_is_an_error() {
    let hello = |version, capabilities| {
        Frame::Hello(HelloMessage { version, capabilities }).encode().unwrap()
    };
    let first = |bytes: Vec<u8>| -> Behaviour {
        Arc::new(move |mut connection, _| {
            let _ = connection.write_all(&bytes);
            let _ = connection.read(&mut [0; 1]);
        })
    };
    let mute = fixture_with(first(Vec::new()), |it| it.boot_wait = Duration::from_millis(500));
    assert_eq!(mute.failure(), "sandbox: guest: it sent nothing in time");
    for (want, guest) in [
        ("sandbox: guest: it sent no hello", first(Frame::Cancel.encode().unwrap())),
        ("sandbox: guest: it sent no hello", Arc::new(|_: UnixStream, _: &Path| ()) as Behaviour),
        (
            "sandbox: guest: it has protocol version 9, the host has 1",
            first(hello(9, Err(String::new()))),
        ),
        ("sandbox: guest: the guest: no box", first(hello(1, Err("no box".to_owned())))),
    ] {
        assert_eq!(fixture(guest).failure(), want);
    }
}

/// These guests report after this time as good ones do. Every deadline of the host is shorter, so it
/// has hung up by then.
const GIVES_UP: Duration = Duration::from_secs(30);

#[test]
fn a_guest_that_falls_silent_is_a_timed_out_run() {
    let guest: Behaviour = Arc::new(|mut connection, _| {
        until_asked(&mut connection);
        let printed = Frame::Output(Stream::Stderr, b"so far".to_vec()).encode().unwrap();
        connection.write_all(&printed).unwrap();
        connection.set_read_timeout(Some(GIVES_UP)).unwrap();
        while matches!(connection.read(&mut [0; 100]), Ok(1..)) {}
        let _ = connection.write_all(&report_frame(Outcome::Exited { code: 0 }, [0, 6]));
    });
    let fixture = fixture_with(guest, |it| it.answer_wait = Duration::from_secs(2));
    let report = fixture.run(spec("x"), &CancelToken::new().unwrap()).0.unwrap();
    assert_eq!(report.outcome, Outcome::LimitHit { kind: LimitKind::WallTime, code: None });
    assert_eq!((&*report.stderr.bytes, report.usage.stderr_bytes), (&b"so far"[..], 6));
    let said = "report: the guest did not answer; its machine was killed";
    assert_eq!(report.not_enforced.last().unwrap(), said);
}

#[test]
fn a_guest_that_drips_gets_no_more_time() {
    let guest: Behaviour = Arc::new(|mut connection, _| {
        until_asked(&mut connection);
        let drip = Frame::Output(Stream::Stdout, vec![b'x']).encode().unwrap();
        let (began, mut drips) = (Instant::now(), 0);
        while began.elapsed() < GIVES_UP {
            if connection.write_all(&drip).is_err() {
                return;
            }
            drips += 1;
            thread::sleep(Duration::from_millis(10));
        }
        let _ = connection.write_all(&report_frame(Outcome::Exited { code: 0 }, [drips, 0]));
    });
    let fixture = fixture_with(guest, |it| it.answer_wait = Duration::from_millis(500));
    let report = fixture.run(spec("x"), &CancelToken::new().unwrap()).0.unwrap();
    assert_eq!(report.outcome.word(), "timed_out");
}

#[test]
fn a_guest_that_ignores_a_cancel_is_cancelled() {
    let fixture =
        fixture_with(says(Vec::new(), false), |it| it.cancel_wait = Duration::from_millis(200));
    let cancel = CancelToken::new().unwrap();
    cancel.cancel();
    let mut spec = spec("x");
    spec.limits.wall = Duration::from_secs(60);
    // Raised before: the run may still be sent, depending on when the guest connects. A cancel that is
    // ignored by the host too takes until the limit of the run.
    let began = Instant::now();
    let report = fixture.run(spec, &cancel).0.unwrap();
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
