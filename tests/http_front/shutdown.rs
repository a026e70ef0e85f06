//! Draining and shutdown.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use cofferdam::http::HttpSettings;
use cofferdam_core::{Outcome, Stream};

use crate::support::{
    HEALTH, ScriptedChecks, body, exited, post, report, settings, start, wait_for_end,
};

/// Waits until the run of `checks` has been admitted.
fn wait_for_run(checks: &ScriptedChecks) {
    while checks.runs.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_drain_refuses_new_runs_and_lets_the_live_one_finish() {
    let (finish, finishes) = mpsc::channel::<()>();
    let finishes = Mutex::new(finishes);
    let checks = ScriptedChecks::new(2, move |_, _, _| {
        finishes.lock().unwrap().recv().unwrap();
        Ok(exited(0, "finished", ""))
    });
    let server = start(checks.clone(), HttpSettings { allow_shutdown: true, ..settings() });
    let mut live = server.connect();
    live.send(post("", &body("")));
    wait_for_run(&checks);
    for _ in 0..2 {
        let asked = server.ask("POST /shutdown HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        assert_eq!((asked.status, asked.body.as_str()), (200, "shutdown\n"));
        assert_eq!(asked.header("content-type"), Some("text/plain"));
    }
    let probe = server.ask(HEALTH);
    assert_eq!((probe.status, probe.body.as_str()), (503, "draining\n"));
    let refused = server.ask(post("", &body("")));
    assert_eq!((refused.status, refused.body.as_str()), (503, r#"{"error":"draining"}"#));
    finish.send(()).unwrap();
    assert!(live.answer().body.contains("finished"));
    server.join();
}

#[test]
fn a_second_request_to_stop_kills_at_once() {
    let checks = ScriptedChecks::endless();
    let server = start(checks.clone(), settings());
    let mut live = server.connect();
    live.send(post("", &body("")));
    wait_for_run(&checks);
    server.shutdown.request();
    assert_eq!(server.ask(HEALTH).status, 503, "the first request only drains");
    server.shutdown.request();
    let answer = live.answer();
    assert_eq!(answer.header("x-run-outcome"), Some("cancelled"));
    server.join();
}

#[test]
fn the_grace_period_ends_remaining_runs() {
    let checks = ScriptedChecks::endless();
    let grace = Duration::from_millis(200);
    let server = start(checks.clone(), HttpSettings { shutdown_grace: grace, ..settings() });
    let mut live = server.connect();
    live.send(post("", &body("")));
    wait_for_run(&checks);
    let start = Instant::now();
    server.shutdown.request();
    assert_eq!(live.answer().header("x-run-outcome"), Some("cancelled"));
    server.join();
    assert!((grace..Duration::from_secs(10)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn a_stream_cut_off_by_a_drain_ends_with_its_result() {
    // Repeated because the last bytes of the answer race with the end of the server.
    for _ in 0..20 {
        let checks = ScriptedChecks::new(1, |_, watch, sink| {
            sink.expect("a sink").take(Stream::Stdout, b"begun");
            wait_for_end(&watch);
            Ok(report(Outcome::Cancelled, "begun", ""))
        });
        let grace = Duration::ZERO;
        let server = start(checks, HttpSettings { shutdown_grace: grace, ..settings() });
        let mut live = server.connect();
        live.send(post("accept: text/event-stream\r\n", &body("")));
        live.wait_for("begun");
        server.shutdown.request();
        let events = live.rest_text();
        assert!(events.contains("event: result"), "{events}");
        assert!(events.ends_with("\r\n0\r\n\r\n"), "{events}");
        server.join();
    }
}

#[test]
fn slow_clients_do_not_delay_a_drain() {
    let server = start(ScriptedChecks::echo(), settings());
    let mut slow = server.connect();
    slow.send("POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{");
    let idle = server.connect();
    assert_eq!(server.ask(HEALTH).status, 200);
    let start = Instant::now();
    server.shutdown.request();
    server.join();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    drop(idle);
}
