//! A server without free descriptors.

use std::time::{Duration, Instant};

use super::process::{is_server, serve, start_process};
use crate::support::HEALTH;

#[test]
fn accepting_pauses_without_descriptors_and_resumes_with_them() {
    if is_server() {
        return serve(Some(8));
    }
    let server = start_process(
        "overload::exhaustion::accepting_pauses_without_descriptors_and_resumes_with_them",
    );
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    clients[0].send(HEALTH);
    assert_eq!(clients[0].answer().status, 200, "an accepted client is served");
    let (cpu, start) = (server.cpu(), Instant::now());
    std::thread::sleep(Duration::from_millis(600));
    let spent = server.cpu() - cpu;
    assert!(spent < start.elapsed() / 4, "{spent:?} of CPU while idle");
    let mut last = clients.pop().unwrap();
    drop(clients);
    last.send(HEALTH);
    assert_eq!(last.answer().status, 200);
    let mut fresh = server.connect();
    fresh.send(HEALTH);
    assert_eq!(fresh.answer().status, 200);
}
