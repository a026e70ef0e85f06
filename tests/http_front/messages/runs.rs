//! The answers to finished runs, and the effect of a disconnect on a run.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use cofferdam::check::run::CheckError;
use cofferdam::config::OnDisconnect;
use cofferdam::http::HttpSettings;
use cofferdam_core::{LimitKind, Outcome, SetupFailure};

use crate::support::{
    HEALTH, ScriptedChecks, body, exited, post, report, settings, start, wait_for_end,
};

const LONG: Duration = Duration::from_secs(10);

#[test]
fn a_report_becomes_the_three_keys_and_the_headers() {
    let checks = ScriptedChecks::new(1, |_, _, _| Ok(exited(3, "hi\n", "err\n")));
    let answer = start(checks, settings()).ask(post("", &body("")));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, r#"{"exit_code":3,"stdout":"hi\n","stderr":"err\n"}"#);
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-run-outcome", "exited"),
        ("x-run-cpu-ms", "7"),
        ("x-run-wall-ms", "12"),
        ("x-run-memory-peak-bytes", "4096"),
        ("x-run-oom-kills", "2"),
        ("server-timing", "queue;dur=0.005, prepare;dur=1.500, run;dur=12.000, cleanup;dur=0.020"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
}

#[test]
fn uncounted_usage_is_left_out() {
    let checks = ScriptedChecks::new(1, |_, _, _| {
        let mut report = exited(0, "", "");
        report.run.usage.memory_peak_source = "rusage";
        report.run.usage.oom_kills = None;
        Ok(report)
    });
    let answer = start(checks, settings()).ask(post("", &body("")));
    assert_eq!((answer.status, answer.header("x-run-memory-peak-bytes")), (200, None));
    assert_eq!(answer.header("x-run-oom-kills"), None);
}

#[test]
fn every_outcome_has_its_status_and_word() {
    let limit = |kind, code| Outcome::LimitHit { kind, code };
    let too_large = (413, r#"{"error":"output too large"}"#);
    let null = (200, r#"{"exit_code":null,"stdout":"o","stderr":""}"#);
    let killed = (200, r#"{"exit_code":137,"stdout":"o","stderr":""}"#);
    for (outcome, (status, body_text), word) in [
        (limit(LimitKind::WallTime, None), null, "timed_out"),
        (Outcome::Cancelled, null, "cancelled"),
        (limit(LimitKind::Output, None), too_large, "output_limit"),
        (limit(LimitKind::Memory, Some(137)), killed, "memory_limit"),
        (limit(LimitKind::CpuTime, Some(137)), killed, "cpu_limit"),
        (limit(LimitKind::Processes, Some(137)), killed, "process_limit"),
        (limit(LimitKind::Disk, Some(137)), killed, "disk_limit"),
        (Outcome::Signaled { signal: 9 }, killed, "signaled"),
    ] {
        let checks = ScriptedChecks::new(1, move |_, _, _| Ok(report(outcome, "o", "")));
        let answer = start(checks, settings()).ask(post("", &body("")));
        assert_eq!((answer.status, answer.body.as_str()), (status, body_text), "{outcome:?}");
        assert_eq!(answer.header("x-run-outcome"), Some(word));
    }
}

#[test]
fn a_run_without_a_report_has_its_own_error() {
    let checks = ScriptedChecks::new(1, |_, _, _| {
        Err(CheckError::Sandbox(SetupFailure::from_errno("mount /proc", 1)))
    });
    let server = start(checks, settings());
    let failed = server.ask(post("", &body("")));
    assert_eq!(
        (failed.status, failed.body.as_str()),
        (500, r#"{"error":"sandbox: mount /proc: EPERM"}"#)
    );
    let absent = server.ask(post("", &body("").replace("python", "absent")));
    assert_eq!((absent.status, absent.body.as_str()), (503, r#"{"error":"language unavailable"}"#));
}

#[test]
fn a_busy_runner_refuses_at_once_and_stays_healthy() {
    let checks = ScriptedChecks::endless();
    let server = start(checks.clone(), settings());
    let mut first = server.connect();
    first.send(post("", &body("")));
    while checks.runs.load(Ordering::SeqCst) == 0 {
        assert_eq!(server.ask(HEALTH).status, 200);
    }
    let busy = server.ask(post("", &body("")));
    assert_eq!((busy.status, busy.body.as_str()), (429, r#"{"error":"runner busy"}"#));
    assert_eq!(busy.header("retry-after"), Some("1"));
    assert_eq!(
        server.ask(post("", "{")).status,
        400,
        "a request is validated before it needs a slot"
    );
    assert_eq!(server.ask(HEALTH).body, "ok\n");
}

#[test]
fn a_hanging_admission_does_not_delay_health_and_status() {
    let checks = ScriptedChecks::echo();
    let server = start(checks.clone(), settings());
    let hold = checks.admission.lock().unwrap();
    let mut waiting: Vec<_> = (0..6).map(|_| server.connect()).collect();
    waiting.iter_mut().for_each(|client| client.send(post("", &body("held"))));
    for _ in 0..20 {
        assert_eq!(server.ask(HEALTH).status, 200);
        assert_eq!(server.ask("GET /status HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
    }
    drop(hold);
    waiting.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
}

#[test]
fn the_slot_is_free_when_the_answer_is_read() {
    let checks = ScriptedChecks::new(1, |_, _, _| Ok(exited(0, "", "")));
    let server = start(checks, settings());
    let mut client = server.connect();
    for round in 0..100 {
        client.send(post("", &body("")));
        assert_eq!(client.answer().status, 200, "round {round}");
    }
}

#[test]
fn a_disconnect_ends_the_run() {
    for headers in ["", "accept: text/event-stream\r\n"] {
        let (ended, ends) = mpsc::channel();
        let checks = ScriptedChecks::new(1, move |_, watch, _| {
            wait_for_end(&watch);
            ended.send(()).unwrap();
            Ok(exited(0, "", ""))
        });
        let server = start(checks.clone(), settings());
        let mut client = server.connect();
        client.send(post(headers, &body("")));
        while checks.runs.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert!(ends.try_recv().is_err(), "the run ended while its client was connected");
        drop(client);
        ends.recv_timeout(LONG).expect("the run outlived its client");
        assert_eq!(server.ask(HEALTH).status, 200);
    }
}

#[test]
fn a_run_outlives_its_client_if_configured() {
    let (begun, begins) = mpsc::channel();
    let (finish, finishes) = mpsc::channel::<()>();
    let finishes = std::sync::Mutex::new(finishes);
    let checks = ScriptedChecks::new(1, move |_, watch, _| {
        assert!(watch.client.is_none(), "the run watches its client's socket");
        begun.send(()).unwrap();
        finishes.lock().unwrap().recv().unwrap();
        Ok(exited(0, "", ""))
    });
    let server = start(checks, HttpSettings { on_disconnect: OnDisconnect::Finish, ..settings() });
    let mut client = server.connect();
    client.send(post("", &body("")));
    begins.recv_timeout(LONG).unwrap();
    drop(client);
    assert_eq!(server.ask(post("", &body(""))).status, 429, "the run was ended");
    finish.send(()).unwrap();
}
