//! The events of a run.

use std::time::Duration;

use cofferdam::http::{HttpLimits, HttpSettings};

use super::scripted::ScriptedCases;
use super::serve;
use crate::jobs::{assert_error, get};
use crate::support::{Client, Running, settings};

const STATUS: &str = "{\"id\":1,\"event\":\"status\",\"data\":{\"status\":\"queued\"}}\n";
const RESULT: &str = "{\"id\":2,\"event\":\"result\",\"data\":{\"run_id\":\"ended\"}}\n";
const SENT_STATUS: &str = "event: status\nid: 1\ndata: {\"status\":\"queued\"}\n\n";
const SENT_RESULT: &str = "event: result\nid: 2\ndata: {\"run_id\":\"ended\"}\n\n";

/// Follows a run; the connection closes behind its last event.
fn follower(server: &Running, id: &str, headers: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("GET /v1/cases/{id}/events HTTP/1.0\r\n{headers}\r\n"));
    let head = client.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    client
}

#[test]
fn a_client_follows_a_run_from_where_it_left_off_with_pings_between() {
    let cases = ScriptedCases::new();
    let limits = HttpLimits { ping_every: Duration::from_millis(20), ..settings().limits };
    let server = serve(&cases, HttpSettings { limits, ..settings() });
    cases.happen(STATUS);
    let mut client = follower(&server, "live", "");
    client.wait_for("event: ping\ndata: {}\n\n");
    cases.happen(RESULT);
    let body = client.rest_text();
    assert_eq!(body.replace("event: ping\ndata: {}\n\n", ""), [SENT_STATUS, SENT_RESULT].concat());
    let sent = follower(&server, "ended", "last-event-id: 1\r\n").rest_text();
    assert_eq!(sent, SENT_RESULT);
}

#[test]
fn only_so_many_streams_are_open_at_once() {
    let cases = ScriptedCases::new();
    let limits = HttpLimits { event_streams_max: 0, ..settings().limits };
    let server = serve(&cases, HttpSettings { limits, ..settings() });
    assert_error(&server.ask(get("/v1/cases/ended/events")), 503, "queue.full");
}
