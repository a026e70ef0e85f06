//! Many slow clients at once.

use std::time::{Duration, Instant};

use super::process::{ServerProcess, is_server, serve, start_process};
use crate::support::{HEALTH, body, post};

/// The median time of an answer.
fn median(server: &ServerProcess) -> Duration {
    let mut times = [(); 31].map(|()| {
        let start = Instant::now();
        let mut client = server.connect();
        client.send(HEALTH);
        assert_eq!(client.answer().status, 200);
        start.elapsed()
    });
    times.sort();
    times[15]
}

#[test]
fn hundreds_of_slow_clients_do_not_delay_others() {
    if is_server() {
        return serve(None);
    }
    let server = start_process("overload::flood::hundreds_of_slow_clients_do_not_delay_others");
    let alone = median(&server);
    let threads = server.threads();
    let held: Vec<_> = (0..400)
        .map(|index| {
            let mut client = server.connect();
            client.send(if index % 2 == 0 {
                "GET /health HTTP/1.1\r\nx: "
            } else {
                "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"
            });
            client
        })
        .collect();
    let beside = median(&server);
    assert!(beside < alone * 3 + Duration::from_millis(100), "{beside:?}, alone {alone:?}");
    assert_eq!(server.threads(), threads, "the server started threads for slow clients");
    let mut client = server.connect();
    client.send(post("", &body("through")));
    assert!(client.answer().body.contains("through"));
    drop(held);
}
