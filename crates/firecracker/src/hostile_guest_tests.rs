//! Guests that are not what a guest should be: none of them costs more than time that is bounded.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::backend_tests::{Behaviour, capabilities, fixture, report, spec};
use crate::session::frame::{Frame, FrameDecoder};
use crate::session::messages::{HelloMessage, ReportMessage, VERSION};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{LimitKind, Outcome, Stream};

/// Says hello and takes the orders, and the standard input with them.
fn until_asked(line: &mut UnixStream) {
    let hello = HelloMessage { version: VERSION, capabilities: Ok((&capabilities()).into()) };
    line.write_all(&Frame::Hello(hello).encode().unwrap()).unwrap();
    let mut decoder = FrameDecoder::default();
    loop {
        match decoder.next().unwrap() {
            Some(Frame::Input(_)) => return,
            Some(_) => {}
            None => {
                let mut bytes = [0; 1000];
                let count = line.read(&mut bytes).unwrap();
                decoder.take(&bytes[..count]);
            }
        }
    }
}

/// A guest that is asked, says these bytes and then, for a while, nothing.
fn says(bytes: Vec<u8>, hangs_up: bool) -> Behaviour {
    Arc::new(move |mut line, _| {
        until_asked(&mut line);
        let _ = line.write_all(&bytes);
        while !hangs_up && matches!(line.read(&mut [0; 100]), Ok(1..)) {}
    })
}

fn report_frame(outcome: Outcome, totals: [u64; 2]) -> Vec<u8> {
    Frame::Report(Box::new(ReportMessage::of(&report(outcome, totals), None))).encode().unwrap()
}

#[test]
fn a_guest_that_breaks_the_rules_is_told_apart_by_how() {
    let encode = |frame: Frame| frame.encode().unwrap();
    let exited = Outcome::Exited { code: 0 };
    let too_much = encode(Frame::Output(Stream::Stdout, vec![0; 1_048_577]));
    let replace = |from: &str, to: &str| {
        // The same length, so that the frame's own stays true.
        let bytes = report_frame(exited, [0, 0]);
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut bytes = bytes;
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    for (want, bytes, hangs_up) in [
        ("it hung up before it had reported", Vec::new(), true),
        ("it hung up in the middle of a frame", vec![0, 0, 0, 9, 8], true),
        ("a frame of 4294967295 bytes, more than 4194304", vec![0xFF; 4], false),
        ("a frame of no kind", vec![0, 0, 0, 1, 99], false),
        ("it said what is not for a guest to say", encode(Frame::Cancel), false),
        ("it sent more output than the limit", too_much, false),
        ("the guest told of other output than it has sent", report_frame(exited, [7, 0]), false),
        (
            "the guest told of a signal there is not",
            report_frame(Outcome::Signaled { signal: 99 }, [0, 0]),
            false,
        ),
        ("the guest told of a control there is not", replace("cgroup2", "cgroup3"), false),
        (
            "a frame that does not hold what it should: line 1 column 10",
            replace("outcome", "autcome"),
            false,
        ),
    ] {
        let failure = fixture(says(bytes, hangs_up)).failure();
        assert!(failure.starts_with("sandbox: guest: "), "{failure}");
        assert!(failure.contains(want), "{failure:?}, not {want:?}");
    }
    let never_written = fixture(says(report_frame(exited, [0, 0]), false)).failure();
    assert_eq!(never_written, "sandbox: scratch drive: malformed: not a tree");
}

#[test]
fn a_guest_that_does_not_come_up_or_is_not_ours_is_no_run() {
    let hello = |version, capabilities| {
        Frame::Hello(HelloMessage { version, capabilities }).encode().unwrap()
    };
    let first = |bytes: Vec<u8>| -> Behaviour {
        Arc::new(move |mut line, _| {
            let _ = line.write_all(&bytes);
            let _ = line.read(&mut [0; 1]);
        })
    };
    for (want, guest) in [
        ("sandbox: guest: it said nothing in time", first(Vec::new())),
        ("sandbox: guest: it did not say hello", first(Frame::Cancel.encode().unwrap())),
        (
            "sandbox: guest: it did not say hello",
            Arc::new(|_: UnixStream, _: &Path| ()) as Behaviour,
        ),
        ("sandbox: guest: it speaks version 9, and we 1", first(hello(9, Err(String::new())))),
        ("sandbox: guest: the guest: no box", first(hello(1, Err("no box".to_owned())))),
    ] {
        assert_eq!(fixture(guest).failure(), want);
    }
}

#[test]
fn a_guest_that_falls_silent_is_a_run_whose_time_is_over() {
    let printed = Frame::Output(Stream::Stderr, b"so far".to_vec()).encode().unwrap();
    let fixture = fixture(says(printed, false));
    let began = Instant::now();
    let report = fixture.run(spec("x"), &CancelToken::new().unwrap()).0.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(report.outcome, Outcome::LimitHit { kind: LimitKind::WallTime, code: None });
    assert_eq!((&*report.stderr.bytes, report.usage.stderr_bytes), (&b"so far"[..], 6));
    let said = "report: the guest did not answer; its machine was killed";
    assert_eq!(report.not_enforced.last().unwrap(), said);
}

#[test]
fn a_guest_that_drips_gets_no_more_time() {
    let fixture = fixture(Arc::new(|mut line, _| {
        until_asked(&mut line);
        let drip = Frame::Output(Stream::Stdout, vec![b'x']).encode().unwrap();
        while line.write_all(&drip).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    }));
    let began = Instant::now();
    let report = fixture.run(spec("x"), &CancelToken::new().unwrap()).0.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(report.outcome.word(), "timed_out");
}

#[test]
fn a_guest_that_does_not_hear_a_cancel_is_cancelled_all_the_same() {
    let fixture = fixture(says(Vec::new(), false));
    let cancel = CancelToken::new().unwrap();
    cancel.cancel();
    let mut spec = spec("x");
    spec.limits.wall = Duration::from_secs(60);
    // Raised before: the orders go out, unless the guest is later than the look.
    let began = Instant::now();
    let report = fixture.run(spec, &cancel).0.unwrap();
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}
