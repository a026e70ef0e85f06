//! The events of an evaluation.

use std::time::Duration;

use cofferdam::http::{HttpLimits, HttpSettings};

use super::scripted::ScriptedEvaluations;
use super::serve;
use crate::jobs::{assert_error, get};
use crate::support::{Client, Running, settings};

const STEP: &str = "{\"id\":1,\"event\":\"step\",\"data\":{\"step\":\"queued\"}}\n";
const RESULT: &str = "{\"id\":2,\"event\":\"result\",\"data\":{\"eval_id\":\"ended\"}}\n";
const SENT_STEP: &str = "event: step\nid: 1\ndata: {\"step\":\"queued\"}\n\n";
const SENT_RESULT: &str = "event: result\nid: 2\ndata: {\"eval_id\":\"ended\"}\n\n";

/// Follows an evaluation; the connection closes behind its last event.
fn follower(server: &Running, id: &str, headers: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("GET /evaluate/{id}/events HTTP/1.0\r\n{headers}\r\n"));
    let head = client.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    client
}

#[test]
fn the_events_of_an_ended_evaluation_are_read_from_where_the_client_left_off() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    evaluations.happen(STEP);
    evaluations.happen(RESULT);
    for (headers, expected) in [
        ("", [SENT_STEP, SENT_RESULT].concat()),
        ("last-event-id: 1\r\n", SENT_RESULT.to_owned()),
        ("last-event-id: 2\r\n", String::new()),
        ("last-event-id: x\r\n", [SENT_STEP, SENT_RESULT].concat()),
    ] {
        let sent = follower(&server, "ended", headers).rest_text();
        assert_eq!(sent, expected, "{headers}");
    }
}

#[test]
fn a_long_result_arrives_whole() {
    let evaluations = ScriptedEvaluations::new();
    let server = serve(&evaluations, settings());
    let text = "}\\n".repeat(200_000);
    evaluations
        .happen(&format!("{{\"id\":1,\"event\":\"result\",\"data\":{{\"a\":\"{text}\"}}}}\n"));
    let sent = follower(&server, "ended", "").rest_text();
    assert!(sent == format!("event: result\nid: 1\ndata: {{\"a\":\"{text}\"}}\n\n"));
}

#[test]
fn a_client_follows_a_live_evaluation_to_its_result_with_pings_between() {
    let evaluations = ScriptedEvaluations::new();
    let limits = HttpLimits { ping_every: Duration::from_millis(20), ..settings().limits };
    let server = serve(&evaluations, HttpSettings { limits, ..settings() });
    evaluations.happen(STEP);
    let mut client = follower(&server, "live", "");
    client.wait_for("event: ping\ndata: {}\n\n");
    evaluations.happen(RESULT);
    let body = client.rest_text();
    assert_eq!(body.replace("event: ping\ndata: {}\n\n", ""), [SENT_STEP, SENT_RESULT].concat());
}

#[test]
fn only_so_many_streams_are_open_at_once() {
    let evaluations = ScriptedEvaluations::new();
    let limits = HttpLimits { event_streams_max: 0, ..settings().limits };
    let server = serve(&evaluations, HttpSettings { limits, ..settings() });
    assert_error(&server.ask(get("/evaluate/ended/events")), 503, "queue.full");
}
