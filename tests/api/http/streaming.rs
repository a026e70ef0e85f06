//! The streaming form of `/run`: events as they happen and the result at the end.

use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Answer, post, solution};
use cofferdam_test_server::service::{Service, Setup};
use serde_json::{Value, json};

const ACCEPT: &str = "accept: text/event-stream\r\nconnection: close\r\n";

#[derive(Debug, PartialEq)]
struct Event {
    name: String,
    id: Option<u64>,
    data: Value,
}

fn stream(service: &Service, script: &str) -> (Answer, Vec<Event>) {
    let mut client = service.connect();
    client.send(post(ACCEPT, solution(script).to_string()));
    let head = client.head();
    (head, events(&client.rest()))
}

/// The events of a whole chunked body.
fn events(body: &[u8]) -> Vec<Event> {
    let text = String::from_utf8(dechunked(body)).unwrap();
    let blocks = text.split_terminator("\n\n");
    blocks
        .map(|block| {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            Event {
                name: field("event: ").unwrap().to_owned(),
                id: field("id: ").map(|id| id.parse().unwrap()),
                data: serde_json::from_str(field("data: ").unwrap()).unwrap(),
            }
        })
        .collect()
}

fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line = body.windows(2).position(|window| window == b"\r\n").expect("a chunk's size");
        let size = std::str::from_utf8(&body[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[line + 2..line + 2 + size]);
        body = &body[line + 2 + size + 2..];
    }
}

/// The text of all events called `name`. Their ids must be the offsets.
fn text_of(events: &[Event], name: &str) -> String {
    let mut text = String::new();
    for event in events.iter().filter(|event| event.name == name) {
        assert_eq!(event.id, Some(text.len() as u64), "{events:?}");
        text.push_str(event.data.as_str().unwrap());
    }
    text
}

#[test]
fn output_is_sent_as_events_with_offsets_and_the_result_last() {
    let service = Setup::shell().start();
    let script = "echo one; sleep 0.2; echo zwei ü >&2; sleep 0.2; echo three; exit 3";
    let (head, events) = stream(&service, script);
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["stdout", "stderr", "stdout", "result"]);
    assert_eq!(text_of(&events, "stdout"), "one\nthree\n");
    assert_eq!(text_of(&events, "stderr"), "zwei ü\n");
    let result = events.last().unwrap();
    let expected = json!({
        "exit_code": 3, "stdout": "one\nthree\n", "stderr": "zwei ü\n", "outcome": "exited"
    });
    assert_eq!((&result.data, result.id), (&expected, None));
}

#[test]
fn a_long_output_arrives_complete() {
    let service = Setup::shell().env("RUN_OUTPUT_MAX", "0").start();
    let (_, events) = stream(&service, "seq 200000");
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(text_of(&events, "stdout") == expected, "{} events", events.len());
    assert!(events.last().unwrap().data["stdout"] == json!(expected));
}

#[test]
fn an_event_arrives_while_the_run_continues() {
    let service = Setup::shell().start();
    let start = Instant::now();
    drop(service.live("sleep 30"));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn the_result_names_the_limit_that_ended_the_run() {
    let service = Setup::shell().start();
    let mut client = service.connect();
    let mut body = solution("echo out; sleep 60");
    body["timeout"] = "500ms".into();
    client.send(post(ACCEPT, body.to_string()));
    assert_eq!(client.head().status, 200);
    let events = events(&client.rest());
    let expected =
        json!({ "exit_code": null, "stdout": "out\n", "stderr": "", "outcome": "timed_out" });
    assert_eq!(events.last().unwrap().data, expected);
}

#[test]
fn the_events_name_the_signal_that_ended_the_run() {
    let service = Setup::shell().start();
    let (_, events) = stream(&service, "printf cut >&2; kill -SEGV $$; sleep 5");
    let (result, _) = events.split_last().unwrap();
    assert_eq!(result.data["stderr"], "cut\nSegmentation fault\n", "{events:?}");
    assert_eq!(text_of(&events, "stderr"), "cut\nSegmentation fault\n");
}

#[test]
fn an_error_before_the_start_is_an_ordinary_error_answer() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "1").start();
    let mut body = solution("true");
    body["lang_slug"] = "perl".into();
    service
        .ask(post(ACCEPT, body.to_string()))
        .assert_json(400, r#"{"error":"unsupported lang_slug"}"#);
    let _live = service.live("sleep 60");
    service
        .ask(post(ACCEPT, solution("true").to_string()))
        .assert_json(429, r#"{"error":"runner busy"}"#);
}
