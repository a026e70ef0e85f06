//! Jobs as server-sent events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cofferdam::http::{HttpLimits, HttpSettings};
use cofferdam_core::Stream;
use cofferdam_core::job::JobStatus;
use serde_json::Value;

use super::scripted::{ScriptedJobs, result_json};
use super::{assert_error, get, request, serve, serve_plainly};
use crate::support::{Client, HEALTH, Running, settings};

/// A request whose answer ends with the connection, so its body is not chunked.
fn follow(id: &str, headers: &str) -> String {
    request("GET", &format!("/v1/jobs/{id}/events"), headers).replace("HTTP/1.1", "HTTP/1.0")
}

fn follower(server: &Running, id: &str, headers: &str) -> Client {
    let mut client = server.connect();
    client.send(follow(id, headers));
    let head = client.head().head.to_lowercase();
    assert!(head.starts_with("http/1.0 200 "), "{head}");
    assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
    client
}

/// The same as soon as a place is free.
fn follower_at_last(server: &Running, id: &str) -> Client {
    let began = Instant::now();
    loop {
        let mut client = server.connect();
        client.send(follow(id, ""));
        if client.head().head.contains(" 200 ") {
            return client;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "no place is free");
    }
}

#[derive(Debug)]
struct Event {
    name: String,
    id: String,
    data: Value,
}

fn events_of(text: &str) -> Vec<Event> {
    let event = |block: &str| {
        let field = |name: &str| {
            let lines = block.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
        };
        Event {
            name: field("event").expect(block),
            id: field("id").unwrap_or_default(),
            data: serde_json::from_str(&field("data").expect(block)).unwrap(),
        }
    };
    text.split_terminator("\n\n").map(event).collect()
}

/// The bytes of one stream, joined from its events.
fn bytes_of(events: &[Event], stream: &str) -> Vec<u8> {
    let of_stream = events.iter().filter(|event| event.name == stream);
    of_stream
        .flat_map(|event| match (&event.data["text"], &event.data["base64"]) {
            (Value::String(text), Value::Null) => text.clone().into_bytes(),
            (Value::Null, Value::String(text)) => STANDARD.decode(text).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_stream_covers_a_job_from_the_queue_to_its_result() {
    let jobs = ScriptedJobs::new();
    jobs.add("j");
    let server = serve_plainly(&jobs);
    let mut client = follower(&server, "j", "");
    client.wait_for("\"status\":\"queued\"}\n\n");
    jobs.set_status("j", JobStatus::Running);
    client.wait_for("\"status\":\"running\"}\n\n");
    jobs.write("j", Stream::Stdout, b"one\n");
    client.wait_for("event: stdout");
    jobs.write("j", Stream::Stderr, b"bad \xFF");
    client.wait_for("event: stderr");
    jobs.write("j", Stream::Stdout, b"two");
    client.wait_for_times("event: stdout", 2);
    jobs.end("j", JobStatus::Completed);
    let result = result_json("j", JobStatus::Completed);
    let text = client.rest_text();
    let expected = "event: status\nid: o0.e0\ndata: {\"job_id\":\"j\",\"status\":\"queued\"}\n\n\
                    event: status\nid: o0.e0\ndata: {\"job_id\":\"j\",\"status\":\"running\"}\n\n\
                    event: stdout\nid: o4.e0\ndata: {\"text\":\"one\\n\"}\n\n\
                    event: stderr\nid: o4.e5\ndata: {\"base64\":\"YmFkIP8=\"}\n\n\
                    event: stdout\nid: o7.e5\ndata: {\"text\":\"two\"}\n\n\
                    event: status\nid: o7.e5\ndata: {\"job_id\":\"j\",\"status\":\"completed\"}\n\n\
                    event: result\nid: o7.e5\ndata: ";
    let (before, last) = text.split_at(expected.len());
    assert_eq!(before, expected);
    let last: Value = serde_json::from_str(last.strip_suffix("\n\n").unwrap()).unwrap();
    assert_eq!(last, result);
}

#[test]
fn a_stream_resumes_at_any_byte() {
    let (stdout, stderr) = ("é€ plain 𝄞".as_bytes(), b"a\xFFb\xE2\x82".as_slice());
    let jobs = ScriptedJobs::new();
    jobs.add_ended("j", stdout, stderr);
    let server = serve_plainly(&jobs);
    for from_stdout in 0..=stdout.len() {
        for from_stderr in 0..=stderr.len() {
            let left_off = format!("Last-Event-ID: o{from_stdout}.e{from_stderr}\r\n");
            let events = events_of(&follower(&server, "j", &left_off).rest_text());
            assert_eq!(bytes_of(&events, "stdout"), &stdout[from_stdout..], "{left_off}");
            assert_eq!(bytes_of(&events, "stderr"), &stderr[from_stderr..], "{left_off}");
            let [.., status, result] = &events[..] else { panic!("{events:?}") };
            assert_eq!((status.name.as_str(), result.name.as_str()), ("status", "result"));
            assert_eq!(result.id, format!("o{}.e{}", stdout.len(), stderr.len()));
            // Valid UTF-8 comes as text, after the rest of a split character.
            let texts = events.iter().filter(|event| event.data["text"].is_string()).count();
            assert!(texts > 0 || from_stdout > 10, "{left_off} {events:?}");
        }
    }
}

#[test]
fn a_stream_resumes_after_any_event_id() {
    let stdout: Vec<u8> = "0123456é".bytes().cycle().take(200_000).collect();
    let jobs = ScriptedJobs::new();
    jobs.add_ended("j", &stdout, b"err");
    let server = serve_plainly(&jobs);
    let all = events_of(&follower(&server, "j", "").rest_text());
    assert!(all.len() > 5, "{}", all.len());
    for (index, event) in all.iter().enumerate() {
        let left_off = format!("last-event-id: {}\r\n", event.id);
        let rest = events_of(&follower(&server, "j", &left_off).rest_text());
        for stream in ["stdout", "stderr"] {
            let expected = bytes_of(&all[index + 1..], stream);
            assert!(bytes_of(&rest, stream) == expected, "after event {index}");
        }
    }
    assert!(bytes_of(&all, "stdout") == stdout);
}

#[test]
fn an_invalid_event_id_resumes_at_the_start_or_the_end() {
    let jobs = ScriptedJobs::new();
    jobs.add_ended("j", b"out", b"err");
    let server = serve_plainly(&jobs);
    for (left_off, stdout, stderr) in [
        ("Last-Event-ID: o9.e1\r\n", "", "rr"),
        ("Last-Event-ID: o99999999999999999999999.e99\r\n", "", ""),
        ("Last-Event-ID: o3.e3\r\n", "", ""),
        ("Last-Event-ID: 2\r\n", "out", "err"),
        ("Last-Event-ID: o1\r\n", "out", "err"),
        ("Last-Event-ID: o-1.e1\r\n", "out", "err"),
        ("Last-Event-ID: \u{e9}\r\n", "out", "err"),
        ("Last-Event-ID: o1.e1\r\nLast-Event-ID: o1.e1\r\n", "out", "err"),
        ("", "out", "err"),
    ] {
        let events = events_of(&follower(&server, "j", left_off).rest_text());
        let told = ["stdout", "stderr"].map(|stream| bytes_of(&events, stream));
        assert_eq!(told, [stdout.as_bytes(), stderr.as_bytes()], "{left_off}");
        assert_eq!(events.last().unwrap().name, "result", "{left_off}");
    }
}

#[test]
fn no_event_of_a_live_job_splits_a_character() {
    let jobs = ScriptedJobs::new();
    jobs.add("j");
    let server = serve_plainly(&jobs);
    let mut client = follower(&server, "j", "");
    client.wait_for("queued");
    for (number, character) in "é€𝄞".chars().enumerate() {
        for byte in character.to_string().bytes() {
            jobs.write("j", Stream::Stdout, &[byte]);
            std::thread::sleep(Duration::from_millis(20));
        }
        client.wait_for_times("event: stdout", number + 1);
    }
    jobs.write("j", Stream::Stdout, b"\xE2\x82");
    jobs.end("j", JobStatus::Failed);
    let events = events_of(&client.rest_text());
    let texts: Vec<_> = events.iter().filter_map(|event| event.data["text"].as_str()).collect();
    assert_eq!(texts, ["é", "€", "𝄞"]);
    // The start of a character that is never completed is sent as bytes.
    assert_eq!(
        bytes_of(&events, "stdout"),
        [b"\xC3\xA9\xE2\x82\xAC\xF0\x9D\x84\x9E".as_slice(), b"\xE2\x82"].concat()
    );
}

#[test]
fn a_quiet_job_sends_pings_and_its_stream_is_not_idle() {
    let jobs = ScriptedJobs::new();
    jobs.add("j");
    let limits = HttpLimits {
        ping_every: Duration::from_millis(50),
        idle_max: Duration::from_millis(500),
        ..settings().limits
    };
    let server = serve(&jobs, HttpSettings { limits, ..settings() });
    let mut client = follower(&server, "j", "");
    client.wait_for_times("event: ping\ndata: {}\n\n", 20);
    jobs.end("j", JobStatus::Canceled);
    let events = events_of(&client.rest_text());
    assert_eq!(events.last().unwrap().name, "result");
    assert!(events.iter().filter(|event| event.name == "ping").all(|event| event.id.is_empty()));
}

#[test]
fn a_slow_reader_gets_the_whole_stream_and_a_stalled_one_is_dropped() {
    const MIB: usize = 1 << 20;
    let bytes: Vec<u8> = b"0123456789abcde\n".iter().copied().cycle().take(16 * MIB).collect();
    let jobs = ScriptedJobs::new();
    jobs.add_ended("j", &bytes, b"");
    jobs.add("live");
    let limits = HttpLimits {
        answer_within: Duration::from_secs(2),
        event_streams_max: 2,
        ..settings().limits
    };
    let server = serve(&jobs, HttpSettings { limits, ..settings() });
    let _idle = follower(&server, "j", "");
    let mut slow = follower(&server, "j", "");
    assert_error(&server.ask(get("/v1/jobs/j/events")), 503, "queue.full");
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..10 {
        assert_eq!(server.ask(HEALTH).status, 200);
    }
    let events = events_of(&slow.rest_text());
    assert!(bytes_of(&events, "stdout") == bytes);
    assert_eq!(events.last().unwrap().name, "result");
    // Both places are free again: that of the finished reader and that of the stalled one.
    let _followers = [(); 2].map(|()| follower_at_last(&server, "live"));
}

#[test]
fn followers_are_limited_and_leaving_frees_a_place() {
    let jobs = ScriptedJobs::new();
    jobs.add("j");
    let limits = HttpLimits {
        event_streams_max: 8,
        connections_max: 6,
        ping_every: Duration::from_millis(50),
        ..settings().limits
    };
    let server = serve(&jobs, HttpSettings { limits, ..settings() });
    // Half of the connections, although the limit on followers is higher.
    let mut followers: Vec<_> = (0..3).map(|_| follower(&server, "j", "")).collect();
    let refused = server.ask(get("/v1/jobs/j/events"));
    assert_error(&refused, 503, "queue.full");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.ask(HEALTH).status, 200);
    drop(followers.pop());
    let mut next = follower_at_last(&server, "j");
    jobs.end("j", JobStatus::Completed);
    assert!(next.rest_text().contains("event: result\n"));
}

#[test]
fn closing_a_stream_frees_its_place_at_once() {
    let jobs = ScriptedJobs::new();
    jobs.add("j");
    // Without pings, which would also detect the disconnect.
    let limits = HttpLimits { event_streams_max: 4, ..settings().limits };
    let server = serve(&jobs, HttpSettings { limits, ..settings() });
    for round in 0..3 {
        let mut followers: Vec<_> = (0..4).map(|_| follower_at_last(&server, "j")).collect();
        assert_eq!(server.ask(get("/v1/jobs/j/events")).status, 503, "round {round}");
        // One of them has sent more bytes after its request, which the server does not read.
        followers[0].send(HEALTH);
        drop(followers);
    }
    follower_at_last(&server, "j");
}

#[test]
fn a_client_that_shuts_down_its_sending_side_reads_an_ended_stream() {
    let jobs = ScriptedJobs::new();
    jobs.add_ended("j", b"out", b"");
    let server = serve_plainly(&jobs);
    let mut client = server.connect();
    client.send(follow("j", ""));
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.rest_text().contains("event: result\n"));
}

#[test]
fn a_lost_job_ends_its_stream_with_an_error() {
    let jobs = ScriptedJobs::new();
    jobs.add("j");
    let server = serve_plainly(&jobs);
    let mut client = follower(&server, "j", "");
    client.wait_for("queued");
    jobs.lose("j");
    let events = events_of(&client.rest_text());
    let last = events.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data["code"]), ("error", &"run.io_failed".into()));
}

#[test]
fn every_follower_of_a_job_gets_all_events() {
    let jobs = ScriptedJobs::new();
    jobs.add("j");
    let server = Arc::new(serve_plainly(&jobs));
    let threads: Vec<_> = (0..30)
        .map(|_| {
            let server = Arc::clone(&server);
            std::thread::spawn(move || events_of(&follower(&server, "j", "").rest_text()))
        })
        .collect();
    let mut expected = Vec::new();
    for number in 0..200 {
        let line = format!("line {number}\n");
        jobs.write("j", Stream::Stdout, line.as_bytes());
        expected.extend_from_slice(line.as_bytes());
    }
    jobs.end("j", JobStatus::Completed);
    for thread in threads {
        let events = thread.join().unwrap();
        assert_eq!(bytes_of(&events, "stdout"), expected);
        assert_eq!(events.last().unwrap().name, "result");
    }
}
