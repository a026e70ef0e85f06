//! Limits on the size of requests and the number of clients.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use cofferdam::http::{HttpLimits, HttpSettings};

use crate::support::{
    Client, HEALTH, ScriptedChecks, body, exited, post, settings, start, start_echo,
};

/// A valid body of exactly `length` bytes.
fn body_of(length: usize) -> String {
    let bare = body("").len();
    body(&"x".repeat(length - bare))
}

fn chunked(body: &str) -> String {
    let chunks: String = body
        .as_bytes()
        .chunks(100)
        .map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), std::str::from_utf8(piece).unwrap()))
        .collect();
    format!("POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

#[test]
fn a_body_may_be_as_long_as_the_limit_and_no_longer() {
    let server = start_echo();
    assert_eq!(server.ask(post("", &body_of(1000))).status, 200);
    assert_eq!(server.ask(chunked(&body_of(1000))).status, 200);
    for request in [post("", &body_of(1001)), chunked(&body_of(1001)), post("", &"x".repeat(2000))]
    {
        let answer = server.ask(request);
        assert_eq!(answer.status, 413);
        assert_eq!(answer.body, r#"{"error":"payload too large"}"#);
    }
}

#[test]
fn no_limit_means_none() {
    let server =
        start(ScriptedChecks::echo(), HttpSettings { input_bytes_max: None, ..settings() });
    assert_eq!(server.ask(post("", &body_of(5_000_000))).status, 200);
    assert_eq!(server.ask(chunked(&body_of(300_000))).status, 200);
}

#[test]
fn a_length_above_the_limit_is_refused_before_the_body() {
    let server = start_echo();
    for headers in ["", "expect: 100-continue\r\n"] {
        for length in ["1001", "999999999999999999"] {
            let head = format!(
                "POST /run HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n"
            );
            assert_eq!(server.ask(head).status, 413, "{headers} {length}");
        }
    }
}

#[test]
fn a_refused_client_that_keeps_sending_still_reads_the_answer() {
    let server = start_echo();
    for _ in 0..5 {
        let answer = server.ask(post("", &"x".repeat(3_000_000)));
        assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
    }
}

#[test]
fn unread_answers_give_way_to_read_ones() {
    let long = "x".repeat(32 << 20);
    let checks = ScriptedChecks::new(2, {
        let long = long.clone();
        move |_, _, _| Ok(exited(0, &long, ""))
    });
    let limits = HttpLimits { unread_bytes_max: 40 << 20, ..settings().limits };
    let server = start(checks, HttpSettings { limits, ..settings() });
    let mut unread = server.connect();
    unread.send(post("", &body("")));
    assert!(unread.head().head.starts_with("HTTP/1.1 200 "));
    // Two exceed the limit together: the one that is read arrives complete.
    assert!(server.ask(post("", &body(""))).body.contains(&long));
    assert!(unread.rest_text().len() < long.len(), "the socket buffers held the whole answer");
    // A single unread answer may stay.
    let mut slow = server.connect();
    slow.send(post("", &body("")));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.ask(HEALTH).status, 200);
    assert!(slow.answer().body.contains(&long));
}

/// Waits until the server has read everything that `client` has sent.
fn wait_until_read(client: &Client) {
    let [ours, its] = [client.socket.local_addr(), client.socket.peer_addr()]
        .map(|address| format!("0100007F:{:04X}", address.unwrap().port()));
    let began = Instant::now();
    loop {
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let mut columns = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let of_server = columns.find(|line| line[1] == its && line[2] == ours);
        if of_server.is_some_and(|line| line[4].ends_with(":00000000")) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "the server does not read it");
    }
}

#[test]
fn unfinished_bodies_give_way_to_others_and_small_ones_stay() {
    let limits = HttpLimits { bodies_bytes_max: 450_000, ..settings().limits };
    let settings = HttpSettings { limits, input_bytes_max: Some(1 << 20), ..settings() };
    let server = start(ScriptedChecks::echo(), settings);
    let unfinished = |bytes: usize| {
        let mut client = server.connect();
        client.send(format!(
            "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            bytes + 1
        ));
        client.send("x".repeat(bytes));
        wait_until_read(&client);
        client
    };
    let mut small = unfinished(1000);
    let mut first = unfinished(300_000);
    let mut second = unfinished(150_000);
    // Until another body counts as slow: it has not grown for a second.
    let mut third = unfinished(250_000);
    let refused = first.answer();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert_eq!(refused.body, r#"{"error":"too many unfinished request bodies"}"#);
    assert_eq!(first.rest_text(), "", "the connection is closed");
    // All others are read to their end, although they are invalid.
    for client in [&mut small, &mut second, &mut third] {
        client.send("x");
        assert_eq!(client.answer().status, 400);
    }
    // A single body may have any size.
    assert_eq!(server.ask(post("", &body(&"x".repeat(900_000)))).status, 200);
}

#[test]
fn a_head_may_have_at_most_sixteen_kibibytes() {
    let server = start_echo();
    let bare = "GET /health HTTP/1.1\r\nhost: x\r\nx: \r\n\r\n".len();
    for (bytes, status) in [(16 * 1024, 200), (16 * 1024 + 1, 431), (1 << 20, 431)] {
        let head =
            format!("GET /health HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(bytes - bare));
        assert_eq!(server.ask(head).status, status, "{bytes} bytes");
    }
    let endless_line = format!("GET /{}", "y".repeat(100_000));
    assert_eq!(server.ask(endless_line).status, 431);
    assert_eq!(server.ask("\r\n".repeat(20_000)).status, 431);
}

#[test]
fn a_head_may_have_at_most_a_hundred_headers() {
    let server = start_echo();
    for (count, status) in [(100, 200), (101, 431), (1000, 431)] {
        let head =
            format!("GET /health HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(count - 1));
        assert_eq!(server.ask(head).status, status, "{count} headers");
    }
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let limits = HttpLimits { connections_max: 2, ..settings().limits };
    let server = start(ScriptedChecks::echo(), HttpSettings { limits, ..settings() });
    let (first, mut second, mut third) = (server.connect(), server.connect(), server.connect());
    second.send(HEALTH);
    assert_eq!(second.answer().status, 200);
    third.send(HEALTH);
    third.socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let waiting = third.socket.read(&mut [0]).unwrap_err();
    assert!(matches!(waiting.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    drop(first);
    third.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(third.answer().status, 200);
}
