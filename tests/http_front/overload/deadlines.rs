//! Deadlines against slow clients.

use std::io::Write;
use std::time::{Duration, Instant};

use cofferdam::http::{HttpLimits, HttpSettings};

use crate::support::{
    Client, HEALTH, Running, ScriptedChecks, body, exited, post, settings, start,
};

const NEAR: Duration = Duration::from_millis(300);
/// A close later than this missed its deadline, even on a busy machine.
const LATE: Duration = Duration::from_secs(10);

fn start_with(limits: HttpLimits) -> Running {
    start(ScriptedChecks::echo(), HttpSettings { limits, ..settings() })
}

fn assert_closed_near(client: &mut Client) {
    let (after, rest) = client.closed_after();
    assert!(after < LATE, "closed after {after:?}");
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408 "), "{rest:?}");
}

#[test]
fn an_incomplete_head_is_closed_at_its_deadline() {
    let server = start_with(HttpLimits { head_within: NEAR, ..settings().limits });
    for piece in ["G", "\r\n", "GET /health HTTP/1.1\r\n", "GET /health HTTP/1.1\r\nhost: x\r\n\r"]
    {
        let mut client = server.connect();
        client.send(piece);
        let start = Instant::now();
        assert_closed_near(&mut client);
        assert!(start.elapsed() > NEAR / 2, "{piece:?} was closed at once");
    }
}

#[test]
fn slow_bytes_do_not_extend_the_deadline_of_a_head() {
    let server = start_with(HttpLimits { head_within: NEAR, ..settings().limits });
    let mut client = server.connect();
    client.send("GET /health HTTP/1.1\r\nx: ");
    let start = Instant::now();
    // Writing fails once the server has closed the connection.
    while client.socket.write_all(b"y").is_ok() {
        assert!(start.elapsed() < LATE, "slow bytes kept the connection open");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_head_on_a_connection_has_the_same_deadline() {
    let server = start_with(HttpLimits { head_within: NEAR, ..settings().limits });
    let mut behind = server.connect();
    behind.send(HEALTH);
    assert_eq!(behind.answer().status, 200);
    behind.send("GET /hea");
    assert_closed_near(&mut behind);
    let chunked = format!(
        "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        body("").len(),
        body("")
    );
    for whole in [HEALTH.to_owned(), post("", &body("")), chunked] {
        let mut pipelined = server.connect();
        pipelined.send(format!("{whole}GET /hea"));
        assert_eq!(pipelined.answer().status, 200);
        assert_closed_near(&mut pipelined);
    }
}

#[test]
fn an_idle_connection_has_its_own_longer_deadline() {
    let limits = HttpLimits {
        head_within: Duration::from_millis(20),
        idle_max: Duration::from_millis(500),
        ..settings().limits
    };
    let server = start_with(limits);
    let mut fresh = server.connect();
    let mut used = server.connect();
    used.send(HEALTH);
    assert_eq!(used.answer().status, 200);
    for client in [&mut used, &mut fresh] {
        let start = Instant::now();
        assert_closed_near(client);
        assert!(start.elapsed() < LATE);
    }
    let mut client = server.connect();
    let (after, _) = client.closed_after();
    assert!(after > Duration::from_millis(250), "the head's deadline closed an idle connection");
}

#[test]
fn an_incomplete_body_is_answered_408_and_closed() {
    let server = start_with(HttpLimits { body_within: NEAR, ..settings().limits });
    for head in [
        "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
        "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
        "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(head);
        let (after, rest) = client.closed_after();
        assert!(rest.contains("HTTP/1.1 408 ") && after < LATE, "{head:?}: {rest:?}");
        assert!(after > NEAR / 2, "{head:?} was closed at once");
    }
}

#[test]
fn an_unread_answer_closes_the_connection() {
    let limits = HttpLimits { answer_within: NEAR, connections_max: 1, ..settings().limits };
    let long = "x".repeat(32 << 20);
    let checks = ScriptedChecks::new(1, move |_, _, _| Ok(exited(0, &long, "")));
    let server = start(checks, HttpSettings { limits, ..settings() });
    let mut unread = server.connect();
    unread.send(post("", &body("")));
    // The only connection is free again once the server closes the first one.
    let start = Instant::now();
    assert_eq!(server.ask(HEALTH).status, 200);
    assert!(start.elapsed() < LATE, "the connection was free after {:?}", start.elapsed());
    assert!(unread.rest_text().len() < 32 << 20, "the socket buffers held the whole answer");
}
